"""Which nodes stay in FP32, and why: a module a rule.

``rules.py`` applies them; ``stretches.py`` and ``scales.py`` hold what several rules look for.
"""
