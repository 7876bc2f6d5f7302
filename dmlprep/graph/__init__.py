"""ONNX models without running them: open, save and edit (``model``, ``rewriting``), and infer facts (``analysis``).

This code does not know DirectML.
"""
