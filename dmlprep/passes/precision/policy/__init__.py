"""Which nodes stay in FP32, and why: a module a rule. ``rules.py`` applies them, ``forms.py`` has those that follow
from schemas, kernels and the model itself; ``stretches.py`` and ``scales.py`` hold what several rules look for."""
