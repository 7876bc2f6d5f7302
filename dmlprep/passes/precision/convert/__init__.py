"""Convert FP32 to FP16: decide which node computes in which type, and rewrite the graph."""
