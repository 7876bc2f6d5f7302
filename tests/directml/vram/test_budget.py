"""An estimate against the memory of a device, and amounts of memory as users write them."""

from __future__ import annotations

import pytest

from dmlprep.core.errors import UsageError
from dmlprep.directml.vram import over_budget, vram_bytes
from dmlprep.record.memory import Held, MemoryEstimate, Way

_FOUND = MemoryEstimate(
    peak=6_000_000_000,
    weights=4_000_000_000,
    at="decoder/Conv_7",
    largest=[Held("weight_of_all", "weights", 2_000_000_000), Held("a", "activation", 5000, "n")],
    ways=[Way("FP16", "a recipe", 3_000_000_000), Way("batch 1", "a batch of 1", 5_000_000_000)],
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4GB", 4 * 10**9),
        ("4 gb", 4 * 10**9),
        ("4G", 4 * 10**9),
        ("4GiB", 4 << 30),
        ("1.5GB", 1_500_000_000),
        ("800MB", 800_000_000),
        ("65536", 65536),
        (65536, 65536),
    ],
)
def test_amounts(text: str | int, expected: int) -> None:
    assert vram_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "GB", "-4GB", "4XB", "nan", "1e9", "0", "0.0GB", "4GBGB", "4 G B", "9" * 99, 0, True]
)
def test_what_is_no_amount_is_refused(text: str | int) -> None:
    with pytest.raises(UsageError, match="not an amount of memory"):
        vram_bytes(text)


def test_what_fits_is_no_finding() -> None:
    assert over_budget(_FOUND, 6_000_000_000) is None


def test_a_finding_names_the_node_the_tensors_and_what_helps() -> None:
    found = over_budget(_FOUND, 4 << 30)
    assert found is not None
    assert (found.code, found.severity, found.node) == ("DP530", "error", "decoder/Conv_7")
    assert "weight_of_all (weights, 2000.0 MB)" in found.message
    assert found.remedy == "FP16: 3000.0 MB, which fits; batch 1: 5000.0 MB"
    assert (found.facts["peak"], found.facts["vram"]) == (6_000_000_000, 4 << 30)


def test_a_peak_at_load_names_no_node() -> None:
    found = over_budget(MemoryEstimate(peak=2 << 30, weights=2 << 30), 1 << 30)
    assert found is not None
    assert "most when it is loaded; the largest" in found.message


def test_what_is_not_known_is_a_finding_of_its_own() -> None:
    found = over_budget(MemoryEstimate(unknown="x has free sizes: batch"), 1 << 40)
    assert found is not None
    assert found.code == "DP531"
    assert "batch" in found.message
