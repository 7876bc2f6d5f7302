"""The engine of onnxsim: a child process, whose end is a sentence."""

from __future__ import annotations

import subprocess
import sys

import onnx
import pytest

from dmlprep.engines import onnxsim
from dmlprep.errors import ModelRefused

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3] x) => (float[2, 3] y) { a = Identity (x) y = Relu (a) }"""


def test_it_simplifies():
    result = onnxsim.simplify(onnx.parser.parse_model(TEXT))
    assert [n.op_type for n in result.graph.node] == ["Relu"]


def test_too_slow():
    with pytest.raises(ModelRefused, match=r"more than 0\.01 seconds"):
        onnxsim.simplify(onnx.parser.parse_model(TEXT), time_limit=0.01)


def test_an_error_is_its_last_line(monkeypatch):
    run = subprocess.run

    def fail(command, **options):
        return run([sys.executable, "-c", "import sys; sys.exit('first line\\nno such thing')"], **options)

    monkeypatch.setattr(onnxsim.subprocess, "run", fail)
    with pytest.raises(ModelRefused, match="onnxsim failed: no such thing"):
        onnxsim.simplify(onnx.parser.parse_model(TEXT))


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_crash_names_the_signal(monkeypatch):
    run = subprocess.run

    def crash(command, **options):
        return run([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"], **options)

    monkeypatch.setattr(onnxsim.subprocess, "run", crash)
    with pytest.raises(ModelRefused, match="onnxsim crashed \\(SIGSEGV\\)"):
        onnxsim.simplify(onnx.parser.parse_model(TEXT))


def test_an_exit_code_of_windows_is_shown_in_hexadecimal(monkeypatch):
    done = subprocess.CompletedProcess([], 0xC0000005, b"", b"")
    monkeypatch.setattr(onnxsim.subprocess, "run", lambda *_, **__: done)
    with pytest.raises(ModelRefused, match="0xc0000005"):
        onnxsim.simplify(onnx.parser.parse_model(TEXT))
