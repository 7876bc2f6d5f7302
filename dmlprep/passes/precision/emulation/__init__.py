"""The FP16 emulation: what FP16 hardware would compute, as an FP32 model that any machine runs."""
