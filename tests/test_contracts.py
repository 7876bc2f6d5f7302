"""What every pass owes every model: run over each fixture graph, alone, as the pipeline runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import MappedTensor, Model
from dmlprep.metrics import Comparison, find_tolerance, output_groups
from dmlprep.parity import make_feeds
from dmlprep.passes import CATALOG, Bound, Context, Pass, make_pass
from dmlprep.passes.fusions import write_out
from dmlprep.pipeline.transaction import Transactions
from tests.fixtures_index import FIXTURES, Fixture
from tests.fixtures_index import fixture as fixture_of

Array = np.ndarray[Any, Any]

TOLERANCE: dict[Bound, str] = {"exact": "exact", "rounding": "fp32-cpu", "fp16": "fp16-cpu", "few-bits": "few-bits"}

READS_VALUES = {"simplify", "fp16", "weights"}
"""Passes whose work is on values: constants to fold, weights to round. Every other one gets by on shapes."""

SAVES_ALL = "opset"
"""The pass after which every model is saved and run. After the others an unchanged one is not: it would be the same."""

SMALL = 4096
"""Bytes up to which a tensor counts as a constant (axes, sizes, scales) and not as a weight."""


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    off = ["NchwcTransformer"]  # crashes over some Transposes in FP16
    return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"], disabled_optimizers=off)


class InProcess:
    """A ``Runner`` without child processes."""

    def __init__(self, fixture: Fixture, folder: Path) -> None:
        self._fixture = fixture
        self.path = folder / "run.onnx"

    def run(self, model: Model, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        write_out(model).model.save(self.path, force=True)  # the CPU has no kernel for some
        session = _session(self.path)
        names = list(outputs) if outputs is not None else [o.name for o in session.get_outputs()]
        adapted = {
            i.name: np.asarray(feeds[i.name], np.float16) if i.type == "tensor(float16)" else feeds[i.name]
            for i in session.get_inputs()
        }
        return dict(zip(names, session.run(names, adapted), strict=True))

    def feeds(self, model: Model, count: int = 1) -> list[dict[str, Array]]:
        return make_feeds(model, self._fixture.pins, count)


def _options(name: str, fixture: Fixture) -> dict[str, Any]:
    return {"sizes": fixture.pins} if name == "pin" and fixture.pins else {}


def _pass(name: str, fixture: Fixture) -> Pass[Any]:
    module = CATALOG[name].partition(":")[0]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not there yet")
    return make_pass(name, _options(name, fixture))


@cache
def _opened(name: str) -> Model:
    """The model of a fixture, to be copied."""
    return Model.open(fixture_of(name).path)


@cache
def _truth(name: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """A feed and the original's outputs."""
    fixture = fixture_of(name)
    feed = make_feeds(_opened(name), fixture.pins, 1)[0]
    session = _session(fixture.path)
    return feed, dict(zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True))


def _step(steps: Transactions, step: Pass[Any], name: str, runner: InProcess) -> str:
    return steps.run(name, step, Context(find_target(), runner=runner)).outcome


ALL = [pytest.param(name, fixture, id=f"{name}-{fixture.name}") for name in CATALOG for fixture in FIXTURES]


@pytest.mark.parametrize(("name", "fixture"), ALL)
def test_a_pass_keeps_its_contract(
    name: str, fixture: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = _pass(name, fixture)
    runner = InProcess(fixture, tmp_path)
    opened = _opened(fixture.name)
    before = opened.opened
    assert before is not None
    model = opened.copy(before)
    steps = Transactions(model, before)
    read: list[str] = []
    mapped = MappedTensor.map_bytes

    def noted(tensor: MappedTensor, start: int, length: int) -> Any:
        if length > SMALL:
            read.append(f"{tensor.name}: {length} bytes")
        return mapped(tensor, start, length)

    refusal: ModelRefused | None = None
    outcome = ""
    with monkeypatch.context() as patch:
        patch.setattr(MappedTensor, "map_bytes", noted)
        try:
            # The transaction holds the pass to the truth about "changed", to names and types of inputs and outputs, and
            # to the checker: a breach is an InternalError, which fails here.
            outcome = _step(steps, step, name, runner)
        except ModelRefused as refused:
            refusal = refused
    if refusal is not None:
        assert model.snapshot().same_as(before), "a refusal leaves the model as it was"
        assert refusal.what
        assert refusal.fix
        pytest.skip(f"refused: {refusal}")
    if name not in READS_VALUES:
        assert read == [], "weights are read where shapes would do"
    if outcome == "unchanged":
        assert model.snapshot().same_as(before)
    # Pinned dimensions have no names any more, so sizes are given once.
    again = _step(steps, make_pass(name, {} if name == "pin" else _options(name, fixture)), name, runner)
    assert again in ("unchanged", "undone"), "a second run changes nothing"
    if outcome == "unchanged" and name != SAVES_ALL:
        return
    _holds(model, fixture, TOLERANCE[step.bound], runner)


def _holds(model: Model, fixture: Fixture, tolerance: str, runner: InProcess) -> None:
    """The checker passes, ONNX Runtime loads it, and the outputs are those of the original."""
    feed, truth = _truth(fixture.name)
    answers = runner.run(model, feed)
    onnx.checker.check_model(runner.path, full_check=True)
    assert list(answers) == list(truth)
    bound = "quantized" if "qdq" in fixture.traits else tolerance
    comparison = Comparison(output_groups(_opened(fixture.name)), find_tolerance(bound))
    comparison.add(truth, answers)
    assert all(m.passed for m in comparison.results()), comparison.results()
