"""The only access to onnx's compiled code for reading models: in a separate process, with limits.

onnx's checker, shape inference, version converter, inliner and function builders are C++ code that trusts its input. A
model of some hundred bytes can crash them, make them run forever, or exhaust the memory. ``calls`` has these functions
in their Python form; ``door`` starts, watches and ends the process. ``onnx.defs``, onnx's own data, is read in this
process.
"""
