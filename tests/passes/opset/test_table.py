"""Every change that the installed onnx knows of is handled, and the page says how."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from dmlprep.graph.analysis.schemas import since_versions
from dmlprep.passes.opset.handling import REFUSED, STEPS, UPWARD_TOO, WIDENED, handling_of, unhandled
from dmlprep.passes.opset.steps import spectra
from tests.passes.opset.models import bring, close, operators, parse, reference

TOP = Path(__file__).resolve().parents[3]
SCRIPT = TOP / "scripts" / "opset_table.py"


def test_every_change_is_handled() -> None:
    assert unhandled() == [], "a newer onnx changed these: say in handling.py how they are lowered, or why they are not"


def test_the_table_names_changes_that_exist() -> None:
    history = since_versions()
    changes = {
        *STEPS,
        *REFUSED,
        *((name, since) for table in (UPWARD_TOO, WIDENED) for name, versions in table.items() for since in versions),
    }
    assert [c for c in sorted(changes) if c[1] not in history.get(c[0], ())] == []


def test_a_change_is_handled_in_one_way() -> None:
    twice = set(STEPS) & {(name, since) for name, versions in WIDENED.items() for since in versions}
    assert twice | (set(STEPS) & set(REFUSED)) == set()
    assert handling_of("Conv", 22) == "relabel"
    assert handling_of("ImageDecoder", 20) == "refuse"
    assert handling_of("Mish", 18) == "body"


def test_the_page_is_what_the_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("opset_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    # A patch release of onnx has the same schemas.
    page, now = (re.sub(r"of onnx [\d.]+", "of onnx", t) for t in (script.PAGE.read_text("utf-8"), script.page()))
    assert page == now, "run scripts/opset_table.py"


def test_the_example_of_the_guide_lowers_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (TOP / "docs" / "lower-one-more-operator.md").read_text(encoding="utf-8")
    module = dict(vars(spectra))
    exec(re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[0], module)
    monkeypatch.delitem(REFUSED, ("MelWeightMatrix", 17), raising=False)
    monkeypatch.setitem(STEPS, ("MelWeightMatrix", 17), module["mel_weight_matrix_17"])
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g () => (float[33, 12] y)
        <int64 bins = {12}, int64 length = {64}, int64 rate = {8000}, float low = {60.0}, float high = {4000.0}>
        { y = MelWeightMatrix (bins, length, rate, low, high) }""")
    lowered, _ = bring(model, 16)
    assert operators(lowered) == ["Identity"]
    close(reference(lowered, {}), reference(model, {}))
