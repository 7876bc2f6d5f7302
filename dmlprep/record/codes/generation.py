"""Codes DP88x: the proof of a language model's folder."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP880": Code(
        "logits of a language model differ", "error", "prepare it in FP16, or keep more layers in FP16 with INT4"
    ),
    "DP881": Code(
        "logits that prove nothing", "warning", "use a trained model, and give prompts and a text of your own"
    ),
    "DP882": Code("perplexity is worse", "error", "prepare it in FP16, or keep more layers in FP16 with INT4"),
    "DP883": Code("greedy texts part where they had to agree", "warning", "compare longer, with --text"),
    "DP884": Code(
        "logits behind the cache differ",
        "error",
        "set search.past_present_share_buffer to true for DirectML; see what dmlprep genai check says of the cache",
    ),
    "DP885": Code("onnxruntime-genai did not run", "note", "the reason says what is missing"),
}
