"""How graphs are edited: new names, new nodes and constants, weights taken out and put back."""
