"""Turn recipes, project files and options into a run: each step as a transaction, then the proof, then the result."""
