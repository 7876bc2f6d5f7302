"""The module and the source line of nodes: read as exporters write them, bounded, and handed on to new nodes."""

from __future__ import annotations

import time
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from dmlprep.graph.model import Model
from dmlprep.graph.model.sources import SCOPES, TRACE, Sources, hand_on
from dmlprep.record import finding
from dmlprep.record.source import Source
from tests.graph.model.sourced import write

SEQUENTIAL = (
    "['', 'network', 'network.0', 'linear']",
    'File "C:\\Users\\ada\\my nets\\train_model.py", line 96, in forward\n    return self.network(x)\n'
    '  File "C:\\Users\\ada\\Python312\\site-packages\\torch\\nn\\modules\\container.py", line 250, in forward\n'
    "    input = module(input)\n"
    '  File "C:\\Users\\ada\\Python312\\site-packages\\torch\\nn\\modules\\linear.py", line 134, in forward\n'
    "    return F.linear(input, self.weight, self.bias)\n",
)
"""What torch 2.9 writes on the Gemm of a Linear in a Sequential, on Windows."""

LIBRARY = 'File "/venv/lib/python3.11/site-packages/transformers/models/bert/modeling_bert.py", line 260, in forward\n'
HELPER = 'File "/home/ada/torch/net.py", line 7, in forward\nFile "<eval_with_key>.1", line 3, in forward\n'


def _source(scopes: str, trace: str = "", name: str = "n") -> Source | None:
    node = ir.Node("", "Gelu", [], name=name, metadata_props={SCOPES: scopes, TRACE: trace})
    return Sources(ir.Model(ir.Graph([], [], nodes=[node], name="g"), ir_version=9)).of(node)


@pytest.mark.parametrize(
    ("scopes", "trace", "text"),
    [
        (*SEQUENTIAL, "network.0  train_model.py:96"),
        ("['', 'layers.0', 'gelu']", LIBRARY, "layers.0  modeling_bert.py:260"),
        ("['', 'layers.0', 'gelu']", LIBRARY + HELPER, "layers.0  net.py:7"),
        ("['', 'gelu']", "", "None"),
        ("['gelu']", LIBRARY, "modeling_bert.py:260"),
        ("""['', "it's", 'gelu']""", "", "it's"),
        (repr(["", "a\\b", "gelu"]), "", "a\\b"),
        ("['', 'a\x1b[31m\u202eb', 'gelu']", 'File "x\x1b]0;.py", line 1', "a\\x1b[31m\\u202eb  x\\x1b]0;.py:1"),
        ("__import__('os').system('true')", 'File "a.py", line 1e9', "None"),
        ("['" + "a" * 5000 + "', 'gelu']", 'File "' + "a" * 5000 + '", line 1', "None"),
        ("[" * 3000, "", "None"),
        ("['_empty_nn_module_stack_from_metadata_hook', 'node_Shape_0']", "", "None"),
    ],
)
def test_properties_of_torch(scopes: str, trace: str, text: str) -> None:
    assert str(_source(scopes, trace)) == text


def test_hostile_properties_take_no_time() -> None:
    began = time.process_time()
    for scopes, trace in ("[" + "'a\\', " * 600, 'File "' * 4000), ("['" + "\\'" * 1900, 'File "a", line ' * 2000):
        for _ in range(100):
            _source(scopes, trace)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/layers.0/mlp/act/Gelu", "layers.0.mlp.act"),
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("model/dense/MatMul", "model.dense"),
        ("/Add_3", None),
        ("a/" * 600 + "Conv", None),
    ],
)
def test_names_have_modules_where_most_have_that_form(name: str, module: str | None) -> None:
    for others, expected in (["/a/Relu", "/b/Relu"], module), (["Relu_1", "Relu_2"], None):
        every = [ir.Node("", "Gelu", [], name=one) for one in (name, *others)]
        source = Sources(ir.Model(ir.Graph([], [], nodes=every, name="g"), ir_version=9)).of(every[0])
        assert (source and source.module) == expected


def test_new_nodes_have_the_source_of_what_they_replace_or_read(tmp_path: Path) -> None:
    model = Model.open(write(tmp_path / "m.onnx"))
    before = model.snapshot().proto
    graph = model.ir.graph
    gelu = next(node for node in graph if node.name == "node_gelu_1")
    softmax = next(node for node in graph if node.name == "node_softmax_1")
    div = ir.Node("", "Div", [gelu.inputs[0], gelu.inputs[0]], name="div")
    erf = ir.Node("", "Erf", [div.outputs[0]], name="erf")
    cast = ir.Node("", "Cast", [erf.outputs[0]], [ir.AttrInt64("to", 1)], name="cast")
    output = gelu.outputs[0]
    softmax.replace_input_with(0, cast.outputs[0])
    graph.insert_before(gelu, [div, erf])
    graph.insert_after(gelu, cast)
    graph.remove(gelu)
    erf.outputs[0].name, output.name = output.name, "gone"
    dead = ir.Node("", "Relu", [graph.inputs[0]], name="dead")
    graph.append(dead)
    hand_on(model.ir, before)
    sources = Sources(model.ir)
    assert [str(sources.of(node)) for node in (div, erf, cast)] == ["layers.1.mlp.act  model.py:16"] * 3
    assert sources.of(dead) is None
    assert SCOPES not in dead.metadata_props

    located = sources.locate([finding("DP641", "", node="node_gelu_1"), finding("DP641", "", node="erf")], before)
    assert [str(one.source) for one in located] == ["layers.1.mlp.act  model.py:16"] * 2


def test_sources_survive_a_tool_that_drops_properties(tmp_path: Path) -> None:
    model = Model.open(write(tmp_path / "m.onnx"))
    before = model.snapshot().proto
    wanted = [str(Sources(model.ir).of(node)) for node in model.ir.graph]
    for node in model.ir.graph:
        node.metadata_props.clear()
    hand_on(model.ir, before)
    assert [str(Sources(model.ir).of(node)) for node in model.ir.graph] == wanted


def test_a_model_without_sources_gets_none(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    end = [helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "y")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", end[:1], end[1:])), tmp_path / "m.onnx")
    model = Model.open(tmp_path / "m.onnx")
    before = model.snapshot()
    hand_on(model.ir, before.proto)
    assert model.snapshot().same_as(before)
