"""The memory of weights that DequantizeLinear widens in every run: three of them at once."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlprep
from dmlprep.runtime import dml_host
from tests.benchmarks.int8_convolutions import Form, Network

CHANNELS, SIDE = 440, 8
"""A widened weight takes 3.5 MB in FP16: two fit into 8 MiB, three do not, and four fit into 16 MiB."""


def write_row(path: Path, count: int) -> Path:
    """Convolutions in a row, int8 with scales of FP16."""
    net, rng, x = Network(Form(17, "float16", "contrib", zero="zeros")), np.random.default_rng(0), "x"
    for n in range(count):
        weight = net.weight(f"w{n}", rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) * 0.01, 0)
        net.nodes.append(helper.make_node("Conv", [x, weight], [f"c{n}"], f"conv{n}", pads=[1] * 4))
        x = f"c{n}"
    net.nodes.append(helper.make_node("GlobalAveragePool", [x], ["y"]))
    onnx.save(net.model({"x": (1, CHANNELS, SIDE, SIDE)}, ["y"]), path)
    return path


@pytest.mark.parametrize(("count", "measured"), [(1, 6_094_848), (2, 12_058_624), (5, 25_690_112), (8, 30_867_456)])
def test_the_estimate_is_what_was_measured(count: int, measured: int, tmp_path: Path) -> None:
    """Peaks on ONNX Runtime 1.30.0 with DirectML 1.15.4 on the Linux runtime."""
    found = dmlprep.check(write_row(tmp_path / "m.onnx", count)).facts.memory
    assert found is not None
    assert found.peak == measured


@pytest.mark.dml
@pytest.mark.skipif(sys.platform == "win32", reason="DXGI tells what an adapter lends now and then, not each heap")
def test_it_is_still_so(tmp_path: Path) -> None:
    path = write_row(tmp_path / "m.onnx", 5)
    found = dmlprep.check(path).facts.memory
    with dml_host() as host:
        host.open(path).run({"x": np.zeros((1, CHANNELS, SIDE, SIDE), np.float16)})
        held = host.memory()
    assert found is not None
    assert held.device_peak is not None
    assert abs(found.peak / held.device_peak - 1) < 0.01
