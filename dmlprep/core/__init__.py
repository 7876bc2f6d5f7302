"""Errors, files and text for the other packages of dmlprep: nothing about models, ONNX or DirectML."""
