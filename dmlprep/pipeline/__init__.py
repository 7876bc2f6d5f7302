"""Turn recipes, project files and options into a run: steps that succeed or change nothing, a proof, and the result."""
