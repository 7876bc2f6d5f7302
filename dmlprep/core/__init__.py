"""Errors, files and text for every room: nothing about models, ONNX or DirectML."""
