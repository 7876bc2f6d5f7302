"""The search for the smallest FP32 islands."""

from __future__ import annotations

import numpy as np
import pytest

from dmlprep.core.errors import InputError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model.walk import nodes
from dmlprep.passes.precision import Setting, convert, find_islands
from dmlprep.pipeline.runner import CpuRunner
from tests.passes.precision.emulation.test_emulate import OVERFLOW, OVERFLOW_WEIGHTS
from tests.passes.precision.graphs import InProcess, deep, feeds_for, model_of, relative, run
from tests.passes.precision.traps import TRAPS, W


def _fast(model, keep):
    convert(model, find_target(), level="fast", keep=keep)


def test_at_most_three_nodes_for_a_square_in_the_middle():
    model = model_of(OVERFLOW, OVERFLOW_WEIGHTS)
    feeds = [feeds_for(model, seed) for seed in range(2)]
    found = find_islands(model, _fast, InProcess(feeds), feeds, Setting(1e-3))
    assert found.met
    assert not found.whole
    assert set(found.keep) == {"pw", "rv", "a"}
    assert "pw reaches" in found.keep["pw"]
    assert "above 65504" in found.keep["pw"]
    assert found.trials[0].error == pytest.approx(1, abs=0.01)
    assert len(found.trials) == 2
    wanted = set(found.keep)
    convert(model, find_target(), level="fast", keep={id(n): "island" for n in nodes(model.ir) if n.name in wanted})
    assert relative(run(model_of(OVERFLOW, OVERFLOW_WEIGHTS), feeds[0])["y"], run(model, feeds[0])["y"]) <= 1e-3


@pytest.mark.parametrize("planted", [0, 13, 29])
def test_a_planted_overflow_is_found_in_few_trials(planted):
    text, weights = deep(30, planted)
    model = model_of(text, weights)
    feeds = [feeds_for(model, seed) for seed in range(2)]
    found = find_islands(model, _fast, InProcess(feeds), feeds, Setting(5e-3))
    assert found.met
    assert len(found.trials) <= 12
    assert "square" in found.keep
    assert len(found.keep) <= 4


def test_cancellation_is_found_by_its_error():
    """Two large numbers whose difference matters: in range everywhere, and wrong all the same."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16] x) => (float[2,16] y) '
        "{ [mm] a = MatMul(x, w) [up] b = Add(a, c) [down] d = Sub(b, c) [relu] e = Relu(d) [out] y = MatMul(e, w) }"
    )
    model = model_of(text, {**W, "c": np.float32(8000)})
    feeds = [feeds_for(model)]
    found = find_islands(model, _fast, InProcess(feeds), feeds, Setting(5e-3))
    assert found.trials[0].error > 0.5
    assert found.met
    assert {"up", "down"} <= set(found.keep)
    assert len(found.trials) <= 12
    assert not found.whole


def test_a_resize_of_values_beyond_the_range_is_kept():
    """Its scales are FP32 always; it computes in the type of its data."""
    names = {"w": 1 / 8, "big": 60.0}
    rng = np.random.default_rng(0)
    weights = {n: (rng.normal(size=(4, 4, 3, 3)) * scale).astype(np.float32) for n, scale in names.items()}
    weights |= {"sc": np.array([1, 1, 2, 2], np.float32), "s": np.ones(4, np.float32), "b": np.zeros(4, np.float32)}
    tail = " ".join(f"[tail{i}] t{i + 1} = Conv<pads=[1,1,1,1]>(t{i}, w)" for i in range(5))
    model = model_of(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[1,4,8,8] x) => (float[1,4,16,16] y) { '
        "[c0] c0 = Conv<pads=[1,1,1,1]>(x, big) [c1] c1 = Conv<pads=[1,1,1,1]>(c0, big) "
        '[resize] r = Resize<mode="nearest">(c1, , sc) [move] u = Identity(r) '
        f"[norm] t0 = InstanceNormalization(u, s, b) {tail} [end] y = Tanh(t5) }}",
        weights,
    )
    feeds = [feeds_for(model)]
    found = find_islands(model, _fast, InProcess(feeds), feeds, Setting(1e-2))
    assert found.met
    assert len(found.trials) < 5
    assert {"c1", "resize", "move", "norm"} <= found.computing.keys()
    assert not any(name.startswith("tail") for name in found.computing)


def test_nothing_to_keep():
    model = model_of(*TRAPS["variadic"])
    feeds = [feeds_for(model)]
    found = find_islands(model, _fast, InProcess(feeds), feeds, Setting(1e-2))
    assert found.met
    assert found.keep == {}
    assert len(found.trials) == 1
    assert found.recipe_lines() == "keep_nodes = []"


def test_a_search_goes_on_where_it_was(tmp_path):
    text, weights = deep(12, 5)
    model = model_of(text, weights)
    feeds = [feeds_for(model)]
    journal = tmp_path / "islands.json"
    first = InProcess(feeds)
    (tmp_path / "islands.json.part").write_text("mine")
    found = find_islands(model, _fast, first, feeds, Setting(5e-3, journal=journal))
    assert (tmp_path / "islands.json.part").read_text() == "mine"
    again = InProcess(feeds)
    repeated = find_islands(model, _fast, again, feeds, Setting(5e-3, journal=journal))
    assert repeated.keep == found.keep
    assert [t.error for t in repeated.trials] == [t.error for t in found.trials]
    assert again.runs < first.runs
    # what was tried is tried, however many trials are allowed now
    longer = InProcess(feeds)
    assert find_islands(model, _fast, longer, feeds, Setting(5e-3, max_trials=20, journal=journal)).keep == found.keep
    assert longer.runs == again.runs
    # other feeds or another tolerance are another search
    others = [{name: array * np.float32(0.5) for name, array in feed.items()} for feed in feeds]
    moved = InProcess(others)
    find_islands(model, _fast, moved, others, Setting(5e-3, journal=journal))
    assert moved.runs >= first.runs
    other = InProcess(feeds)
    find_islands(model, _fast, other, feeds, Setting(6e-3, journal=journal))
    assert other.runs >= first.runs
    journal.write_text("no journal")
    with pytest.raises(InputError, match="not a journal of an island search"):
        find_islands(model, _fast, other, feeds, Setting(5e-3, journal=journal))
    with pytest.raises(InputError, match="folder does not exist"):
        find_islands(model, _fast, other, feeds, Setting(5e-3, journal=tmp_path / "nowhere" / "islands.json"))


def test_what_cannot_be_met_is_said():
    model = model_of(*TRAPS["explicit_cast"])
    feeds = [feeds_for(model)]
    found = find_islands(model, _fast, InProcess(feeds), feeds, Setting(0.0, max_trials=4))
    assert not found.met or found.error == 0.0
    assert len(found.trials) <= 4


def test_recipe_lines_are_toml():
    import tomllib

    text, weights = deep(4, 2)
    model = model_of(text, weights)
    feeds = [feeds_for(model)]
    found = find_islands(model, _fast, InProcess(feeds), feeds, Setting(5e-3))
    assert tomllib.loads(found.recipe_lines())["keep_nodes"] == list(found.keep)


def test_an_output_behind_nonzero_that_the_proof_compares_counts_in_the_search():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 64] x) => (float[1, 64] y) <float[1] big = {1000.0}, int64[2] row = {1, 64}>
    { e = Exp (x)  a = Add (e, big)  c = Sub (a, big)
      i = NonZero (e)  t = Transpose <perm = [1, 0]> (i)  g = GatherND (c, t)  y = Reshape (g, row) }"""
    model = model_of(text, {})
    feeds = [{"x": np.linspace(0.5, 1, 64, dtype=np.float32)[None]}]
    found = find_islands(model, _fast, InProcess(feeds), feeds, Setting(1e-2))
    assert found.met
    assert found.keep


def test_an_output_that_draws_asks_for_no_node():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 64] x) => (float[1, 64] y, float[1, 64] z)
    { n = RandomNormalLike (x)  y = Add (x, n)  z = Tanh (x) }"""
    model = model_of(text, {})
    feeds = [feeds_for(model, 0)]
    with CpuRunner() as runner:
        found = find_islands(model, _fast, runner, feeds, Setting(1e-2))
    assert found.met
    assert not found.keep
