"""A kit carries the original's own noise and the name of a metric, and runs no code that it names."""

from __future__ import annotations

import zipfile
from pathlib import Path

import onnx
from onnx import parser

from dmlprep import api
from tests.kit.box import CPU, extract, run_kit

_MAP = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 64] x) => (float[1, 64] y) <float[1] b = {%s}> { a = Add (x, b)  y = Sigmoid (a) }
"""


def _result(folder: Path, shift: float, metric: str = "") -> tuple[Path, Path]:
    onnx.save(parser.parse_model(_MAP % shift), folder / "m.onnx")
    packed = api.pack_kit(folder / "m.onnx", out=folder / "k.zip", metric=metric)
    assert packed.manifest.metric == Path(metric).name
    with zipfile.ZipFile(packed.path) as kit:  # it names nothing of this machine
        assert [name for name in kit.namelist() if str(folder).encode() in kit.read(name)] == []
    assert set(packed.manifest.noise) == {"y"}
    box = extract(folder / "k.zip", folder / "box")
    assert run_kit(box, *CPU).returncode == 0
    return box / "result.zip", folder / "k.zip"


def test_a_metric_is_named_and_not_run_unless_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def own(reference, candidate):\n    return 3.0\n", encoding="utf-8")
    named = f"{tmp_path / 'own.py'}:own"
    result, kit = _result(tmp_path, 0.0, named)
    verdict, _ = api.verify_kit(result, kit=kit)
    assert (verdict.outcome, verdict.metric) == ("passed", "")
    assert {f.code for f in verdict.findings} == {"DP710", "DP712", "DP815"}
    assert verdict.outputs[0].noise is not None
    verdict, _ = api.verify_kit(result, kit=kit, metric=named, metric_bound=2.0)
    assert (verdict.outcome, verdict.values) == ("failed", [3.0, 3.0])


def test_feeds_that_prove_nothing_are_not_proven_there_either(tmp_path: Path) -> None:
    result, kit = _result(tmp_path, -12.0)
    verdict, _ = api.verify_kit(result, kit=kit)
    assert (verdict.outcome, verdict.exit_code) == ("not-proven", 3)
    assert "its largest probability" in verdict.reason
