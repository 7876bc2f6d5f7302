"""Structured mutations of models, recipes, records, kits and feeds, through the command line.

``python -m tests.fuzz`` makes many inputs out of one seed; ``tests/test_fuzz.py`` runs a few. See docs/fuzzing.md.
"""
