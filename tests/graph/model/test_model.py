"""What a model says of itself: nodes, bytes, opsets, digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.graph.model import Model
from tests.graph.model.conftest import mlp

WEIGHTS = 4 * (2 * 64 * 64 + 64 * 32 + 64 + 1)
"""Bytes: two square weights, the constant, the bias and one number."""


def test_statistics_count_bodies_and_a_shared_tensor_once(mlp_path: Path) -> None:
    model = Model.open(mlp_path)
    counted = model.statistics()
    assert (counted.nodes, counted.nbytes) == (9, WEIGHTS)
    assert (counted.opsets, counted.ir_version) == ({"": 17}, 8)
    tensor = model.ir.graph.initializers["w"].const_value
    again = ir.Value(name="w2", const_value=tensor)
    model.ir.graph.register_initializer(again)
    assert model.statistics().nbytes == WEIGHTS


def test_the_digest_of_a_file_is_that_of_its_bytes_and_of_a_graph_that_of_its_content(mlp_path: Path) -> None:
    assert Model.open(mlp_path).digest() == hashlib.sha256(mlp_path.read_bytes()).hexdigest()
    one, other = (Model(ir.from_proto(mlp())) for _ in range(2))
    assert one.digest() == other.digest()
    next(iter(other.ir.graph)).name = "renamed"
    assert one.digest() != other.digest()


def test_a_copy_changes_alone_and_shares_the_tensors(mlp_path: Path) -> None:
    model = Model.open(mlp_path)
    before = model.snapshot()
    copy = model.copy()
    assert copy.path == model.path
    assert copy.ir.graph.initializers["w"].const_value is model.ir.graph.initializers["w"].const_value
    copy.ir.graph.initializers["b"].const_value = ir.tensor(np.ones(64, np.float32), name="b")
    next(iter(copy.ir.graph)).name = "renamed"
    assert model.snapshot().same_as(before)


def test_a_model_that_names_no_opset_has_the_first() -> None:
    proto = onnx.parser.parse_model('<ir_version: 8, opset_import: ["local" : 1]> g () => () { }')
    assert Model(ir.from_proto(proto)).opset == 1


def test_a_held_model_is_frozen_once_and_afterwards_as_it_is_then(mlp_path: Path) -> None:
    model = Model.open(mlp_path)
    with model.held():
        before = model.snapshot()
        with model.held():
            assert model.snapshot() is before
    next(iter(model.ir.graph)).name = "renamed"
    assert not model.snapshot().same_as(before)
    assert next(iter(model.copy().ir.graph)).name == "renamed"
