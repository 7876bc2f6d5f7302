"""ONNX models without running them: open, save, edit (``model``, ``rewriting``) and what follows (``analysis``).

Nothing here knows of DirectML.
"""
