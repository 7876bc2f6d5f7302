"""Values that are pinned for inputs: which fit, and what the model says of them afterwards."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.core.errors import UsageError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.pinned import pinned_array, pinned_values
from dmlprep.passes import Context
from dmlprep.passes.pin import PinOptions, PinPass


def model(inputs: str, body: str = "y = Identity (x)") -> Model:
    text = f'<ir_version: 8, opset_import: ["" : 17]>\ng (float[2] x, {inputs}) => (float[2] y) {{ {body} }}'
    return Model(ir.from_proto(onnx.parser.parse_model(text)))


def pin(m: Model, **options: object) -> Context:
    context = Context(find_target())
    PinPass(PinOptions(**options)).run(m, context)  # type: ignore[arg-type]
    return context


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        ("int64", 16000, np.array(16000)),
        ("int64[1]", 3, np.array([3])),
        ("int32[2]", [1, 2], np.array([1, 2], np.int32)),
        ("int64[n]", [1, 2], np.array([1, 2])),
        ("float", 1, np.array(1, np.float32)),
        ("float16[2, 1]", [[0.5], [2]], np.array([[0.5], [2]], np.float16)),
        ("bool", True, np.array(True)),
        ("string", "de", np.array("de", object)),
    ],
)
def test_values_that_fit(kind: str, given: object, wanted: np.ndarray) -> None:
    array = pinned_array(model(f"{kind} v").ir.graph.inputs[1], given)  # type: ignore[arg-type]
    assert array.dtype == wanted.dtype
    np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("int64", 0.5, "whole numbers"),
        ("int64", True, "whole numbers"),
        ("int64", "de", "whole numbers"),
        ("int8", 200, "outside the range of INT8"),
        ("uint8", -1, "outside the range of UINT8"),
        ("float16", 1e6, "outside the range of FLOAT16"),
        ("float", "de", "pass numbers"),
        ("bool", 1, "true or false"),
        ("string", 3, "is text"),
        ("int64[2]", [1, 2, 3], r"its shape is \[3\], the input's \[2\]"),
        ("int64[n]", 1, "one number fills only an input of fixed sizes"),
        ("float[2, 4096]", 1.0, "too large"),
        ("int64[2, 2]", [[1, 2], [3]], "rows have different lengths"),
        ("seq(float[2])", 1, "not a tensor"),
    ],
)
def test_values_that_do_not_fit(kind: str, given: object, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        pinned_array(model(f"{kind} v").ir.graph.inputs[1], given)  # type: ignore[arg-type]
    assert caught.value.code == "DP208"


def test_an_input_that_no_value_fits_gets_no_advice_to_pass_another_value() -> None:
    for kind, given in (("float[2, 4096]", 1.0), ("seq(float[2])", 1), ("int4[2]", [1, 2])):
        with pytest.raises(UsageError) as caught:
            pinned_array(model(f"{kind} v").ir.graph.inputs[1], given)
        assert caught.value.fix.startswith("do not pin")


def test_a_value_gives_its_input_a_shape() -> None:
    m = model("int64[k] v, int64[k, 2] w", "y = Identity (x)")
    pin(m, values={"v": [1, 2, 3]})
    assert [list(v.shape or ()) for v in m.ir.graph.inputs[1:]] == [[3], [3, 2]]
    assert pinned_values(m.ir) == {"v": [1, 2, 3]}


def test_values_of_two_steps_are_noted_together() -> None:
    m = model("int64 v, bool w")
    pin(m, values={"v": 1})
    pin(m, values={"w": True}, drop=True)
    assert pinned_values(m.ir) == {"v": 1, "w": True}
    assert [v.name for v in m.ir.graph.inputs] == ["x", "v"]


def test_a_pinned_value_cannot_change() -> None:
    m = model("int64 v")
    pin(m, values={"v": 1})
    with pytest.raises(UsageError, match="pinned to 1, and cannot become 2"):
        pin(m, values={"v": 2})


def test_an_input_that_is_an_output_cannot_go() -> None:
    m = model("float[2] v")
    m.ir.graph.outputs.append(m.ir.graph.inputs[1])
    with pytest.raises(UsageError, match="is also an output"):
        pin(m, values={"v": [1.0, 2.0]}, drop=True)
    pin(m, values={"v": [1.0, 2.0]})
    assert m.ir.graph.outputs[1] is m.ir.graph.inputs[1]


def test_a_default_that_callers_could_replace_is_pinned() -> None:
    m = Model(
        ir.from_proto(
            onnx.parser.parse_model(
                '<ir_version: 8, opset_import: ["" : 17]>\n'
                "g (float[2] x, float[2] v = {1.0, 2.0}) => (float[2] y) { y = Mul (x, v) }"
            )
        )
    )
    pin(m, values={"v": [3.0, 4.0]}, drop=True)
    assert [v.name for v in m.ir.graph.inputs] == ["x"]
    (tensor,) = [v.const_value for v in m.ir.graph.initializers.values()]
    assert tensor is not None
    assert tensor.numpy().tolist() == [3.0, 4.0]


def test_metadata_that_is_not_ours_is_no_value() -> None:
    m = model("int64 v")
    m.ir.metadata_props["dmlprep.pinned"] = "{v"
    assert pinned_values(m.ir) == {}
    m.ir.metadata_props["dmlprep.pinned"] = '{"v": 1, "rows": [[1], [2, 3]], "none": null}'
    assert pinned_values(m.ir) == {"v": 1}
