"""The quirks: each module declares one or more, each row says where it comes from, and nothing is loaded too early."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import dmlprep.directml.quirks
from dmlprep.directml.quirks import Quirk, code_row, codes, quirks
from dmlprep.record import CODES

FOLDER = Path(dmlprep.directml.quirks.__file__).parent


def declared(module: str) -> list[Quirk]:
    return [v for v in vars(import_module(f"dmlprep.directml.quirks.{module}")).values() if isinstance(v, Quirk)]


def test_every_module_declares_quirks_or_is_needed_by_those_that_do() -> None:
    modules = {p.stem for p in FOLDER.glob("*.py")} - {"__init__"}
    without = {module for module in modules if not declared(module)}
    assert without == {"catalog", "declaring", "editing", "find", "layer_norms", "page", "patterns", "quirk"}
    assert {replace(q, measured_on=()) for q in quirks()} == {quirk for module in modules for quirk in declared(module)}
    assert set(json.loads((FOLDER / "measured.json").read_text())) == {q.key for q in quirks() if q.measured_on}


def test_the_order_is_the_same_in_every_run() -> None:
    script = "from dmlprep.directml.quirks import quirks; print([q.id for q in quirks()])"
    again = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert again.strip() == str([q.id for q in quirks()])


def test_codes_of_quirks_and_of_record_are_one_table() -> None:
    assert set(CODES) < set(codes())
    assert list(codes()) == sorted(codes())
    for quirk in quirks():
        assert quirk.code in CODES or quirk.code_row == code_row(quirk.code), "two quirks of one code say the same"
        assert bool(quirk.title) != (quirk.code in CODES)


def test_naming_the_room_loads_neither_onnx_nor_a_quirk() -> None:
    script = (
        "import sys, dmlprep.directml.quirks as room; room.code_row('DP501'); "
        "print([m for m in sys.modules if m in ('onnx', 'onnx_ir', 'numpy', 'dmlprep.directml.quirks.cast_bool')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_quirk_has_a_code_and_sources() -> None:
    for quirk in quirks():
        assert quirk.code in codes()
        assert quirk.sources
        assert quirk.confidence != "measured" or quirk.measured_on


def test_rows_of_one_quirk_are_about_different_releases() -> None:
    for minor in range(15, 25):
        concerned = [q.id for q in quirks() if q.concerns((1, minor))]
        assert len(concerned) == len(set(concerned))


def test_a_quirk_knows_its_releases() -> None:
    pool = next(q for q in quirks() if q.id == "averagepool-ceil")
    assert not pool.concerns((1, 16))
    assert pool.concerns((1, 17))
