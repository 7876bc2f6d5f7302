"""The engine of onnxsim: a child process that is kept, and whose end is a sentence."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from dmlprep.core.errors import ModelRefused, OutputError
from dmlprep.process.child import Child
from dmlprep.runtime.tools import kept_child, onnxsim, onnxsim_process
from tests.living import alive, gone_within, is_filtered

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3] x) => (float[2, 3] y) { a = Identity (x) y = Relu (a) }"""

MODELS = Path(__file__).parents[3] / "fixtures" / "models"

Starts = list[Child]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Starts]:
    """The processes that a test starts, with none kept from before."""
    made: Starts = []
    real = Child.of_file

    def noted(path: str, name: str, **how: Any) -> Child:
        made.append(real(path, name, **how))
        return made[-1]

    monkeypatch.setattr(Child, "of_file", noted)
    onnxsim.end()
    yield made
    onnxsim.end()


def simplify(**options: float) -> onnx.ModelProto:
    return onnxsim.simplify(onnx.parser.parse_model(TEXT), **options)


def test_it_simplifies_and_is_kept(starts: Starts) -> None:
    for _ in range(3):
        assert [n.op_type for n in simplify().graph.node] == ["Relu"]
    assert len(starts) == 1
    assert starts[0].alive
    assert is_filtered(starts[0].pid)
    assert not [path for path in starts[0].exchange.iterdir() if path.suffix == ".onnx"]


def test_too_slow_is_a_sentence_and_the_next_call_works(starts: Starts) -> None:
    with pytest.raises(ModelRefused, match=r"onnxsim did not answer within 0\.01 s") as refused:
        simplify(time_limit=0.01)
    assert "time limit" in refused.value.fix
    assert gone_within(starts[0].pid, 5.0)
    assert len(simplify().graph.node) == 1
    assert len(starts) == 2


def test_too_much_memory_is_a_sentence_and_the_next_call_works(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes down the value of a shape with each product: polynomials that have no end."""
    steps = " ".join(f"s{i + 1} = Mul (s{i}, s{i})" for i in range(60))
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 2] x) => (float[n, 2] y)
    {{ s0 = Shape (x) {steps} f = Cast<to = 1> (s60) y = Add (x, f) }}"""
    monkeypatch.setenv("DMLPREP_MEMORY_LIMIT", "400M")
    with pytest.raises(ModelRefused, match="the limit is 400 MiB") as refused:
        onnxsim.simplify(onnx.parser.parse_model(text))
    assert refused.value.code == "DP301"
    assert gone_within(starts[0].pid, 5.0)
    assert len(simplify().graph.node) == 1


def test_an_error_is_its_last_line_and_the_next_call_works(starts: Starts) -> None:
    model = onnx.parser.parse_model(TEXT)
    model.graph.node[0].op_type = "NoSuchOperator"
    model.graph.node[0].domain = "ai.onnx.ml"
    del model.opset_import[:]
    with pytest.raises(ModelRefused, match="onnxsim failed: ") as refused:
        onnxsim.simplify(model)
    assert "time limit" not in refused.value.fix
    assert gone_within(starts[0].pid, 5.0)
    assert len(simplify().graph.node) == 1


def test_it_ends_when_nobody_calls(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_child, "_IDLE", 0.2)
    simplify()
    assert gone_within(starts[0].pid, 10.0)


def test_it_ends_after_a_large_model(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxsim, "_LARGE", 100)
    simplify()
    assert not alive(starts[0].pid)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, starts: Starts) -> Callable[[str], None]:
    """Put other code in the place of the process."""

    def put(code: str) -> None:
        line = [sys.executable, "-u", "-c", "import os, sys\n" + textwrap.dedent(code)]
        monkeypatch.setattr(Child, "of_file", lambda *_, **__: Child(lambda _exchange: line, "onnxsim"))

    return put


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_crash_names_the_signal(stand_in: Callable[[str], None]) -> None:
    stand_in("import signal; input(); os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(ModelRefused, match="onnxsim was killed by SIGSEGV"):
        simplify()


@pytest.mark.skipif(sys.platform != "win32", reason="exit codes of 32 bits are Windows'")
def test_a_crash_names_the_exception(stand_in: Callable[[str], None]) -> None:
    stand_in("input(); os._exit(-1073741819)")
    with pytest.raises(ModelRefused, match="onnxsim ended with C0000005"):
        simplify()


def test_an_answer_without_a_model(stand_in: Callable[[str], None]) -> None:
    stand_in("input(); print('ok'); input()")
    with pytest.raises(ModelRefused, match="onnxsim returned no model"):
        simplify()


def test_a_full_disk_is_no_fault_of_the_model(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="temporary file cannot be written"):
        simplify()


_BOTH = """
import hashlib, json, runpy, sys
made = runpy.run_path(sys.argv[1])
simplify = made["simplifier"](*sys.argv[2:3])
for path in map(str.strip, sys.stdin):
    try:
        done = hashlib.sha256(simplify(open(path, "rb").read(), 1 << 20, [])).hexdigest()
    except Exception as error:
        done = str(error).strip().splitlines()[-1]
    print(path, done, "onnxsim.onnx_simplifier" in sys.modules)
"""


def _simplified(models: list[Path], *release: str) -> list[list[str]]:
    """What the process makes of models, in digests, and whether it imported the package."""
    line = [sys.executable, "-P", "-c", _BOTH, onnxsim_process.__file__, *release]
    done = subprocess.run(line, input="\n".join(map(str, models)), capture_output=True, text=True, check=True)
    return [said.rsplit(" ", 1) for said in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_compiled_function_alone_gives_what_the_package_gives() -> None:
    models = [path for path in sorted(MODELS.glob("*.onnx")) if path.stat().st_size < 1 << 20]
    alone, whole = _simplified(models), _simplified(models, "another release")
    assert len(alone) > 20
    assert [said for said, _ in alone] == [said for said, _ in whole]
    assert {imported for _, imported in alone} == {"False"}
    assert {imported for _, imported in whole} == {"True"}
