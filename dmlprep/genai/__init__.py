"""Folders of language models for onnxruntime-genai: read, checked, and what they need."""

from dmlprep.genai.config import GenaiConfig, read_config
from dmlprep.genai.folder import GenaiFolder, ModelFile, open_folder

__all__ = ["GenaiConfig", "GenaiFolder", "ModelFile", "open_folder", "read_config"]
