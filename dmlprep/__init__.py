"""Prepare ONNX models for ONNX Runtime's DirectML execution provider, and prove the result."""
