"""Tools that edit graphs: new names, new nodes and constants, weights that are removed and restored."""
