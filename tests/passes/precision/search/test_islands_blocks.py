"""The search on a model whose front end takes the logarithm of small powers, before a network that FP16 is good for."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context, make_pass
from dmlprep.passes.precision.gain import gained
from tests.passes.precision.graphs import InProcess, model_of

_FRONT = """
    [re] a = Conv<strides = [1, 16]>(x, cosines) [im] b = Conv<strides = [1, 16]>(x, sines)
    [rr] c = Mul(a, a) [ii] d = Mul(b, b) [power] e = Add(c, d) [floor] f = Add(e, least) [log] g = Log(f)
    [low] h = ReduceMin<axes = [1, 2, 3]>(g) [above] i = Sub(g, h) [high] j = ReduceMax<axes = [1, 2, 3]>(i)
    [level] k = Div(i, j) [image] z0 = Transpose<perm = [0, 2, 1, 3]>(k)"""
_LAYERS = 12
_NET = "".join(
    f"[conv{i}] c{i} = Conv<pads = [1, 1, 1, 1]>(z{i}, w{i}, b{i}) [relu{i}] z{i + 1} = Relu(c{i})"
    for i in range(_LAYERS)
)


def _tuner() -> Model:
    """A power spectrum and its logarithm, then a small network with a steep end: as a pitch or keyword detector."""
    rng = np.random.default_rng(1)
    angles = 2 * np.pi * np.outer(np.arange(1, 17), np.arange(64)) / 64
    window = np.hanning(64)[None]
    weights = {
        "cosines": (np.cos(angles) * window)[:, None, None].astype(np.float32),
        "sines": (np.sin(angles) * window)[:, None, None].astype(np.float32),
        "least": np.float32(1e-10),
        "gain": np.float32(30),
    }
    for i in range(_LAYERS):
        ins, outs = (1 if i == 0 else 8), (1 if i == _LAYERS - 1 else 8)
        weights[f"w{i}"] = rng.normal(0, np.sqrt(2 / (9 * ins)), (outs, ins, 3, 3)).astype(np.float32)
        weights[f"b{i}"] = np.zeros(outs, np.float32)
    return model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,1,1024] x) => (float[1,1,16,61] y) '
        f"{{ {_FRONT} {_NET} [steep] s = Mul(z{_LAYERS}, gain) [end] y = Tanh(s) }}",
        weights,
    )


def _tone(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    t = np.arange(1024) / 1024
    tone = np.sin(2 * np.pi * (64 + 100 * seed) * t) * np.exp(-6 * t) * 1e-2 + rng.normal(size=1024) * 1e-6
    return {"x": tone.astype(np.float32).reshape(1, 1, 1, -1)}


def _searched(**options: object) -> tuple[Model, Context]:
    model = _tuner()
    context = Context(find_target(), runner=InProcess([_tone(0), _tone(1)]))
    make_pass("fp16", {"islands": "auto", "policy": "fast", "tolerance": 0.01, **options}).run(model, context)
    return model, context


def test_the_front_end_stays_in_fp32_and_the_network_does_not() -> None:
    model, context = _searched()
    facts = context.facts
    assert (facts.trials[0].error or 0) > 0.05
    assert facts.emulation_error is not None
    assert facts.emulation_error <= 0.01
    kept = set(facts.islands_computing)
    assert {"re", "im", "rr", "ii", "power"} <= kept
    assert "log" in facts.kept_fp32
    assert not kept & {f"conv{i}" for i in range(2, _LAYERS)}
    gain = gained(model)
    assert gain.saved > 0.3
    assert gain.in_fp32 < 0.2
    assert facts.blocks
    # both errors are of the result: the one without the block in FP16 meets the tolerance, and the one with it does not
    errors = [re.search(r"of the result from (\S+) to ([0-9.]+)", why) for why in facts.islands.values()]
    assert {one[1] for one in errors if one} == {f"{facts.emulation_error:.2g}"}
    assert all(one and float(one[2]) > 0.01 for one in errors)
    assert "of its values are below FP16's normal range" in facts.islands["power"]


@pytest.mark.slow
def test_a_search_ends_in_time_with_what_it_has() -> None:
    _, context = _searched(max_seconds=1e-6)
    assert len(context.facts.trials) <= 24
    assert context.facts.emulation_error is not None
    assert context.facts.emulation_error <= 0.01
    _, context = _searched(max_trials=12)
    assert len(context.facts.trials) <= 12
    assert context.facts.emulation_error is not None
    assert context.facts.emulation_error <= 0.01
