"""Child processes: how they start, what limits them, how they end; and the one that runs onnx's compiled code.

What a child computes belongs to the room that asks for it.
"""
