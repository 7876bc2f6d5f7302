"""Recipes, project files and options become a run: each step a transaction, then the proof, then the result."""
