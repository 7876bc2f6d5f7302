"""The opset pass: bring a model to an opset that its target runs, or refuse it and name the node that prevents it."""

from dmlprep.passes.opset.opset_pass import OpsetOptions, OpsetPass

__all__ = ["OpsetOptions", "OpsetPass"]
