"""Code that also runs on other machines: the runner of a kit, the loader of a package, and the measures of both.

A kit is a zip with a model and its expected outputs, for a test on another Windows machine. A package is a folder with
a model for an app. dmlprep copies these files unchanged into both. They run on Python 3.9 or newer, need only numpy and
ONNX Runtime, and import each other by relative imports. Code that needs the rest of dmlprep belongs elsewhere.
"""
