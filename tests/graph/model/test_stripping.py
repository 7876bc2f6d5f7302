"""An exporter's notes are cut out of a model file, and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dmlprep.graph.model import Model
from dmlprep.graph.model.stripping import Stripped, strip
from tests.graph.model.sourced import write, write_transformer

WEIGHTS = np.arange(3000, dtype=np.float32)
KEPT = {"dmlprep.frame": "{}", "names": "{0: 'cat'}"}


def _note(message: object, *, doc: str = "written by ada", **properties: str) -> None:
    message.doc_string = doc  # type: ignore[attr-defined]
    for key, value in {"pkg.torch.onnx.stack_trace": "/home/ada/net.py", **properties}.items():
        message.metadata_props.add(key=key, value=value)  # type: ignore[attr-defined]


def _graph(name: str, *, noted: bool, doc: str) -> onnx.GraphProto:
    """A graph with a large initializer, float_data, a Constant and a subgraph's value; with notes everywhere."""
    tensors = [numpy_helper.from_array(WEIGHTS + i, f"{name}_w{i}") for i in range(2)]
    tensors.append(helper.make_tensor(f"{name}_f", TensorProto.FLOAT, [3000], list(map(float, WEIGHTS))))
    nodes = [
        helper.make_node("Constant", [], [f"{name}_c"], value=numpy_helper.from_array(WEIGHTS, "inside")),
        helper.make_node("Sum", [f"{name}_w0", f"{name}_w1", f"{name}_f", f"{name}_c"], [f"{name}_y"], f"{name}_sum"),
    ]
    value = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [3000])
    inner = helper.make_tensor_value_info(f"{name}_c", TensorProto.FLOAT, [3000])
    graph = helper.make_graph(nodes, name, [], [value], tensors, value_info=[inner])
    if noted:
        for one in (graph, *graph.initializer, *graph.output, *graph.value_info):
            _note(one, doc=doc)
        for node in graph.node:
            _note(node, doc=doc, namespace="net.Net")
            for attribute in node.attribute:
                attribute.doc_string = doc
                _note(attribute.t, doc=doc)
    graph.node[1].metadata_props.add(key="layer_ann", value="gpu")
    return graph


def _model(path: Path, *, noted: bool, doc: str = "written by ada") -> Path:
    graph = _graph("main", noted=noted, doc=doc)
    graph.input.append(helper.make_tensor_value_info("yes", TensorProto.BOOL, []))
    branches = {f"{name}_branch": _graph(name, noted=noted, doc=doc) for name in ("then", "else")}
    graph.node.append(helper.make_node("If", ["yes"], ["z"], **branches))
    graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [3000]))
    body = [helper.make_node("Relu", ["a"], ["b"])]
    function = helper.make_function("own", "Act", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    graph.node.append(helper.make_node("Act", ["z"], ["t"], domain="own"))
    if noted:
        _note(function, doc=doc)
        _note(function.node[0], doc=doc)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=10)
    if noted:
        _note(model, doc=doc)
    for key, value in KEPT.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, path)
    return path


def _write(stripped: Stripped, path: Path) -> Path:
    path.write_bytes(b"".join(stripped.chunks()))
    assert path.stat().st_size == stripped.nbytes
    return path


@settings(max_examples=25, deadline=None)
@given(length=st.one_of(st.integers(0, 300), st.integers(16_000, 17_000), st.just(1 << 21)))
def test_only_notes_are_cut_out(length: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("notes")
    noted = _model(folder / "noted.onnx", noted=True, doc="x" * length)
    stripped = strip(noted)
    # In each graph: itself, 3 initializers, 2 values, 2 nodes (2 entries each), a Constant's attribute and its tensor.
    assert stripped.docs == (3 * 10 + 3 if length else 0)
    assert stripped.entries == 3 * 11 + 3
    written = _write(stripped, folder / "written.onnx")
    assert stripped.original.hexdigest() == hashlib.sha256(noted.read_bytes()).hexdigest()
    if length:
        assert written.read_bytes() == _model(folder / "plain.onnx", noted=False).read_bytes()
    assert stripped.is_same_as(written)


def test_a_model_without_notes_stays_as_it_is(tmp_path: Path) -> None:
    plain = _model(tmp_path / "plain.onnx", noted=False)
    stripped = strip(plain)
    assert (stripped.entries, stripped.docs) == (0, 0)
    assert _write(stripped, tmp_path / "written.onnx").read_bytes() == plain.read_bytes()


def test_every_other_byte_counts(tmp_path: Path) -> None:
    stripped = strip(_model(tmp_path / "noted.onnx", noted=True))
    content = _write(stripped, tmp_path / "written.onnx").read_bytes()
    for wrong in (
        content.replace(WEIGHTS.tobytes(), np.flip(WEIGHTS).tobytes(), 1),
        content.replace(b"Relu", b"Selu"),
        content.replace(b"layer_ann", b"layer_Ann"),
        content[: content.index(b"names")] + b"Names" + content[content.index(b"names") + 5 :],
    ):
        assert wrong != content
        (tmp_path / "wrong.onnx").write_bytes(wrong)
        assert not stripped.is_same_as(tmp_path / "wrong.onnx")


@pytest.mark.parametrize("writer", [write, write_transformer])
def test_torch_s_properties_are_most_of_a_small_model(writer: object, tmp_path: Path) -> None:
    noted = writer(tmp_path / "noted.onnx")  # type: ignore[operator]
    stripped = strip(noted)
    written = _write(stripped, tmp_path / "written.onnx")
    proto = onnx.load(noted)
    assert stripped.entries == 4 * len(proto.graph.node)
    for node in proto.graph.node:
        del node.metadata_props[:]
    assert onnx.load(written) == proto
    assert stripped.is_same_as(written)
    assert b"ada" not in written.read_bytes()
    assert Model.open(written).statistics() == Model.open(noted).statistics()


def test_texts_have_their_place(tmp_path: Path) -> None:
    node = helper.make_node("Load", ["x"], ["y"], "Load_1", file="a/b.txt", domain="own")
    value = [helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in ("x", "y")]
    words = helper.make_tensor("words", TensorProto.STRING, [2], [b"cat", b"dog"])
    model = helper.make_model(helper.make_graph([node], "g", value[:1], value[1:], [words]), producer_name="torch")
    onnx.save(model, tmp_path / "m.onnx")
    texts = {text.value: text for text in strip(tmp_path / "m.onnx").texts()}
    assert (texts["a/b.txt"].place, texts["a/b.txt"].is_listed) == ("node 'Load_1', attribute 'file'", False)
    assert (texts["dog"].place, texts["dog"].is_listed) == ("graph 'g', tensor 'words'", True)
    assert texts["torch"].place == "producer_name"
