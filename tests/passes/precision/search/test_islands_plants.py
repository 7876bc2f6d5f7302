"""The island search on models of the shape of BERT and ConvNeXt with one fault planted."""

from __future__ import annotations

import tomllib

import pytest

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.passes import Context, make_pass
from tests.passes.precision.graphs import InProcess, feeds_for, proto_of
from tests.passes.precision.search.plants import PLANTS
from tests.passes.precision.search.shapes import bert, convnext


def _planted(shape: str, plant: str, depth: float) -> Model:
    model = bert(4, 64, 4, 16) if shape == "bert" else convnext((1, 2, 2), 24, 32)
    PLANTS[plant](model, depth)
    return model


def _run(model: Model, options: dict, feeds) -> Context:
    context = Context(find_target(), runner=InProcess(feeds))
    make_pass("fp16", {"policy": "fast", **options}).run(model, context)
    return context


_CASES = [
    ("bert", "square", 0.5, 1),
    ("convnext", "cancel", 0.6, 3),
    *(
        pytest.param(*one, marks=pytest.mark.slow)
        for one in (
            ("bert", "scores", 0.2, 3),
            ("bert", "softmax", 0.9, 3),
            ("bert", "cancel", 0.4, 3),
            ("convnext", "square", 0.3, 1),
        )
    ),
]


@pytest.mark.parametrize(("shape", "plant", "depth", "most"), _CASES)
def test_one_fault_is_found_in_few_trials(shape, plant, depth, most):
    model = _planted(shape, plant, depth)
    feeds = [feeds_for(model, seed) for seed in range(2)]
    context = _run(model, {"islands": "auto", "tolerance": 0.015}, feeds)
    assert (context.facts.trials[0].error or 0) > 0.015
    assert context.facts.emulation_error is not None
    assert context.facts.emulation_error <= 0.015
    assert len(context.facts.trials) <= 12
    assert 1 <= len(context.facts.islands) <= most
    assert len(context.facts.islands_computing) <= 5
    assert {f.node for f in context.findings if f.code == "DP405"} == set(context.facts.islands_computing)


@pytest.mark.parametrize(("shape", "depth"), [("bert", 0.7), ("convnext", 0.5)])
def test_large_weights_that_are_undone_behind_are_rescaled_without_a_search(shape, depth):
    model = _planted(shape, "weights", depth)
    context = _run(model, {"islands": "auto", "tolerance": 0.015}, [feeds_for(model, seed) for seed in range(2)])
    assert [trial.kept_nodes for trial in context.facts.trials] == [0]
    assert context.facts.emulation_error is not None
    assert context.facts.emulation_error <= 0.015
    assert [f.node for f in context.findings if f.code == "DP408"] == ["grown_weights"]


@pytest.mark.slow
@pytest.mark.parametrize("plant", ["residual", "variance"])
def test_a_fault_at_a_normalisation(plant):
    """What is written out as seven nodes: all that touch the large values stay, and no others."""
    model = _planted("bert", plant, 0.5)
    feeds = [feeds_for(model, seed) for seed in range(2)]
    context = _run(model, {"islands": "auto", "tolerance": 0.015}, feeds)
    assert context.facts.emulation_error is not None
    assert context.facts.emulation_error <= 0.015
    assert len(context.facts.trials) <= 12
    # the seven nodes and what makes their operand; of every node in FP32, for whatever reason
    assert len(context.facts.kept_fp32) <= (8 if plant == "residual" else 4)


@pytest.mark.slow
@pytest.mark.parametrize("plant", ["cancel", "scores", "variance"])
def test_the_recipe_lines_give_the_same_file_without_a_search(plant):
    found = _planted("bert", plant, 0.5)
    feeds = [feeds_for(found, seed) for seed in range(2)]
    context = _run(found, {"islands": "auto", "tolerance": 0.015}, feeds)
    lines = tomllib.loads(context.facts.island_recipe)
    again = _planted("bert", plant, 0.5)
    repeated = _run(again, lines, feeds)
    assert not repeated.facts.trials
    assert proto_of(again).SerializeToString(deterministic=True) == proto_of(found).SerializeToString(
        deterministic=True
    )
    assert repeated.facts.kept_fp32.keys() == context.facts.kept_fp32.keys()


class _Interrupted(InProcess):
    """Ctrl-C at one run."""

    def __init__(self, feeds, at: int) -> None:
        super().__init__(feeds)
        self._at = at

    def run(self, model, feeds, outputs=None):
        if self.runs == self._at:
            raise KeyboardInterrupt
        return super().run(model, feeds, outputs)


@pytest.mark.slow
def test_a_stopped_search_goes_on_where_it_was(tmp_path):
    def search(runner, journal):
        model = _planted("bert", "cancel", 0.5)
        context = Context(find_target(), runner=runner)
        options = {"policy": "fast", "islands": "auto", "tolerance": 0.015, "journal": journal}
        make_pass("fp16", options).run(model, context)
        return model, context

    model = _planted("bert", "cancel", 0.5)
    feeds = [feeds_for(model)]
    whole = InProcess(feeds)
    want, context = search(whole, "")
    journal = str(tmp_path / "journal.json")
    spent = 0
    for at in (whole.runs // 2, 3, 2):
        stopped = _Interrupted(feeds, at)
        with pytest.raises(KeyboardInterrupt):
            search(stopped, journal)
        spent += stopped.runs
    rest = InProcess(feeds)
    got, again = search(rest, journal)
    assert rest.runs < whole.runs
    assert [t.error for t in again.facts.trials] == [t.error for t in context.facts.trials]
    assert again.facts.islands == context.facts.islands
    assert sum(1 for _ in nodes(got.ir)) == sum(1 for _ in nodes(want.ir))
    # what one run had done, the next did not do again, but for the run that was stopped and the FP32 outputs
    assert spent + rest.runs <= whole.runs + 3 * 3
