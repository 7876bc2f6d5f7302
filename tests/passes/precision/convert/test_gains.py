"""The gain of a product bounds its result, and operands of one come near it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.passes.precision.convert.rescale import gain
from dmlprep.passes.precision.fp16 import measure
from tests.passes.precision.graphs import model_of, run


@pytest.mark.parametrize(
    ("body", "operand", "weight", "index"),
    [
        ("y = MatMul (x, w)", (1, 5), (5, 3), 1),
        ("y = MatMul (x, w)", (2, 1, 5), (2, 5, 3), 1),
        ("y = MatMul (w, x)", (5, 1), (3, 5), 0),
        ("y = Gemm <alpha = 0.5> (x, w)", (1, 5), (5, 3), 1),
        ("y = Gemm <transB = 1> (x, w)", (1, 5), (3, 5), 1),
        ("y = Gemm <transA = 1> (w, x)", (5, 1), (5, 3), 0),
        ("y = Mul (x, w)", (3, 5), (3, 5), 1),
        ("y = Div (x, w)", (3, 5), (3, 5), 1),
        ("y = Conv (x, w)", (1, 2, 3, 3), (4, 2, 3, 3), 1),
        ("y = Conv <group = 2> (x, w)", (1, 4, 3, 3), (4, 2, 3, 3), 1),
        ("y = ConvTranspose <strides = [1, 1]> (x, w)", (1, 2, 3, 3), (2, 4, 3, 3), 1),
        ("y = ConvTranspose <group = 2> (x, w)", (1, 4, 3, 3), (4, 2, 3, 3), 1),
    ],
)
def test_no_operand_of_one_makes_more(body: str, operand: tuple[int, ...], weight: tuple[int, ...], index: int) -> None:
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal(weight) + 3 * rng.choice([-1, 1], weight)).astype(np.float32)
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float{list(operand)} x) => (y) {{ {body} }}'
    model = model_of(text, {"w": weights})
    tensor = ir.tensor(weights)
    bound = gain(next(iter(model.ir.graph)), index, tensor, measure(tensor))
    feeds = [rng.choice([-1, 1], operand).astype(np.float32) for _ in range(40)]
    largest = max(float(np.abs(run(model, {"x": one})["y"]).max()) for one in feeds)
    assert largest <= bound * (1 + 1e-5)
    assert largest >= bound * 0.5
