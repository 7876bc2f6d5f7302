"""Which outputs are rows that TopK chose, and how they lie."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from dmlprep.graph.model import Model
from dmlprep.metrics.groups import output_groups
from dmlprep.portable.comparison import OutputGroup
from dmlprep.portable.rows import ranked_rows

_DETECTOR = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 30] scores, float[2, 5, 30] boxes) => (float[2, K] best, float[2, 5, K] chosen, float[2, 30] all)
<int64[1] k = {7}, int64[1] one = {1}, int64[3] wide = {2, 5, 7}>
{
    best, index = TopK(scores, k)
    behind = Unsqueeze(index, one)
    everywhere = Expand(behind, wide)
    chosen = GatherElements<axis = 2>(boxes, everywhere)
    all = Relu(scores)
}
"""


def test_what_one_topk_chooses_belongs_together() -> None:
    model = Model(ir.from_proto(parser.parse_model(_DETECTOR)))
    assert output_groups(model) == [OutputGroup(("all",)), OutputGroup(("best", "chosen"), "ranked", 7)]


def test_the_number_of_rows_may_come_from_the_shape_alone() -> None:
    text = _DETECTOR.replace("int64[1] k = {7}, ", "").replace("boxes)", "boxes, int64[1] k)").replace("2, K]", "2, 7]")
    groups = output_groups(Model(ir.from_proto(parser.parse_model(text))))
    assert groups == [OutputGroup(("all",)), OutputGroup(("best", "chosen"), "ranked", 7)]


def test_the_best_one_alone_is_no_ranking() -> None:
    model = Model(ir.from_proto(parser.parse_model(_DETECTOR.replace("{7}", "{1}").replace("5, 7}", "5, 1}"))))
    assert output_groups(model) == [OutputGroup((name,)) for name in ("best", "chosen", "all")]


def test_rows_of_any_layout() -> None:
    best = np.arange(14.0).reshape(2, 7)
    chosen = np.arange(70.0).reshape(2, 5, 7)
    rows = ranked_rows(("best", "chosen"), 7, {"best": best, "chosen": chosen})
    assert rows is not None
    np.testing.assert_array_equal(rows["best"], best.reshape(14))
    np.testing.assert_array_equal(rows["chosen"][9], chosen[1, :, 2])
    np.testing.assert_array_equal(rows[""], [0] * 7 + [1] * 7)


@pytest.mark.parametrize("shape", [(2, 6), ()])
def test_outputs_without_common_rows(shape: tuple[int, ...]) -> None:
    assert ranked_rows(("best", "other"), 7, {"best": np.zeros((2, 7)), "other": np.zeros(shape)}) is None
