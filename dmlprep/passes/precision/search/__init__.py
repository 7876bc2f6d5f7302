"""The island search: find the smallest set of nodes to keep in FP32, by runs of the FP16 emulation."""
