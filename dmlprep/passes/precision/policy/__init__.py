"""The nodes that stay in FP32, and why: one module for each rule.

``rules.py`` applies the rules. ``forms.py`` has the rules that follow from schemas, kernels and the model itself;
``stretches.py`` and ``scales.py`` have patterns that several rules share.
"""
