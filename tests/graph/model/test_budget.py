"""What may be made of a model: counted before it is made, with an error that helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import dmlprep
from dmlprep.core.errors import InputError, ModelRefused, UsageError
from dmlprep.graph.model import Model
from dmlprep.graph.model.budget import BYTES, BYTES_PER_BYTE, NODES, NODES_PER_NODE, Budget, Limits, limited
from fixtures import hostile
from tests.graph.model.conftest import mlp

Maker = Callable[[], onnx.ModelProto]


def _saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_budget_grows_with_the_model() -> None:
    budget = Budget(file_bytes=1000, file_nodes=10)
    assert (budget.most_bytes, budget.most_nodes) == (BYTES + 1000 * BYTES_PER_BYTE, NODES + 10 * NODES_PER_NODE)
    budget.file_bytes = 10**9
    assert budget.most_bytes == BYTES + 10**9 * BYTES_PER_BYTE
    given = Budget(Limits(made_bytes=5, made_nodes=0), file_bytes=1000, file_nodes=10)
    assert (given.most_bytes, given.most_nodes) == (5, 0)


def test_it_counts_until_it_is_spent() -> None:
    budget = Budget(Limits(made_bytes=100, made_nodes=10))
    budget.spend(60, 10, what="tables", where="node a")
    assert budget.affords(40)
    budget.require((5, 8), 1, "a table", "node b")
    with pytest.raises(
        ModelRefused, match=r"node c: a table of shape \[41\] would take 41 bytes: 100 bytes are the limit"
    ) as e:
        budget.require((41,), 1, "a table", "node c")
    assert (e.value.code, e.value.exit_code) == ("DP014", 1)
    with pytest.raises(
        ModelRefused, match="calls would be 3 nodes: 10 nodes are the limit for this model, of which 10 are used"
    ) as e:
        budget.spend(nodes=3, what="calls", where="node d")
    assert "dmlprep --limit made_nodes=13 COMMAND, or made_nodes in [limits] of a recipe" in str(e.value)
    assert (budget.made_bytes, budget.made_nodes) == (60, 10)


def test_a_copy_counts_where_it_takes_the_place() -> None:
    model = Model(ir.from_proto(mlp()))
    other = model.copy()
    other.budget.spend(100, 3, what="x", where="y")
    assert (model.budget.made_bytes, model.budget.made_nodes) == (0, 0)
    model.become(other)
    assert (model.budget.made_bytes, model.budget.made_nodes) == (100, 3)
    assert model.copy().budget.made_bytes == 100


def test_limits_hold_inside_and_not_after(tmp_path: Path) -> None:
    path = _saved(mlp(), tmp_path)
    with limited(Limits(made_bytes=7)), limited(Limits(made_nodes=3)):
        budget = Model.open(path).budget
        assert (budget.most_bytes, budget.most_nodes) == (7, 3)
    assert Model.open(path).budget.most_bytes > BYTES
    with dmlprep.limits(made_bytes=9):
        assert Model.open(path).budget.most_bytes == 9
    with pytest.raises(UsageError, match="invalid limit"), dmlprep.limits(made_bytes=-1):
        pass


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hostile.doubling(40), "549,755,813,888 nodes"),
        (lambda: hostile.doubling(18), "131,072 nodes"),
        (lambda: hostile.wide_function(1000, 200), "200,000 nodes"),
        (hostile.long_names, "1.0 GB"),
        (lambda: hostile.heavy_function(1 << 16, 4000), "1.0 GB"),
        (lambda: hostile.body_argument(24), "nodes"),
        (hostile.sparse, "1.1 GB"),
        (lambda: hostile.sparse(100, 10_000_000), "40.0 MB"),
        (lambda: hostile.sparse(1, 1 << 61), "EB"),
        (lambda: hostile.sparse(as_constants=True), "1.1 GB"),
    ],
)
def test_what_would_become_of_a_file_is_refused_when_it_is_opened(make: Maker, words: str, tmp_path: Path) -> None:
    path = _saved(make(), tmp_path)
    with pytest.raises(ModelRefused, match=words) as caught:
        Model.open(path)
    assert caught.value.code == "DP014"
    assert str(path) in str(caught.value)


def test_functions_count_as_what_they_become(tmp_path: Path) -> None:
    path = _saved(hostile.doubling(5), tmp_path)
    assert Model.open(path).budget.made_nodes == 16
    with dmlprep.limits(made_nodes=15), pytest.raises(ModelRefused, match="16 nodes"):
        Model.open(path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (hostile.self_call, "f::f0 -> f::f0"),
        (lambda: hostile.self_call(3), "f::f0 -> f::f1 -> f::f2 -> f::f0"),
        (lambda: hostile.self_call(2000), "..."),
    ],
)
def test_calls_without_an_end(make: Maker, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Model.open(_saved(make(), tmp_path))
    assert caught.value.code == "DP003"


def test_bodies_inside_bodies_by_calls(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match="nested 60 deep after its functions") as caught:
        Model.open(_saved(hostile.body_argument(60, both=False), tmp_path))
    assert caught.value.code == "DP016"
