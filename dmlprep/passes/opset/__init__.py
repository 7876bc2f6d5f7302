"""The opset pass: bring a model to the opset that its target runs, or refuse by name."""

from dmlprep.passes.opset.opset_pass import OpsetOptions, OpsetPass

__all__ = ["OpsetOptions", "OpsetPass"]
