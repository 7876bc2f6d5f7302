"""Recipes, project files and options become a run: each step a transaction, then the proof, then the result.

What one step does belongs in ``passes``.
"""
