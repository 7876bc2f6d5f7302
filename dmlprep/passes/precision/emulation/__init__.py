"""The FP16 emulation: an FP32 model that any machine runs, and that computes what FP16 hardware would compute."""
