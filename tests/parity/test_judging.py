"""Verdicts that know the original's own noise, inputs that prove nothing, and a measure of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dmlprep import api
from dmlprep.core.errors import InputError, UsageError
from dmlprep.parity import Reference
from dmlprep.parity.feeds.files import load_feeds
from dmlprep.parity.judging import JudgingOptions
from dmlprep.report.text import show_verdicts
from tests.parity.comparing import compare
from tests.parity.models import parse

_MAP = """
g (float[1, 1, 32, 32] x) => (float[1, 1, 32, 32] y) <float[1] s = {%s}, float[1] b = {%s}>
{ a = Mul (x, s)  c = Add (a, b)  y = Sigmoid (c) }
"""
_SUM = """
g (float[1, 4096] x) => (float[1, 1] y) <float[1] big = {%s}, int64[1] one = {1}>
{ a = Add (x, big)  c = Sub (a, big)  y = ReduceMean <keepdims = 1> (c) }
"""


def _map(path: Path, scale: float, shift: float) -> Path:
    return parse(_MAP % (scale, shift), path)


def _discs() -> list[dict[str, Any]]:
    rows, columns = np.mgrid[:32, :32]
    discs = [10 - np.hypot(rows - 15.3, columns - 14 - n) for n in range(2)]
    return [{"x": disc[None, None].astype(np.float32)} for disc in discs]


def test_a_map_that_shows_nothing_is_not_proven(tmp_path: Path) -> None:
    original, other = _map(tmp_path / "a.onnx", 1, -12), _map(tmp_path / "b.onnx", 1, -13)
    for candidate in (original, other):
        verdict = compare(original, candidate)
        assert (verdict.outcome, verdict.exit_code) == ("not-proven", 3)
        assert verdict.reason.startswith("output 'y': its largest probability")
        assert [(f.code, f.severity) for f in verdict.findings] == [("DP709", "warning")]
    assert compare(original, original, [{"x": 10 + one["x"]} for one in _discs()]).outcome == "passed"


_CHOSEN = """
g (float[30, 4] x, float[30] s) => (float[n, 4] boxes, float[n] scores) <float t = {0.5}, float f = {%s}>
{ c = Greater (s, t)  b = Mul (x, f)  boxes = Compress <axis = 0> (b, c)  scores = Compress <axis = 0> (s, c) }
"""


def test_rows_that_differ_are_told_once(tmp_path: Path) -> None:
    original, other = (parse(_CHOSEN % factor, tmp_path / f"{factor}.onnx") for factor in (1, 2))
    boxes = np.random.default_rng(0).random((30, 4)).astype(np.float32)
    feeds = [{"x": boxes, "s": np.linspace(0, high, 30, dtype=np.float32)} for high in (1, 2)]
    verdict = compare(original, other, feeds)
    assert verdict.outcome == "failed"
    console = Console(record=True, width=400)
    show_verdicts([verdict], console)
    assert console.export_text().count("as a set") == 1


_SLIP = """
g (float[1, 1, 64, 64] x) => (float[1, 1, 64, 64] y) <float[1] t = {0.3}, float[1] s = {%s}>
{ a = Mul (x, t)  b = Sin (a)  c = Mul (b, s)  d = Add (x, c)  y = Sigmoid (d) }
"""


def _pages(*tops: float) -> list[dict[str, Any]]:
    """Logits of a text detector: a blob of text whose largest probability is ``top``, on -9."""
    rows, columns = np.mgrid[:64, :64]
    blob = np.exp(-((columns - 30) ** 2 + (rows - 20) ** 2) / 60)
    grain = 0.1 * np.random.default_rng(0).normal(size=blob.shape) * (blob < 0.9)
    return [{"x": (-9 + (np.log(p / (1 - p)) + 9) * blob + grain).astype(np.float32)[None, None]} for p in tops]


def test_a_page_without_text_counts_on_the_scale_of_probabilities(tmp_path: Path) -> None:
    original, good = parse(_SLIP % 0, tmp_path / "a.onnx"), parse(_SLIP % 0.07, tmp_path / "b.onnx")
    assert compare(original, good, _pages(0.99, 0.0129), tolerance="fp16-cpu").outcome == "passed"
    assert compare(original, good, _pages(0.99, 0.06, 0.0095), tolerance="fp16-cpu").outcome == "passed"
    # Nothing but such pages proves nothing, unless they agree on their own scale.
    assert compare(original, good, _pages(0.0129), tolerance="fp16-cpu").outcome == "not-proven"
    assert compare(original, original, _pages(0.0129), tolerance="fp16-cpu").outcome == "passed"


def test_a_map_that_shows_something_where_there_is_nothing_fails(tmp_path: Path) -> None:
    original, wrong = parse(_SLIP % 0, tmp_path / "a.onnx"), parse(_SLIP % -9, tmp_path / "b.onnx")
    for pages in (_pages(0.0129), _pages(0.005)):
        assert compare(original, wrong, pages, tolerance="fp16-cpu").outcome == "failed"


def test_a_failure_names_its_feed_and_mixes_no_numbers(tmp_path: Path) -> None:
    original = parse("g (float[4] x) => (float[4] y) { y = Identity (x) }", tmp_path / "a.onnx")
    bent = "g (float[4] x) => (float[4] y) <float[1] c = {0.01}> { a = Mul (x, x)  b = Mul (a, c)  y = Add (x, b) }"
    candidate = parse(bent, tmp_path / "b.onnx")
    for name, top in (("small", 1.0), ("large", 4.0), ("middle", 2.0)):
        np.savez(tmp_path / f"{name}.npz", x=np.array([0, 0.1, 0.2, top], np.float32))
    feeds = load_feeds([tmp_path / f"{name}.npz" for name in ("small", "large", "middle")])
    verdict = compare(original, candidate, feeds, tolerance="fp16-cpu")
    (output,) = verdict.outputs
    assert output.feed == "feed 2 (large.npz)"
    assert output.feed in verdict.reason
    alone = compare(original, candidate, feeds[1:2], tolerance="fp16-cpu").outputs[0]
    assert (output.max_abs, output.cosine, output.out_of_tolerance) == (
        alone.max_abs,
        alone.cosine,
        alone.out_of_tolerance,
    )
    assert alone.feed == ""


@pytest.mark.parametrize(("wrong", "more"), [(1, ""), (2, " (and 1 more output)"), (3, " (and 2 more outputs)")])
def test_a_failure_counts_the_other_outputs_that_fail(wrong: int, more: str, tmp_path: Path) -> None:
    text = "g (float[4] x) => (float[4] a, float[4] b, float[4] c) { %s }"
    nodes = [f"{name} = Neg (x)" for name in "abc"]
    others = [node.replace("Neg", "Exp") if number < wrong else node for number, node in enumerate(nodes)]
    original, other = (
        parse(text % " ".join(one), tmp_path / f"{name}.onnx") for name, one in (("a", nodes), ("b", others))
    )
    reason = compare(original, other).reason
    assert reason.endswith(more)
    assert ("more output" in reason) is bool(more)


def test_what_is_not_finite_fails_on_any_inputs(tmp_path: Path) -> None:
    original = _map(tmp_path / "a.onnx", 1, -12)
    text = _MAP.replace("y = Sigmoid (c)", "d = Sigmoid (c)  e = Sub (x, x)  y = Div (d, e)") % (1, -12)
    assert compare(original, parse(text, tmp_path / "b.onnx")).outcome == "failed"


def test_prepare_neither_passes_nor_refuses_it(tmp_path: Path) -> None:
    source = _map(tmp_path / "a.onnx", 1, -12)
    record = api.prepare(source, out=tmp_path / "out", device="cpu")
    assert record.exit_code == 3
    assert "--feeds" in str(record.error)
    assert str(record.error).startswith("parity on cpu is not proven by these inputs: output 'y': its largest")
    assert str(record.error).count("not proven") == 1
    assert not (tmp_path / "out" / "model.onnx").exists()
    feeds = [{"x": 15 + one["x"]} for one in _discs()]
    assert api.prepare(source, out=tmp_path / "out", device="cpu", feeds=feeds).exit_code == 0


def test_another_output_that_proves_something_makes_it_a_warning(tmp_path: Path) -> None:
    text = """g (float[1, 64] x) => (float[1, 64] y, float[1, 64] z) <float[1] b = {-20.0}>
    { a = Add (x, b)  y = Sigmoid (a)  z = Tanh (x) }"""
    path = parse(text, tmp_path / "m.onnx")
    verdict = compare(path, path)
    assert verdict.outcome == "passed"
    assert [f.code for f in verdict.findings] == ["DP709"]
    wrong = parse(text.replace("Tanh", "Sin"), tmp_path / "w.onnx")
    assert compare(path, wrong).outcome == "failed"


def test_the_originals_own_noise_raises_the_bound_and_is_said(tmp_path: Path) -> None:
    # 1000 eats most bits of x: the last one of x is 6e-5 of what is left.
    original = parse(_SUM % 50.0, tmp_path / "a.onnx")
    feeds = [{"x": np.random.default_rng(seed).uniform(0.5, 1, (1, 4096)).astype(np.float32)} for seed in range(2)]
    with Reference.of(original, feeds) as reference:
        reference.compute()
        noise, why = reference.noise()
        assert why == ""
        assert set(noise) == {"y"}
        assert 0 <= noise["y"] < 1e-3
    verdict = compare(original, original, feeds)
    assert verdict.outputs[0].noise == pytest.approx(noise["y"])
    assert verdict.outputs[0].bound == pytest.approx(max(1e-5, 4 * noise["y"]))


_LONG = {
    "GlobalAveragePool": ("3,1,1", "y = GlobalAveragePool (x)", "y = ReduceMean <axes = [2]> (a)"),
    "ReduceMean": ("1,1,1", "y = ReduceMean (x)", "b = ReduceMean <axes = [2]> (a) y = ReduceMean <axes = [1]> (b)"),
    "InstanceNormalization": (
        "3,512,512",
        "y = InstanceNormalization <epsilon = 0.01> (x, one, zero)",
        "m = ReduceMean <axes = [2]> (a) d = Sub (x, m) q = Mul (d, d) b = ReduceMean <axes = [3]> (q) "
        "v = ReduceMean <axes = [2]> (b) w = Add (v, eps) r = Sqrt (w) y = Div (d, r)",
    ),
}


@pytest.mark.parametrize("operator", _LONG)
def test_what_the_cpu_loses_in_long_sums_is_noise(operator: str, tmp_path: Path) -> None:
    """A mean of 262,144 numbers is off by more than the FP32 tolerance; a mean of means is not."""
    sizes, original, exact = _LONG[operator]
    head = f"g (float[1,3,512,512] x) => (float[1,{sizes}] y) <float[3] one = {{1,1,1}}, float[3] zero = {{0,0,0}}, "
    head += "float[1] eps = {0.01}>"
    page = np.where(np.random.default_rng(0).random((1, 3, 512, 512)) < 0.1, 0.3, 0.9)
    feeds = [{"x": page.astype(np.float32)}]
    long = parse(f"{head} {{ {original} }}", tmp_path / "long.onnx")
    short = parse(f"{head} {{ a = ReduceMean <axes = [3]> (x) {exact} }}", tmp_path / "short.onnx")
    verdict = compare(long, short, feeds)
    assert verdict.outcome == "passed"
    assert verdict.outputs[0].error > 1e-5


def test_indices_in_floats_are_not_noise(tmp_path: Path) -> None:
    text = """g (float[1, 64] x) => (float[1, 64] y) <float[4] table = {0.1, 0.9, -0.5, 0.3}>
    { i = Cast <to = 7> (x)  y = Gather (table, i) }"""
    path = parse(text, tmp_path / "m.onnx")
    verdict = compare(path, path, [{"x": np.arange(64, dtype=np.float32).reshape(1, 64) % 4}])
    assert (verdict.outcome, verdict.outputs[0].noise) == ("passed", 0)


def test_an_original_that_differs_from_itself_proves_nothing(tmp_path: Path) -> None:
    text = """g (float[1, 64] x) => (float[1, 64] y) <float[1] big = {1e6}, float[1] more = {1e4}>
    { a = Add (x, big)  b = Sub (a, big)  c = Mul (b, more)  y = Sin (c) }"""
    path = parse(text, tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    feeds = [{"x": (np.round(rng.uniform(1, 60, (1, 64)) * 16) / 16 + 1 / 32).astype(np.float32)}]
    other = parse(
        text.replace("b = Sub (a, big)", "n = Neg (big)  b = Add (a, n)").replace("{1e4}", "{10000.05}"),
        tmp_path / "o.onnx",
    )
    verdict = compare(path, other, feeds)
    assert verdict.outcome == "not-proven"
    assert "differs from itself" in verdict.reason
    # Equal results need no allowance for the original's noise.
    assert compare(path, path, feeds).outcome == "passed"
    switched_off = compare(path, path, feeds, judging_options=JudgingOptions(noise="off"))
    assert switched_off.outcome == "passed"
    assert "own noise was not measured: parity.noise is off" in str(switched_off.device)


def test_a_steep_mask_passes_and_says_how(tmp_path: Path) -> None:
    original, candidate = _map(tmp_path / "a.onnx", 20, 0), _map(tmp_path / "b.onnx", 20.0, 0.15)
    verdict = compare(original, candidate, _discs(), tolerance="fp16-cpu")
    assert verdict.outcome == "passed"
    (output,) = verdict.outputs
    assert output.max_rel > 0.02
    assert output.error <= output.bound == 0.02
    assert "as a map of probabilities: overlap" in output.note
    assert "overlap >= 0.99" in verdict.tolerance
    assert compare(original, _map(tmp_path / "c.onnx", 20, 3), _discs(), tolerance="fp16-cpu").outcome == "failed"


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({"measures": {"y": "elements"}}, "failed"),
        ({"measures": {"y": "map"}}, "passed"),
        ({"tolerance": "fp16-cpu,overlap=0.99999"}, "failed"),
        ({"tolerance": "fp16-cpu,threshold=0.3/0.7"}, "passed"),
        ({"tolerance": "rel:0.02"}, "failed"),
    ],
)
def test_measures_are_the_users_to_set(tmp_path: Path, options: dict[str, Any], outcome: str) -> None:
    original, candidate = _map(tmp_path / "a.onnx", 20, 0), _map(tmp_path / "b.onnx", 20, 0.15)
    asked = {"tolerance": "fp16-cpu", **options}
    assert api.compare(original, candidate, feeds=_discs(), **asked).outcome == outcome


def test_what_cannot_be_set_is_said(tmp_path: Path) -> None:
    original = _map(tmp_path / "a.onnx", 1, 0)
    with pytest.raises(InputError, match="no output 'z'"):
        api.compare(original, original, measures={"z": "map"})
    for wrong in ("fp16-cpu,iou=0.9", "fp16-cpu,overlap=2", "fp16-cpu,overlap=0.1/0.2", "fp16-cpu,overlap"):
        with pytest.raises(UsageError, match="is not a bound"):
            api.compare(original, original, tolerance=wrong)


def test_few_feeds_near_the_bound_are_said(tmp_path: Path) -> None:
    text = "g (float[1, 64] x) => (float[1, 64] y) <float[1] s = {%s}> { y = Mul (x, s) }"
    original, candidate = parse(text % 1.0, tmp_path / "a.onnx"), parse(text % 1.015, tmp_path / "b.onnx")
    verdict = compare(original, candidate, tolerance="fp16-cpu")
    assert verdict.outcome == "passed"
    assert [f.code for f in verdict.findings] == ["DP711"]
    assert "75 %, 75 %" in verdict.findings[0].message
    assert compare(original, candidate, tolerance="fp16-cpu", seeds=6).findings == []


def test_a_steep_output_beyond_the_bound_at_an_element_is_not_more_than_allowed(tmp_path: Path) -> None:
    original, candidate = _map(tmp_path / "a.onnx", 20, 0), _map(tmp_path / "b.onnx", 20.0, 0.15)
    (said,) = compare(original, candidate, _discs(), tolerance="fp16-cpu").findings
    assert said.code == "DP711"
    assert "output 'y' passes by its kind (classes, map ...), but its worst element is" in said.message
    assert "times the tolerance (one number for each feed)" in said.message
    assert "%" not in said.message


# -- the user's own measure ---------------------------------------------------------------------------------------


def _metric(folder: Path, body: str) -> str:
    path = folder / "own.py"
    path.write_text(f"import numpy as np\ndef own(reference, candidate):\n    {body}\n")
    return f"{path}:own"


def test_it_decides_where_it_is_given(tmp_path: Path) -> None:
    original, wrong = _map(tmp_path / "a.onnx", 1, 0), _map(tmp_path / "b.onnx", 1, 1)
    number = _metric(tmp_path, "return np.abs(reference['y'] - candidate['y']).max()")
    assert api.compare(original, wrong, feeds=_discs()).outcome == "failed"
    passed = api.compare(original, wrong, feeds=_discs(), metric=number, metric_bound=0.5)
    assert (passed.outcome, passed.metric, len(passed.values)) == ("passed", number, 2)
    assert not passed.outputs[0].passed
    failed = api.compare(original, wrong, feeds=_discs(), metric=number, metric_bound=0.1)
    assert failed.outcome == "failed"
    assert "on feed 1, allowed: 0.1" in failed.reason
    assert api.compare(original, original, feeds=_discs(), metric=lambda a, b: (0.0, False)).outcome == "failed"
    with pytest.raises(InputError, match="raised KeyError"):
        api.compare(original, wrong, metric=_metric(tmp_path, "return reference['gone']"), metric_bound=1)


def test_prepare_and_recipes_have_it(tmp_path: Path) -> None:
    source = _map(tmp_path / "a.onnx", 1, 0)
    never = _metric(tmp_path, "return 1.0, False")
    record = api.prepare(source, out=tmp_path / "out", device="cpu", metric=never)
    assert record.exit_code == 1
    assert "own.py:own" in str(record.error)
    (tmp_path / "r.toml").write_text('doc = "d"\n[parity]\nmetric = "own.py:own"\nmetric_bound = 1.0\n')
    record = api.prepare(source, out=tmp_path / "out", device="cpu", recipe=tmp_path / "r.toml")
    assert record.exit_code == 1
    assert "DP712" in [f.code for f in record.findings]
    _metric(tmp_path, "return 1.0")
    record = api.prepare(source, out=tmp_path / "out", device="cpu", recipe=tmp_path / "r.toml")
    assert record.exit_code == 0
    assert record.verdicts[0].values == [1.0, 1.0]


def test_a_search_keeps_no_node_for_an_output_that_proves_nothing(tmp_path: Path) -> None:
    # 2 ** -24 is the smallest number of FP16: what is left of these probabilities there is a digit or none.
    source = _map(tmp_path / "a.onnx", 1, -12)
    recipe = 'doc = "d"\n[step.fp16]\nislands = "auto"\n'
    (tmp_path / "r.toml").write_text(recipe, encoding="utf-8")
    record = api.prepare(source, out=tmp_path / "out", device="cpu", recipe=tmp_path / "r.toml")
    assert record.exit_code == 3
    assert "not proven by these inputs" in str(record.error)
    assert record.steps[-1].outcome == "changed"
    assert not record.steps[-1].facts.islands


_STEPS = """
g (float[1, 64] x) => (float[1, 64] y) <float c = {%s}, float[1] s = {0.0078125}, uint8[1] z = {128}>
{ a = Mul (x, c)  q = QuantizeLinear (a, s, z)  y = DequantizeLinear (q, s, z) }
"""


def test_last_bits_of_an_original_that_quantises(tmp_path: Path) -> None:
    # halves of a step: a last bit decides where each goes
    feed = {"x": ((np.arange(64) - 32 + 0.5) / 128).astype(np.float32)[None]}
    step = 1 / 32
    for text, expected in ((_STEPS % 1, step), (_STEPS % 1.002, 0.0), (_MAP % (1, 0), 0.0)):
        path = parse(text, tmp_path / "m.onnx")
        given = [feed] if "Quantize" in text else _discs()
        with Reference.of(path, given) as reference:
            reference.compute()
            assert reference.last_bits() == pytest.approx(expected, rel=0.1)
        with Reference.of(path, given, judging_options=JudgingOptions(noise="off")) as reference:
            assert reference.last_bits() == 0.0


def test_bytes_of_a_picture_may_round_to_the_next_level_at_a_few_places(tmp_path: Path) -> None:
    text = """g (float[1, 3, 256, 256] x) => (uint8[1, 3, 256, 256] y)
    <float[1] a = {%s}, float[1] b = {%s}, float[1] c = {%s}>
    { p = Mul (x, a)  q = Mul (p, b)  s = Add (q, c)  r = Round (s)  y = Cast <to = 2> (r) }"""
    original = parse(text % (254.0, 1.0, 0.0), tmp_path / "a.onnx")
    feed = {"x": np.random.default_rng(0).random((1, 3, 256, 256), np.float32)}
    for candidate, outcome in (((2.54, 100.0, 1e-4), "passed"), ((254.0, 1.0, 0.1), "failed")):
        verdict = compare(original, parse(text % candidate, tmp_path / "b.onnx"), [feed])
        assert verdict.outcome == outcome, verdict.reason
        assert verdict.outputs[0].max_abs == pytest.approx(1)
