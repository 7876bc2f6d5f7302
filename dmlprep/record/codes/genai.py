"""Codes DP84x to DP86x: folders of onnxruntime-genai."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP840": Code(
        "a genai_config.json that cannot be read",
        "error",
        "name a folder that onnxruntime-genai's model builder wrote",
    ),
    "DP841": Code("a key that onnxruntime-genai does not know", "error", "leave it out, or write it as it is known"),
    "DP842": Code(
        "a value that onnxruntime-genai does not take", "error", "write a value of the kind that the message names"
    ),
    "DP843": Code(
        "JSON that onnxruntime-genai does not read", "error", "save the file as UTF-8 without a byte-order mark"
    ),
    "DP844": Code("a key that stands there more than once", "warning", "leave one"),
}
