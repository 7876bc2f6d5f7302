"""Every fixture model: what to pin, which recipe fits, and sizes for dimensions that stay free."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BROKEN", "FIXTURES", "FOLDER", "Fixture", "fixture"]

FOLDER = Path(__file__).resolve().parents[1] / "fixtures"


@dataclass(frozen=True)
class Fixture:
    """One model below ``fixtures/models``.

    Attributes:
        name: stem of the file.
        recipe: the built-in recipe that fits it.
        pins: sizes that make every input static.
        free: sizes for running it unpinned.
        dynamic: outputs whose sizes depend on the data, and stay dynamic when everything is pinned.
        traits: what is odd about it, in words that tests select by.
    """

    name: str
    recipe: str
    pins: dict[str, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The model file."""
        return FOLDER / "models" / f"{self.name}.onnx"


FIXTURES: tuple[Fixture, ...] = (
    Fixture("residual_cnn", "@vision-fp16", {"batch": 2}),
    Fixture("depthwise_cnn", "@vision-fp16", {"batch": 1, "height": 32, "width": 32}),
    Fixture("unet_resize", "@vision-fp16", {"batch": 1, "height": 16, "width": 24}, {"height": 16, "width": 24}),
    Fixture("detector_nms", "@vision-fp16", dynamic=("boxes", "scores", "labels"), traits=("nms",)),
    Fixture("detector_raw", "@vision-fp16"),
    Fixture("super_resolution", "@super-resolution-fp16", {"batch": 1, "height": 12, "width": 16}),
    Fixture("weights_as_inputs", "@vision-fp16", traits=("ir3",)),
    Fixture("unnamed_nodes", "@vision-fp16", {"N": 2}, traits=("unnamed",)),
    Fixture("quantized_cnn", "@static-fp32", {"batch": 2}, traits=("qdq",)),
    Fixture("half_cnn", "@static-fp32", {"batch": 2}, traits=("fp16-inputs",)),
    Fixture("external_cnn", "@vision-fp16", {"batch": 2}, traits=("external-data",)),
    Fixture("opset22_cnn", "@vision-fp16", {"batch": 1, "height": 16, "width": 16}, traits=("opset-22",)),
    Fixture("baked_batch", "@static-fp32", {"batch": 1}, {"batch": 1}, traits=("baked",)),
    Fixture("bert_encoder", "@transformer-fp16", {"batch": 2, "sequence": 12}),
    Fixture("decoder_cache", "@transformer-fp16", {"batch": 1, "seq": 2, "past": 6, "past_plus_seq": 8}),
    Fixture("dynamo_decoder", "@transformer-fp16", {"batch": 1, "seq": 6}, traits=("opset-23",)),
    Fixture("rnn_tagger", "@static-fp32", {"batch": 2, "time": 7}),
    Fixture("mlp_anonymous", "@static-fp32", {"a:0": 2, "b:0": 2, "c:0": 2}, traits=("anonymous",)),
    Fixture("late_overflow", "@static-fp32", {"batch": 2}, traits=("overflow",)),
    Fixture("residual_mlp_deep", "@static-fp32", {"batch": 2}),
    Fixture(
        "diffusion_unet",
        "@diffusion-fp16",
        {"batch": 2, "height": 16, "width": 16, "sequence": 9},
        {"height": 8, "width": 8},
    ),
    Fixture("speech_encoder", "@speech-fp16", {"batch": 1}),
    Fixture("if_branches", "@static-fp32", {"batch": 2}, traits=("subgraph",)),
    Fixture("loop_refine", "@static-fp32", {"batch": 2}, dynamic=("sums",), traits=("subgraph",)),
    Fixture("scan_filter", "@static-fp32", {"time": 5}, traits=("subgraph",)),
    Fixture("local_functions", "@static-fp32", {"batch": 2}, traits=("functions",)),
    Fixture("nested_control", "@static-fp32", {"batch": 2}, traits=("subgraph",)),
)
"""In the order of ``fixtures/make.py``."""

BROKEN: dict[str, str] = {
    "empty": "the file is empty",
    "text": "not ONNX",
    "truncated": "cut off in a tensor",
    "truncated_early": "cut off in the header",
    "zeros": "4096 zero bytes",
    "wrong_type": "Add of FP32 and int64",
    "data_missing": "its data file is not there",
    "data_parent": "its data file is outside the folder, by ..",
    "data_absolute": "its data file is an absolute path",
    "data_windows_absolute": "its data file is an absolute Windows path",
    "data_offset_outside": "a tensor begins behind the end of its data file",
    "data_length_outside": "a tensor ends behind the end of its data file",
    "data_offset_negative": "a tensor begins before its data file",
    "data_size_mismatch": "a tensor's length does not match its shape",
    "dangling_input": "a node reads what nobody makes",
    "cycle": "a node reads its own result",
    "unknown_operator": "an operator that ai.onnx does not have",
    "no_opset": "names no opset",
    "opset_from_the_future": "opset 999",
    "no_graph": "has no graph",
    "wrong_size": "an initializer has fewer bytes than its shape needs",
}
"""Name of a file below ``fixtures/broken`` -> its fault."""


def fixture(name: str) -> Fixture:
    """The fixture of a name."""
    return next(f for f in FIXTURES if f.name == name)
