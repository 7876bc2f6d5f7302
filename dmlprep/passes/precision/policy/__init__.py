"""The policy: rules for nodes that stay in FP32, one module for each rule.

``rules.py`` applies the rules. ``forms.py`` has the rules that follow from schemas, kernels and the model itself;
``stretches.py`` and ``scales.py`` have patterns that several rules share. ``find`` of each other module yields the
nodes that its rule keeps in FP32, each with the reason as a clause.
"""
