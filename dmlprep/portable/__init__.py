"""Code that also runs on other machines: the runner of a kit, the loader of a package, and the measures of both.

dmlprep copies these files unchanged into kits and packages. They run on Python 3.9 or newer, need only numpy and ONNX
Runtime, and import each other by relative imports. Code that needs the rest of dmlprep belongs elsewhere.
"""
