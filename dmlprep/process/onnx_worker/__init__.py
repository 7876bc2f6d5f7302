"""The only door to onnx's compiled code where it reads a model: in a process of its own, with limits.

onnx's checker, shape inference, version converter, inliner and function builders are C++ that trusts what it reads: a
model of some hundred bytes can crash them, keep them busy for ever, or let them take all memory. ``calls`` are these
functions as Python has them; ``door`` keeps the process. ``onnx.defs``, onnx's own data, is read in this process.
"""
