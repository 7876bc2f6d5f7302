"""Find the first node at which two models differ, and write files that reproduce it."""
