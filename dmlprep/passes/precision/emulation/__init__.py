"""The FP16 emulation: the results of FP16 hardware, from an FP32 model that any machine runs."""
