"""What kernels of DirectML need besides their tensors, as measured."""

from __future__ import annotations

import pytest

from dmlprep.directml.vram.operators import weight_copies

_MEASURED = {
    **dict.fromkeys((1, 8, 32, 63, 64, 127, 128, 256, 384, 512, 1024, 1280, 1600, 2047, 2048, 3000, 4096), 1),
    **dict.fromkeys((33, 40, 65, 77, 96, 160, 197, 200, 400, 577, 1500, 1501, 1800, 2000, 2049, 2500, 4100, 10000), 2),
    **dict.fromkeys((100, 300, 1000, 1576, 1700, 1900), 3),
}
"""Rows of a matrix product -> how many times its weights DirectML 1.15.4 keeps, of [rows, 384] times [384, 384]."""


@pytest.mark.parametrize(("rows", "copies"), _MEASURED.items())
def test_a_matrix_product_keeps_its_weights_once_for_each_kind_of_rows(rows: int, copies: int) -> None:
    assert weight_copies(rows) == copies
