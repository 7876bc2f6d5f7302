"""The rules and the constants."""

from __future__ import annotations

import numpy as np
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.directml.targets.precision import precision_faults
from dmlprep.passes.precision import LEVELS, RULES, Selection, convert, select
from tests.passes.precision.graphs import feeds_for, model_of, relative, run
from tests.passes.precision.traps import TRAPS, W

KEPT = {
    "decomposed_layer_norm": {"mean-of-squares"},
    "qdq_13": {"no-fp16-type", "quantised"},
    "position_phase": {"phase"},
    "running_phase": {"phase"},
    "cast_back_to_int": {"integers-in-floats"},
    "resize_computed_scales": {"integers-in-floats"},
    "sequence": {"not-a-tensor"},
    "l2_normalise": {"sum-of-squares", "constant-too-small"},
    "range": {"no-fp16-type"},
    "half_already_in_places": {"own-island"},
    "non_max_suppression": {"no-fp16-type", "coordinates"},
}


@pytest.mark.parametrize("name", KEPT)
def test_rule_finds(name):
    done = convert(model_of(*TRAPS[name]), find_target())
    assert KEPT[name] <= set(done.rules)


def test_rules_say_why():
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    for rule in RULES:
        assert rule.level in LEVELS
        assert len(rule.why) > 20


def test_rules_about_faults_are_the_targets():
    """What the policy keeps beyond schemas and kernels has a row in the target's data, which decides the level."""
    levels = {"always": "fast", "usual": "balanced", "by value": "safe"}
    rows = {row.id: row for row in precision_faults()}
    about = {rule.name: rule for rule in RULES if rule.fault is not None}
    assert set(about) == {name for name, row in rows.items() if row.when in levels}
    for name, rule in about.items():
        assert rule.level == levels[rows[name].when]
        assert rule.why == rows[name].why
        assert not rule.firm
    assert {rule.name for rule in RULES if rule.firm} == {rule.name for rule in RULES} - set(about)


def _norms(count: int, centred: bool) -> str:
    lines, x = [], "x"
    for i in range(count):
        if centred:
            lines.append(f"m{i} = ReduceMean<axes=[-1]>({x}) d{i} = Sub({x}, m{i})")
        start = f"d{i}" if centred else x
        lines.append(
            f"p{i} = Pow({start}, two) v{i} = ReduceMean<axes=[-1]>(p{i}) e{i} = Add(v{i}, eps) q{i} = Sqrt(e{i}) "
            f"n{i} = Div({start}, q{i}) s{i} = Mul(n{i}, g) h{i} = MatMul(s{i}, w)"
        )
        x = f"h{i}"
    body = " ".join(lines)
    return f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) {{ {body} y = Relu({x}) }}'


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("keep_io", [True, False], ids=["keep_io", "half_io"])
@pytest.mark.parametrize(("count", "centred"), [(1, True), (2, True), (3, True), (1, False), (2, False), (3, False)])
def test_decomposed_normalisations_load_at_every_level(count, centred, keep_io, level):
    weights = {**W, "two": np.float32(2), "eps": np.float32(1e-5), "g": np.ones(16, np.float32)}
    model = model_of(_norms(count, centred), weights)
    feeds = feeds_for(model)
    want = run(model, feeds)["y"]
    done = convert(model, find_target(), level=level, keep_io=keep_io)
    assert relative(want, run(model, feeds)["y"]) < 0.01
    if level == "fast":
        assert done.rules == {}


@pytest.mark.parametrize(
    "name", ["lstm", "gru_swapped_axes", "swapped_axes_before_matmul", "rotated_axes_before_matmul"]
)
def test_no_rule_guards_the_cpu_provider_alone(name):
    """DirectML runs these; the proof on the CPU goes to a lower optimisation level where it must."""
    model = model_of(*TRAPS[name])
    feeds = feeds_for(model)
    want = run(model, feeds)["y"]
    assert convert(model, find_target()).rules == {}
    assert relative(want, run(model, feeds)["y"]) < 0.001


def test_a_magnitude_is_no_normalisation():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] re, float[2,8] im) => (float[2,8] y) '
        "{ a = Pow(re, two) b = Pow(im, two) c = Add(a, b) y = Sqrt(c) }",
        {"two": np.float32(2)},
    )
    assert convert(model, find_target()).rules == {}


def test_softmax_over_a_very_long_axis():
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1,SIZE] x) => (float[1,SIZE] y) { y = Softmax(x) }'
    assert convert(model_of(text.replace("SIZE", "70000")), find_target()).rules == {"long-softmax": 1}
    assert convert(model_of(text.replace("SIZE", "50000")), find_target()).rules == {}


def test_convert_overrules_what_is_not_firm():
    model = model_of(*TRAPS["position_phase"])
    done = convert(model, find_target(), convert_anyway={id(n): "test" for n in model.ir.graph})
    assert "phase" not in done.rules
    model = model_of(*TRAPS["range"])
    anyway = select(model, Selection(operators=("Range",)), "convert")
    assert "no-fp16-type" in convert(model, find_target(), convert_anyway=anyway).rules


@pytest.mark.parametrize(("low", "becomes"), [(-1e9, 57344), (-3.4028235e38, 57344), (-1e5, 57344)])
def test_mask_keeps_its_softmax(low, becomes):
    text, weights = TRAPS["where_mask"]
    model = model_of(text, {**weights, "neg": np.float32(low)})
    feeds = feeds_for(model)
    want = run(model, feeds)["y"]
    done = convert(model, find_target())
    assert relative(want, run(model, feeds)["y"]) < 2e-3
    assert done.findings[0].code == "DP401"
    assert done.findings[0].facts["becomes"] == becomes
    stored = model.ir.graph.initializers["neg"].const_value
    assert stored is not None
    assert float(stored.numpy()) == -becomes


def test_a_row_that_is_masked_whole_stays_uniform():
    """x + -1e9 is -1e9 in FP32 for every score; in FP16 the mask must swallow scores in the same way."""
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) '
        "{ a = Add(x, m) y = Softmax(a) }",
        {"m": np.full((2, 16), -1e9, np.float32)},
    )
    feeds = {"x": np.random.default_rng(0).uniform(-15, 15, (2, 16)).astype(np.float32)}
    convert(model, find_target())
    from dmlprep.passes.precision import emulate

    got = run(emulate(model), feeds)["y"]
    np.testing.assert_allclose(got, 1 / 16, rtol=1e-3)


def test_two_masks_leave_room_for_their_sum():
    done = convert(model_of(*TRAPS["two_masks"]), find_target())
    masks = [f for f in done.findings if f.code == "DP401"]
    assert len(masks) == 2
    assert all(f.facts["becomes"] * 2 < 65504 for f in masks)


def test_a_few_flushed_weights_are_one_note():
    weights = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    weights[0, :4] = 1e-9
    text, _ = TRAPS["explicit_cast"]
    done = convert(model_of(text, {"w": weights}), find_target())
    assert [f.code for f in done.findings] == ["DP402"]
    assert done.findings[0].severity == "note"
    assert done.findings[0].facts["flushed"] == 4
    assert not done.kept_fp32


def test_a_flushed_bias_does_no_harm():
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) { y = Gemm(x, w, b) }',
        {**W, "b": np.full(16, 1e-9, np.float32)},
    )
    assert not convert(model, find_target()).kept_fp32
