"""Turn recipes, project files and options into a run: steps as transactions, then the proof, then the result."""
