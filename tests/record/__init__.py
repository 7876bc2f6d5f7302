"""Tests of ``dmlprep/record``."""
