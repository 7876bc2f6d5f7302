"""Shapes that are copied or written anew keep their denotations."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from dmlprep.graph.model.dims import copy_shape, with_dims


def shape() -> ir.Shape:
    return ir.Shape(["batch", 3, None], ["DATA_BATCH", "DATA_CHANNEL", None])


def denotations(of: ir.Shape) -> list[str | None]:
    return [of.get_denotation(axis) for axis in range(len(of))]


def test_a_copy_has_the_denotations_and_its_own_sizes() -> None:
    first = shape()
    first.freeze()
    second = copy_shape(first)
    second[0] = 1
    assert denotations(second) == ["DATA_BATCH", "DATA_CHANNEL", None]
    assert first == shape()
    assert second[0] == 1


@pytest.mark.parametrize(
    ("dims", "kept"), [((1, 3, 8), ["DATA_BATCH", "DATA_CHANNEL", None]), ((1, 3), [None, None]), ((), [])]
)
def test_new_sizes_of_another_rank_have_none(dims: tuple[int, ...], kept: list[str | None]) -> None:
    found = with_dims(shape(), dims)
    assert found.numpy() == dims
    assert denotations(found) == kept


def test_sizes_where_there_was_no_shape() -> None:
    found = with_dims(None, ["n", 4, None])
    assert [d if isinstance(d, int) else d.value for d in found] == ["n", 4, None]
