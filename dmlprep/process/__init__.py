"""Child processes: how they start, what limits them, how they end; and the one that runs onnx's compiled code.

The work of a child belongs to the room that asks for it.
"""
