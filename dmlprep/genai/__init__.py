"""Folders of language models for onnxruntime-genai: read, checked, and what they need."""

from dmlprep.genai.folder import open_folder

__all__ = ["open_folder"]
