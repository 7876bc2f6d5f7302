"""Tools that edit graphs: new names, new nodes and constants, and weights that are removed and later restored."""
