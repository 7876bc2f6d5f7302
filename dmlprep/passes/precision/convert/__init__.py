"""From FP32 to FP16: which node computes in which type, and the converted graph."""
