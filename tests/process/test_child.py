"""Workers that misbehave, told by small fake workers."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dmlprep.process.child import Child
from dmlprep.process.starting import file_command
from dmlprep.runtime import SessionFailure, worker
from tests.living import alive, gone_within
from tests.system import tells_time


def fake(code: str) -> Child:
    def command(_exchange: Path) -> Sequence[str]:
        return [sys.executable, "-u", "-c", textwrap.dedent(code)]

    return Child(command, "the fake worker")


def ask(child: Child, limit: float = 20.0) -> SessionFailure:
    with pytest.raises(SessionFailure) as caught:
        child.ask([["hello"]], limit=limit, where="model.onnx")
    assert not child.alive
    assert not child.exchange.exists()
    return caught.value


def test_a_worker_imports_no_more_than_it_needs() -> None:
    # onnx-ir and sympy take longer to import than all else together, and each command waits for its worker.
    names = ("onnx_ir", "sympy", "click", "rich", "jinja2", "dmlprep.api", "dmlprep.record", "msgspec")
    code = f"import runpy, sys; runpy.run_path({worker.__file__!r})['alone'](); import dmlprep.runtime.serving; "
    code += f"print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Under Wine a process that really crashes stays; its exit code is what an access violation leaves.
_CRASH, _CRASHED = "faulthandler._read_null()", "SIGSEGV"
if sys.platform == "win32":
    _CRASH, _CRASHED = "os._exit(-1073741819)", "C0000005"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (f"import faulthandler, os; input(); {_CRASH}", _CRASHED),
        (
            "import sys; input(); sys.exit('could not find\\x1b[31m the thing')",
            "exit code 1; its last output: could not find the thing",
        ),
        ("", "exit code 0"),
    ],
)
def test_a_crash_is_named(code: str, text: str) -> None:
    found = ask(fake(code))
    assert found.kind == "crash"
    assert text in found.message
    assert found.where == "model.onnx"


# A worker that starts a process of its own, which would live for a minute; its number goes into a file.
_WITH_CHILD = """
import os, subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
with open({file!r}, "w") as out:
    out.write(str(inner.pid))
input()
"""


def _with_child(folder: Path, then: str) -> tuple[Child, Path]:
    note = folder / "pid"
    return fake(_WITH_CHILD.format(file=str(note)) + then + "\n"), note


@pytest.mark.slow
def test_a_hang_ends_with_its_children(tmp_path: Path) -> None:
    child, note = _with_child(tmp_path, "print('half'); time.sleep(60)")
    start = time.monotonic()
    found = ask(child, limit=8.0)
    assert time.monotonic() - start < 20
    assert found.kind in ("hang", "timeout")
    assert gone_within(int(note.read_text()), 2.0)
    assert gone_within(child.pid, 2.0)


@pytest.mark.slow
@tells_time
def test_a_hang_is_told_from_slow_work(tmp_path: Path) -> None:
    found = ask(_with_child(tmp_path, "print('half'); time.sleep(60)")[0], limit=8.0)
    assert found.kind == "hang"
    assert "did nothing" in found.message


@pytest.mark.slow
@tells_time
def test_slow_work_is_no_hang() -> None:
    found = ask(fake("input()\nwhile True: pass"), limit=4.0)
    assert found.kind == "timeout"
    assert "was computing" in found.message


@pytest.mark.slow
@tells_time
def test_a_worker_whose_child_computes_is_no_hang() -> None:
    code = "import subprocess, sys; input(); subprocess.run([sys.executable, '-c', 'while True: pass'])"
    assert ask(fake(code), limit=4.0).kind == "timeout"


def test_children_left_behind_by_a_crash_are_ended(tmp_path: Path) -> None:
    child, note = _with_child(tmp_path, "os._exit(3)")
    assert "exit code 3" in ask(child).message
    assert gone_within(int(note.read_text()), 2.0)
    assert gone_within(child.pid, 2.0)


def test_an_answer_that_is_no_utf8() -> None:
    child = fake("import os; input(); os.write(1, b'fail run %83G%83%89%81%5B%20887A0006\\n'); input()")
    with pytest.raises(SessionFailure) as caught:
        child.ask([["hello"]], limit=20.0)
    assert caught.value.kind == "device-removed"
    assert caught.value.hresult == "887A0006 DXGI_ERROR_DEVICE_HUNG"
    assert caught.value.message.isascii()
    assert not child.alive


def test_an_allocation_that_fails_in_a_request_is_not_the_models_fault() -> None:
    code = """
    import os, sys
    from dmlprep.runtime.serving import serve
    def handle(fields):
        raise MemoryError("12 GiB")
    serve(sys.stdin.buffer, os.fdopen(1, "wb"), handle)
    """
    child = fake(code)
    with pytest.raises(SessionFailure, match="MemoryError: 12 GiB") as caught:
        child.ask([["run", "1"]], limit=20.0)
    assert caught.value.kind == "memory"
    assert child.alive
    child.close()


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(SessionFailure, match=r"does not start.*can start processes"):
        Child(lambda _exchange: ["/no/such/program"], "the fake worker")


def test_a_forgotten_worker_leaves_nothing() -> None:
    code = "from dmlprep.runtime import cpu_host; host = cpu_host(); w = host.worker(); print(w.pid, w.exchange)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    pid, exchange = out.split()
    assert not alive(int(pid))
    assert not Path(exchange).exists()


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), getattr(signal, 'SIGKILL', signal.SIGTERM))", "os._exit(0)"])
def test_the_worker_dies_with_its_parent(end: str) -> None:
    code = "import os, signal; from dmlprep.runtime import cpu_host; "
    code += f"host = cpu_host(); print(host.worker().pid, flush=True); {end}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False).stdout
    assert gone_within(int(out), 5.0), "the worker lives on"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
@pytest.mark.parametrize("confined", [False, True])
def test_the_kernel_ends_a_worker_first_where_memory_is_short(tmp_path: Path, confined: bool) -> None:
    file = tmp_path / "work.py"
    file.write_text("print(open('/proc/self/oom_score_adj').read())")
    line = file_command(str(file), [], [tmp_path] if confined else [])
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip() == "1000"
