"""Prepare, check and compare folders of language models for onnxruntime-genai."""

from dmlprep.genai.folder import open_folder

__all__ = ["open_folder"]
