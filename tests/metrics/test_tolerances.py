"""Tolerances: each has a name and a reason, and auto picks by what the candidate is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep.core.errors import UsageError
from dmlprep.metrics import TOLERANCES, choose_tolerance, find_tolerance
from dmlprep.metrics.tolerances import proves
from dmlprep.record import DeviceInfo

DOC = Path(__file__).resolve().parents[2] / "docs" / "parity.md"


@pytest.mark.parametrize("name", TOLERANCES)
def test_each_has_a_reason_and_stands_in_the_docs(name: str) -> None:
    tolerance = TOLERANCES[name]
    assert tolerance.name == name
    assert len(tolerance.reason) > 20
    row = next(line for line in DOC.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert [float(c) for c in cells[1:8]] == [
        tolerance.max_rel,
        tolerance.cosine,
        tolerance.share_equal,
        tolerance.rows,
        tolerance.overlap,
        tolerance.outside,
        tolerance.stray,
    ]


@pytest.mark.parametrize(
    ("fp16", "quantized", "device", "name"),
    [
        (False, False, "cpu", "fp32-cpu"),
        (False, False, "dml", "fp32-dml"),
        (True, False, "cpu", "fp16-cpu"),
        (True, False, "dml", "fp16-dml"),
        (True, True, "cpu", "quantized"),
    ],
)
def test_auto(fp16: bool, quantized: bool, device: str, name: str) -> None:
    assert choose_tolerance("auto", fp16=fp16, quantized=quantized, device=device).name == name


def test_a_bound_of_ones_own() -> None:
    assert find_tolerance("rel:0.003").max_rel == 0.003
    tolerance = find_tolerance("fp16-cpu,overlap=0.75,threshold=0.3/0.6")
    assert (tolerance.overlap, tolerance.thresholds) == (0.75, (0.3, 0.6))


_BOUNDS = [f"fp16-cpu,{bound}" for bound in ("overlap=1.5", "overlap=", "overlap", "overlap=0.1/0.2", "width=0.5", "")]


@pytest.mark.parametrize("name", ["fp8", "", "rel:", "rel:nan", "rel:-1", "rel:2", "auto ", *_BOUNDS])
def test_unknown_names_list_the_known(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_tolerance(name)
    assert caught.value.fix


def test_what_the_cpu_proves_of_fp16_is_said() -> None:
    assert "not FP16 arithmetic" in proves(True, DeviceInfo("cpu", provider="cpu"))
    assert proves(False, DeviceInfo("cpu", provider="cpu")) == ""
    assert proves(True, DeviceInfo("dml on linux: lavapipe")) == ""
