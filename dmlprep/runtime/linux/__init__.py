"""The real DirectML on Linux: Microsoft's libraries under Wine on a CPU Vulkan driver, in a sandbox.

``docs/runtime.md`` describes its parts and the reasons, ``docs/directml-conformance.md`` its results.
"""
