"""How much memory a worker may hold where nobody says so: a share of the machine's, or of the container's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from dmlprep.core.errors import UsageError
from dmlprep.portable import limits
from dmlprep.portable.limits import SHARE, VARIABLE, MemoryLimit, machine_memory, memory_limit
from dmlprep.process.child import Child
from dmlprep.process.starting import allowed_memory
from dmlprep.process.tools import run_tool
from dmlprep.runtime import SessionFailure, SessionOptions, cpu_host
from tests.runtime.conftest import save


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 10 GiB whose user says nothing."""
    monkeypatch.setattr(limits, "machine_memory", lambda: 10 << 30)
    monkeypatch.delenv(VARIABLE, raising=False)


def test_it_is_a_share_of_the_machine(machine: None) -> None:
    assert memory_limit() == MemoryLimit(int(SHARE * (10 << 30)), f"{SHARE:g} of system memory")


@pytest.mark.parametrize(
    ("said", "nbytes"),
    [
        ("12G", 12 << 30),
        ("12 GiB", 12 << 30),
        ("1.5g", 3 << 29),
        ("800M", 800 << 20),
        ("64K", 64 << 10),
        ("5000000000", 5_000_000_000),
        ("50%", 5 << 30),
        ("none", 0),
    ],
)
def test_the_user_says_another(machine: None, monkeypatch: pytest.MonkeyPatch, said: str, nbytes: int) -> None:
    monkeypatch.setenv(VARIABLE, said)
    assert memory_limit().nbytes == nbytes
    assert said == "none" or said in memory_limit().why


@pytest.mark.parametrize("said", ["much", "-1G", "0", "0%", "1e9", "12 Gb/s", "9" * 5000, "G"])
def test_what_is_no_limit_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv(VARIABLE, said)
    with pytest.raises(UsageError, match=VARIABLE) as caught:
        allowed_memory()
    assert "write 12G" in str(caught.value)


def test_this_machine_has_some() -> None:
    assert 1 << 28 < machine_memory() < 1 << 50


_MOUNTS = """\
25 1 0:22 / /proc rw - proc proc rw
31 25 0:26 {root} {point} rw,nosuid shared:9 - {kind} cgroup {options}
"""


@pytest.mark.parametrize(
    ("kind", "options", "line", "name"),
    [
        ("cgroup2", "rw,nsdelegate", "0::{path}", "memory.max"),
        ("cgroup", "rw,memory", "4:cpu,memory:{path}\n0::/elsewhere", "memory.limit_in_bytes"),
    ],
)
@pytest.mark.parametrize("root", ["/", "/docker/abc"])
@pytest.mark.skipif(sys.platform == "win32", reason="control groups are Linux'")
def test_a_container_has_less(tmp_path: Path, kind: str, options: str, line: str, name: str, root: str) -> None:
    """Inside a container the file system of control groups can begin at the container's own."""
    process, point = tmp_path / "self", tmp_path / "cgroup"
    inside = point / "job" / "step"
    inside.mkdir(parents=True)
    process.mkdir()
    (process / "cgroup").write_text(line.format(path=f"{root.rstrip('/')}/job/step") + "\n")
    (process / "mountinfo").write_text(_MOUNTS.format(root=root, point=point, kind=kind, options=options))
    (inside / name).write_text("max\n")
    (inside.parent / name).write_text("4294967296\n")
    (point / name).write_text("8589934592\n")
    assert sorted(limits.cgroup_limits(process)) == [4 << 30, 8 << 30]


def _grows(tmp_path: Path) -> Path:
    """A model that fills as many bytes as it is told."""
    info = helper.make_tensor_value_info
    return save(
        tmp_path / "m.onnx",
        [
            helper.make_node("Expand", ["x", "s"], ["y"]),
            helper.make_node("Exp", ["y"], ["z"]),
            helper.make_node("ReduceSum", ["z"], ["r"]),
        ],
        [info("x", TensorProto.FLOAT, [1]), info("s", TensorProto.INT64, [1])],
        [info("r", TensorProto.FLOAT, None)],
    )


@pytest.mark.slow
def test_a_session_that_nobody_limits_is_ended_at_the_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "machine_memory", lambda: 500 << 20)
    monkeypatch.delenv(VARIABLE, raising=False)
    feeds = {"x": np.ones(1, np.float32), "s": np.array([1 << 29])}
    with cpu_host() as host, host.open(_grows(tmp_path)) as session:
        with pytest.raises(SessionFailure) as caught:
            session.run(feeds)
        assert caught.value.kind == "memory"
        assert "the limit is 400 MiB (0.8 of system memory), and was stopped" in caught.value.message
        assert VARIABLE in caught.value.next_step
        small = {**feeds, "s": np.array([1 << 27])}
        assert host.open(_grows(tmp_path), SessionOptions(memory_limit=0)).run(small)


def _fake(code: str) -> Child:
    return Child(lambda _exchange: [sys.executable, "-u", "-c", code], "the fake worker")


@pytest.mark.parametrize("ends", ["", pytest.param("\\n", marks=pytest.mark.slow)])
def test_a_worker_that_says_too_much_is_ended(ends: str) -> None:
    """In one line, or in many."""
    child = _fake(f"input()\nwhile True: print('{'a' * 4000}', end='{ends}')")
    with pytest.raises(SessionFailure, match="sent an answer that is too long") as caught:
        child.ask([["hello"]], limit=300.0)
    assert caught.value.kind == "protocol"
    assert not child.alive


def test_a_tool_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_tool([sys.executable, "-c", "import sys; print('out'); sys.exit('err')"], limit=60.0)
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (1, "out", "err")
    with pytest.raises(OSError, match="no-such-program"):
        run_tool(["no-such-program"], limit=60.0)
    with pytest.raises(subprocess.TimeoutExpired):
        run_tool([sys.executable, "-c", "import time; time.sleep(60)"], limit=0.3)
    monkeypatch.setenv(VARIABLE, "100M")
    with pytest.raises(OSError, match="the limit is 100 MiB"):
        run_tool([sys.executable, "-c", "import time; x = b'1' * (1 << 28); time.sleep(60)"], limit=60.0)
