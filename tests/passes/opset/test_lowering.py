"""What is kept, what is refused, and what the record says."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.core.errors import ModelRefused, RecipeError
from dmlprep.directml.targets import find_target
from dmlprep.passes import Context
from dmlprep.passes.opset import OpsetOptions, OpsetPass
from tests.passes.opset.models import bring, close, opened, operators, opset, parse, reference, run

CONV = """<ir_version: 11, opset_import: ["" : 23], metadata_props: ["author": "me"]>
g (float[1, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[1, 4, 6, 6] y)
{ [c] t = Conv (x, w) [r] y = Relu (t) }"""


def test_a_node_that_only_took_more_types_is_relabelled() -> None:
    lowered, context = bring(parse(CONV), 17)
    assert (opset(lowered), operators(lowered)) == (17, ["Conv", "Relu"])
    assert [n.name for n in lowered.graph.node] == ["c", "r"]
    assert {p.key: p.value for p in lowered.metadata_props} == {"author": "me"}
    assert (context.facts.opset_before, context.facts.opset_after) == (23, 17)
    (found,) = context.findings
    assert (found.code, found.facts["kind"], found.facts["nodes"]) == ("DP101", "relabelled", 1)


def test_without_a_version_the_target_decides() -> None:
    assert opset(bring(parse(CONV), "auto")[0]) == find_target().dml_opset
    old = CONV.replace('"" : 23', '"" : 14')
    assert opset(bring(parse(old), "auto")[0]) == 14, "a model below the target's opset stays where it is"


def test_a_second_run_changes_nothing() -> None:
    model, context = opened(parse(CONV)), Context(find_target())
    assert OpsetPass(OpsetOptions(version=17)).run(model, context)
    assert not OpsetPass(OpsetOptions(version=17)).run(model, context)


def test_the_ir_version_is_clamped() -> None:
    lowered, context = bring(parse(CONV.replace("ir_version: 11", "ir_version: 14")), 17)
    assert lowered.ir_version == find_target().max_ir
    assert "DP103" in [f.code for f in context.findings]


@pytest.mark.parametrize(
    ("node", "word"),
    [
        ("y = StringConcat (x, x)", "joins strings"),
        ("y = RegexFullMatch <pattern: string = 'a'> (x)", "regular expressions"),
    ],
)
def test_a_node_without_an_equal_form_is_refused_by_name(node: str, word: str) -> None:
    output = "bool[2]" if "Regex" in node else "string[2]"
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (string[2] x) => ({output} y) {{ [here] {node} }}'
    model = opened(parse(text.replace("'", '"')))
    before = model.snapshot()
    with pytest.raises(ModelRefused) as refused:
        OpsetPass(OpsetOptions(version=17)).run(model, Context(find_target()))
    assert refused.value.code == "DP102"
    assert "'here'" in refused.value.where
    for part in ("opset 20", "opset 17", word, node.split()[2]):
        assert part in refused.value.what
    assert model.snapshot().same_as(before), "a refusal leaves the model as it was"


def test_types_that_the_older_version_lacks_compute_in_a_wider_one() -> None:
    text = '<ir_version: 8, opset_import: ["" : 14]> g (int8[4] x, int8[4] z) => (int8[4] y) { y = Add (x, z) }'
    lowered, _ = bring(parse(text), 13)
    assert operators(lowered) == ["Cast", "Cast", "Add", "Cast"]
    feeds = {"x": np.array([100, -128, 3, 127], np.int8), "z": np.array([100, -1, 4, 127], np.int8)}
    assert run(lowered, feeds)[0].tolist() == (feeds["x"] + feeds["z"]).tolist()


@pytest.mark.parametrize("axes", ["Gather (two, five)", "Reshape (two, five)", "Expand (two, huge)"])
def test_axes_that_cannot_be_computed_are_left_to_the_runtime(axes: str) -> None:
    """An index outside its data, a shape that does not fit, and one of 8 TB: ONNX Runtime says what is wrong."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]> g (float[2, 3] x) => (float y)
    <int64[2] two = {{0, 1}}, int64[1] five = {{5}}, int64[2] huge = {{1000000000000, 2}}>
    {{ axes = {axes}
       y = ReduceMax <keepdims: int = 0> (x, axes) }}"""
    lowered, _ = bring(parse(text), 17)
    assert axes.split(maxsplit=1)[0] in operators(lowered)


def test_subgraphs_are_lowered_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (bool c, float[2, 3] x) => (float[2, 1] y) {
      y = If (c) <
        then_branch = t () => (float[2, 1] a) { ax = Constant <value_ints = [1]> () a = ReduceMax (x, ax) },
        else_branch = e () => (float[2, 1] b) { bx = Constant <value_ints = [1]> () h = Gelu (x) b = ReduceMin (h, bx) }
      > }"""
    proto = parse(text)
    lowered, _ = bring(proto, 17)
    x = np.array([[1, 2, 3], [-1, 0, 1]], np.float32)
    for c in (True, False):
        close(run(lowered, {"c": np.array(c), "x": x}), run(proto, {"c": np.array(c), "x": x}))
    inner = {n.op_type for a in lowered.graph.node[0].attribute for n in a.g.node}
    assert "Gelu" not in inner


FUNCTION = """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
g (float[2, 6] x) => (float[2, 6] y) {{ t = my.f (x) y = my.f (t) }}
<domain: "my", opset_import: ["" : {version}]>
f (a) => (b) {{ {body} }}"""


def test_functions_stay_functions_at_the_new_opset() -> None:
    body = "two = Constant <value: tensor = float {2}> () s = Softplus (a) r = Round (s) b = Mul (r, two)"
    proto = parse(FUNCTION.format(version=22, body=body))
    lowered, _ = bring(proto, 17)
    assert operators(lowered) == ["f", "f"]
    assert [o.version for o in lowered.functions[0].opset_import if o.domain == ""] == [17]
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 6)
    close(run(lowered, {"x": x}), reference(proto, {"x": x}))


def test_a_function_whose_nodes_need_types_is_inlined() -> None:
    proto = parse(FUNCTION.format(version=20, body="b = Gelu (a)"))
    lowered, context = bring(proto, 17)
    assert not lowered.functions
    assert "f" not in operators(lowered)
    assert context.facts.nodes_changed["inlined"] == 2
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 6)
    close(run(lowered, {"x": x}), run(proto, {"x": x}))


IN_FUNCTION = {
    "MaxPool": ("float[1, 2, 7, 7] x", "b = MaxPool <kernel_shape = [2, 2], strides = [3, 3], ceil_mode = 1> (a)"),
    "Resize": (
        "float[1, 1, 6, 6] x",
        "s = Constant <value: tensor = float[4] {1, 1, 0.5, 0.5}> () "
        'b = Resize <mode = "linear", antialias = 1> (a, , s)',
    ),
    "DFT over an axis": (
        "float[2, 6] x",
        "s = Constant <value_ints = [2, -1, 1]> () r = Reshape (a, s) b = DFT <axis = 1> (r)",
    ),
    "DFT of numbers of unknown kind": (
        "float[2, 6] x",
        "s = Constant <value_ints = [2, 6, -1]> () r = Reshape (a, s) b = DFT <axis = 1> (r)",
    ),
}


@pytest.mark.parametrize("name", IN_FUNCTION)
def test_a_function_whose_nodes_need_sizes_is_inlined(name: str) -> None:
    """The sizes are those of the call, so the body says nothing of them."""
    x, body = IN_FUNCTION[name]
    version, rank = (17, "a, b, c") if name.startswith("DFT") else (22, "a, b, c, d")
    proto = parse(
        f"""<ir_version: 10, opset_import: ["" : {version}, "my" : 1]> g ({x}) => (float[{rank}] y) {{ y = my.f (x) }}
        <domain: "my", opset_import: ["" : {version}]> f (a) => (b) {{ {body} }}"""
    )
    lowered, _ = bring(proto, 16)
    assert not lowered.functions
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": np.random.default_rng(1).normal(size=shape).astype(np.float32)}
    close(run(lowered, feed), run(proto, feed))


def test_other_domains_are_left_alone() -> None:
    text = """<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1, "ai.onnx.ml" : 3]>
    g (float[2, 3] x) => (float[2, 3] y) { t = com.microsoft.Gelu (x) y = Elu (t) }"""
    proto = parse(text)
    lowered, context = bring(proto, 20)
    assert (opset(lowered), opset(lowered, "com.microsoft"), opset(lowered, "ai.onnx.ml")) == (20, 1, 3)
    assert context.facts.nodes_changed["left alone"] == 1


def test_an_unknown_type_that_matters_is_refused() -> None:
    text = """<ir_version: 8, opset_import: ["" : 14, "my" : 1]>
    g (int8[2] x) => (int8[2] y) { t = my.Op (x) s = Add (t, t) y = my.Op (s) }"""
    with pytest.raises(ModelRefused, match="unknown"):
        bring(parse(text), 13)


def test_denotations_and_weights_are_kept() -> None:
    proto = parse(CONV.replace("[4, 3, 3, 3]", "[16, 3, 3, 3]").replace("[1, 4, 6, 6]", "[1, 16, 6, 6]"))
    proto.graph.input.pop()
    weights = np.random.default_rng(0).standard_normal((16, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    proto.graph.input[0].type.tensor_type.shape.dim[1].denotation = "DATA_CHANNEL"
    model = opened(proto)
    tensor = model.ir.graph.initializers["w"].const_value
    OpsetPass(OpsetOptions(version=17)).run(model, Context(find_target()))
    assert model.ir.graph.initializers["w"].const_value is tensor
    lowered = ir.to_proto(model.ir)
    assert lowered.graph.input[0].type.tensor_type.shape.dim[1].denotation == "DATA_CHANNEL"


def test_new_nodes_are_named_after_the_old_and_typed() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[n, 4] x) => (float[n, 4] y) { [act] y = Gelu (x) }'
    lowered, _ = bring(parse(text), 17)
    assert all(n.name.startswith("act/") for n in lowered.graph.node)
    assert len({n.name for n in lowered.graph.node}) == len(lowered.graph.node)
    typed = {v.name: v.type.tensor_type.elem_type for v in lowered.graph.value_info}
    inner = {o for n in lowered.graph.node for o in n.output} - {"y"}
    assert inner <= set(typed)
    assert "Constant" not in operators(lowered)


def test_weights_listed_as_inputs_become_constants() -> None:
    text = """<ir_version: 3, opset_import: ["" : 12]>
    g (float[2, 3] x, int64[2] shape) => (float[3, 2] y) <int64[2] shape = {3, 2}> { y = Reshape (x, shape) }"""
    lowered, context = bring(parse(text), 13)
    assert [i.name for i in lowered.graph.input] == ["x"]
    assert context.facts.weights_not_inputs == 1
    assert lowered.ir_version >= 4


def test_auto_asks_placement_and_says_so() -> None:
    model = opened(parse(CONV))
    context = Context(find_target(), choose_opset=lambda m, frozen: m.opset - 4)
    OpsetPass(OpsetOptions(version="auto")).run(model, context)
    assert (model.opset, context.facts.opset_chosen_by) == (19, "placement")
    alone = Context(find_target())
    OpsetPass(OpsetOptions(version="auto")).run(opened(parse(CONV)), alone)
    assert (alone.facts.opset_after, alone.facts.opset_chosen_by) == (find_target().dml_opset, "target")


@pytest.mark.parametrize("version", [10, 27, 40])
def test_an_opset_out_of_reach_is_refused(version: int) -> None:
    with pytest.raises(RecipeError, match="outside"):
        bring(parse(CONV), version)
