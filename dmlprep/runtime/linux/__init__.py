"""The real DirectML on Linux: Microsoft's libraries under Wine on a CPU Vulkan driver, in a sandbox.

See ``docs/runtime.md`` for what it is made of and why, and ``docs/directml-conformance.md`` for what it computes.
"""
