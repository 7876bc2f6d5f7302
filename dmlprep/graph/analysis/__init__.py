"""What follows from a graph without running it: types, shapes, constants, free sizes, places to cut it."""
