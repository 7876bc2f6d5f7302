"""Infer types, shapes, constants, free sizes and cut points of a graph without running it."""
