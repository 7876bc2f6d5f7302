"""A prepared file that crashes ONNX Runtime, or that it does not take, is a failed proof: nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import parser

from dmlprep.core.files.staging import PREFIX
from dmlprep.process.child import Child
from dmlprep.runtime import session
from tests.in_process import Run

# A worker that is ours but for ONNX Runtime, which fails on what a run has made. Wine keeps a process that really
# crashes; the exit code is what an access violation leaves.
_WORKER = """
import os, runpy, signal, sys
import onnxruntime

class Session(onnxruntime.InferenceSession):
    def __init__(self, source, *arguments, **named):
        self.prepared = PREFIX in str(source)
        if self.prepared and WHEN == "load":
            fail()
        super().__init__(source, *arguments, **named)

    def run(self, *arguments, **named):
        return self.prepared and fail() or super().run(*arguments, **named)

    def run_with_ort_values(self, *arguments, **named):
        return self.prepared and fail() or super().run_with_ort_values(*arguments, **named)

def fail():
    if HOW == "error":
        raise RuntimeError("no kernel is to be had")
    if sys.platform == "win32":
        os._exit(-1073741819)
    os.kill(os.getpid(), signal.SIGSEGV)

onnxruntime.InferenceSession = Session
runpy.run_path(WORKER, run_name="__main__")
"""

Stand = Callable[[str, str], None]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stand:
    """Let ONNX Runtime fail, as told, on every file of a run's staging folder."""

    def put(when: str, how: str) -> None:
        worker = Path(session.__file__).with_name("worker.py")
        names = {"PREFIX": PREFIX, "WHEN": when, "HOW": how, "WORKER": str(worker)}
        path = tmp_path / "tools" / "worker.py"
        path.parent.mkdir()
        path.write_text("".join(f"{n} = {v!r}\n" for n, v in names.items()) + _WORKER, encoding="utf-8")
        monkeypatch.setattr(session, "python_worker", lambda device, name: Child.of_file(str(path), name, [device]))

    return put


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = Tanh(x) in FP32, with the size ``batch`` free."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 4] x) => (float[batch, 4] y) { y = Tanh(x) }'
    path = tmp_path / "in" / "model.onnx"
    path.parent.mkdir()
    onnx.save(parser.parse_model(text), path)
    return path


@pytest.mark.parametrize(
    ("when", "how", "kind"), [("load", "crash", "crash"), ("run", "crash", "crash"), ("load", "error", "load")]
)
def test_a_candidate_that_fails_is_not_written(
    when: str, how: str, kind: str, model: Path, stand_in: Stand, run: Run, tmp_path: Path
) -> None:
    stand_in(when, how)
    out, record = tmp_path / "out", tmp_path / "record.json"
    pinned = ("-r", "@static-fp32", "-p", "batch=1", "--device", "cpu")
    done = run("prepare", model, "-o", out, *pinned, "--record", record)
    assert done.code == 1, done.err
    assert "Traceback" not in done.out + done.err
    (verdict,) = json.loads(record.read_text(encoding="utf-8"))["verdicts"]
    assert (verdict["check"], verdict["outcome"]) == ({"measure": "parity", "provider": "cpu"}, "failed")
    (finding,) = verdict["findings"]
    assert (finding["code"], finding["severity"], finding["facts"]["kind"]) == ("DP704", "error", kind)
    assert "the candidate does not run: " in verdict["reason"]
    assert "DP704" in done.out
    assert not out.exists()
    assert not list(tmp_path.rglob(f"{PREFIX}*"))
