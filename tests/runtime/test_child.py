"""Workers that misbehave, told by small fake workers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dmlprep.runtime import SessionFailure
from dmlprep.runtime.child import Child

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def fake(code: str) -> Child:
    def command(_exchange: Path) -> Sequence[str]:
        return [sys.executable, "-u", "-c", textwrap.dedent(code)]

    return Child(command, "the fake worker")


def group_is_gone(group: int) -> bool:
    """Whether no process of the group lives; one that nobody has waited for yet does not live."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return False
    return True


def ask(child: Child, limit: float = 20.0) -> SessionFailure:
    with pytest.raises(SessionFailure) as caught:
        child.ask([["hello"]], limit=limit, where="model.onnx")
    assert not child.alive
    assert not child.exchange.exists()
    return caught.value


@linux
@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import os, signal; input(); os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import ctypes; input(); ctypes.string_at(0)", "SIGSEGV"),
        (
            "import sys; input(); sys.exit('could not find\\x1b[31m the thing')",
            "exit code 1; its last words: could not find the thing",
        ),
        ("", "exit code 0"),
    ],
)
def test_a_crash_is_named(code: str, text: str) -> None:
    found = ask(fake(code))
    assert found.kind == "crash"
    assert text in found.message
    assert found.where == "model.onnx"


@linux
def test_a_hang_ends_with_its_children() -> None:
    child = fake("import subprocess, time; subprocess.Popen(['sleep', '60']); print('half'); time.sleep(60)")
    start = time.monotonic()
    found = ask(child, limit=1.0)
    assert time.monotonic() - start < 5
    assert found.kind == "timeout"
    time.sleep(0.2)
    assert group_is_gone(child.pid)


@linux
def test_children_left_behind_by_a_crash_are_ended() -> None:
    child = fake("import subprocess, os; subprocess.Popen(['sleep', '60']); input(); os._exit(3)")
    assert "exit code 3" in ask(child).message
    time.sleep(0.2)
    assert group_is_gone(child.pid)


def test_an_answer_that_is_no_utf8() -> None:
    child = fake("import os; input(); os.write(1, b'fail run %83G%83%89%81%5B%20887A0006\\n'); input()")
    with pytest.raises(SessionFailure) as caught:
        child.ask([["hello"]], limit=20.0)
    assert caught.value.kind == "device-removed"
    assert caught.value.hresult == "887A0006 DXGI_ERROR_DEVICE_HUNG"
    assert caught.value.message.isascii()
    assert not child.alive


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(SessionFailure, match="cannot be started"):
        Child(lambda _exchange: ["/no/such/program"], "the fake worker")


def test_a_forgotten_worker_leaves_nothing() -> None:
    code = "from dmlprep.runtime import cpu_host; host = cpu_host(); w = host.worker(); print(w.pid, w.exchange)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    pid, exchange = out.split()
    assert group_is_gone(int(pid))
    assert not Path(exchange).exists()


@linux
def test_the_worker_dies_with_its_parent() -> None:
    code = """
    import os, signal
    from dmlprep.runtime import cpu_host
    print(cpu_host().worker().pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    pid = int(out.stdout)
    for _ in range(50):
        if group_is_gone(pid):
            return
        time.sleep(0.1)
    pytest.fail("the worker lives on")
