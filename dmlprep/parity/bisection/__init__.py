"""Find the node at which two models part, and leave a reproduction of it."""
