"""Code that also runs on other machines: the runner of a kit, the loader of a package, and what both measure with.

It is copied as it is, so it needs Python 3.9, numpy and ONNX Runtime alone, and imports itself by relative imports.
What needs the rest of dmlprep belongs above.
"""
