"""Denote: what the record says of free dimensions, and that denotations outlive other steps and saving."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from dmlprep.core.errors import UsageError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context, make_pass

IMAGE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 3, height, width] x) => (float[batch, 3, height, width] y) {
  a = Identity (x)
  y = Relu (a)
}"""


def run(model, name, **options):
    context = Context(find_target())
    changed = make_pass(name, options).run(model, context)
    return changed, context


def image():
    return Model(ir.from_proto(onnx.parser.parse_model(IMAGE)))


def denotations(proto, name="x"):
    value = next(v for v in [*proto.graph.input, *proto.graph.output] if v.name == name)
    return [d.denotation for d in value.type.tensor_type.shape.dim]


def test_the_record_lists_both_calls_for_each_free_dimension():
    _, context = run(image(), "denote")
    rows = {row.name: row for row in context.facts.free_dimensions}
    assert list(rows) == ["batch", "height", "width"]
    assert rows["batch"].python == [
        'options.add_free_dimension_override_by_name("batch", size)',
        'options.add_free_dimension_override_by_denotation("DATA_BATCH", size)',
    ]
    assert rows["batch"].c == [
        'api->AddFreeDimensionOverrideByName(options, "batch", size)',
        'api->AddFreeDimensionOverride(options, "DATA_BATCH", size)',
    ]
    assert [f.code for f in context.findings] == ["DP205"] * 3
    assert "sets 'width' to the same size" in context.findings[1].message


def test_the_calls_do_what_they_say():
    model = image()
    _, context = run(model, "denote", dims={"x:2": "IMAGE_HEIGHT", "x:3": "IMAGE_WIDTH"})
    sizes = {"batch": 2, "height": 5, "width": 7}
    for way in (0, 1):
        options = ort.SessionOptions()
        for row in context.facts.free_dimensions:
            call, _, rest = row.python[way].removeprefix("options.").partition("(")
            getattr(options, call)(rest.split('"')[1], sizes[row.name])
        session = ort.InferenceSession(ir.to_proto(model.ir).SerializeToString(), options)
        assert session.get_inputs()[0].shape == [2, 3, 5, 7]


def test_denotations_outlive_pin_simplify_and_saving(tmp_path):
    model = image()
    run(model, "denote")
    before = denotations(ir.to_proto(model.ir))
    assert before == ["DATA_BATCH", "DATA_CHANNEL", "DATA_FEATURE", "DATA_FEATURE"]
    assert run(model, "pin", sizes={"height": 4, "batch": 2})[0]
    assert run(model, "simplify")[0]
    model = model.copy()
    model.save(tmp_path / "m.onnx")
    saved = onnx.load(tmp_path / "m.onnx")
    assert denotations(saved) == before
    assert denotations(saved, "y") == ["DATA_BATCH", "", "DATA_FEATURE", "DATA_FEATURE"]


def test_a_static_model_has_no_free_dimensions():
    model = image()
    run(model, "pin", sizes={"batch": 1, "height": 2, "width": 2})
    _, context = run(model, "denote")
    assert context.facts.free_dimensions == []
    assert context.findings == []


@pytest.mark.parametrize("word", ["", "two\nlines", "x" * 200])
def test_what_is_no_word_is_refused(word):
    with pytest.raises(UsageError, match="is not a denotation"):
        run(image(), "denote", dims={"batch": word})


def test_quotes_in_names_are_escaped():
    proto = onnx.parser.parse_model(IMAGE)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = 'a"b'
    _, context = run(Model(ir.from_proto(proto)), "denote")
    assert context.facts.free_dimensions[0].python[0].endswith('by_name("a\\"b", size)')
