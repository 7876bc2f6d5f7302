"""On the real provider: what the target's data say of FP16, and models whose constants were rescaled or lowered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.passes.precision import convert, emulate
from dmlprep.runtime import SessionHost, dml_host, dml_status
from tests.passes.precision.graphs import feeds_for, model_of, proto_of, relative, run
from tests.passes.precision.traps import TRAPS

pytestmark = [pytest.mark.dml, pytest.mark.slow]

HALF = np.float16
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def host() -> Iterator[SessionHost]:
    status = dml_status()
    if not status.available:
        pytest.skip(f"no DirectML: {status.reason}")
    if status.fp16.overflow != "infinity":
        pytest.skip("this device saturates where FP16 overflows")
    with dml_host() as made:
        yield made


def _on_dml(host: SessionHost, proto: onnx.ModelProto, feeds: dict[str, np.ndarray], folder: Path) -> np.ndarray:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return np.asarray(host.open(path).run(feeds)["y"], np.float64)


def _normalised(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)


_X = RNG.standard_normal((4, 256))
FAULTS = {
    # row of the target's data -> (node, operand on the right side, right result, operand on the wrong side)
    "normalisation": (
        "y = LayerNormalization(x, s)",
        (_X * 200).astype(HALF),
        _normalised((_X * 200).astype(HALF)),
        (_X * 300).astype(HALF),
    ),
    "sum-of-squares": (
        "y = LpNormalization<axis = 1, p = 2>(x)",
        np.full((4, 16), 60, HALF),
        np.full((4, 16), 0.25),
        np.full((4, 16), 100, HALF),
    ),
    "long-softmax": (
        "y = Softmax(x)",
        np.zeros((1, 60000), HALF),
        np.full((1, 60000), 1 / 60000),
        np.zeros((1, 70000), HALF),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_begins_where_the_data_say(host: SessionHost, fault: str, tmp_path: Path) -> None:
    body, good, want, bad = FAULTS[fault]
    for operand, right in ((good, True), (bad, False)):
        ends = f"(float16[{','.join(map(str, operand.shape))}] x) => (float16[{','.join(map(str, operand.shape))}] y)"
        weights = {"s": np.ones(256, HALF)} if "s)" in body else {}
        model = model_of(f'<ir_version: 8, opset_import: ["" : 17]> g {ends} {{ {body} }}', weights)
        got = _on_dml(host, proto_of(model), {"x": operand}, tmp_path)
        if right:
            np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-3 * np.abs(want).max())
        else:
            assert not got.any(), "finite zeros"


@pytest.mark.parametrize(
    "name",
    ["tiny_weights", "large_scale", "two_masks", "where_mask", "decomposed_layer_norm", "lstm", "gru_swapped_axes",
     "swapped_axes_before_matmul"],
)  # fmt: skip
def test_traps_come_out_right(host: SessionHost, name: str, tmp_path: Path) -> None:
    model = model_of(*TRAPS[name])
    feeds = feeds_for(model)
    want = run(model, feeds)["y"]
    convert(model, find_target())
    assert relative(want, _on_dml(host, proto_of(model), feeds, tmp_path)) < 0.01


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_the_emulation_predicts_recurrent_layers(host: SessionHost, op: str, gates: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shapes = {"w": (1, gates * 64, 32), "r": (1, gates * 64, 64), "b": (1, gates * 128)}
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[200,1,32] x) => (float[200,1,1,64] y) '
        f"{{ y, h = {op}<hidden_size=64>(x, w, r, b) }}",
        {name: rng.uniform(-0.125, 0.125, shape).astype(np.float32) for name, shape in shapes.items()},
    )
    feeds = {"x": rng.standard_normal((200, 1, 32)).astype(np.float32)}
    want = run(model, feeds)["y"]
    assert convert(model, find_target()).rules == {}
    predicted = relative(want, run(emulate(model), feeds)["y"])
    assert predicted / 2.5 < relative(want, _on_dml(host, proto_of(model), feeds, tmp_path)) < 2.5 * predicted
