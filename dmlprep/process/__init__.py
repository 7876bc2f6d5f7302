"""Child processes: how they start, what limits them, how they end; and the one that runs onnx's compiled code.

The code that a child runs is in the package that needs its result.
"""
