"""What is tried inside the sandbox, by whoever calls: see ``native/break_out.c``."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from dmlprep.core.files import remove_tree
from dmlprep.runtime.linux import sandbox, shared_folders
from dmlprep.runtime.linux.layout import Layout

__all__ = ["attempts", "session"]

_SOURCE = (Path(__file__).parent / "native" / "break_out.c").read_text()


def attempts() -> dict[str, str]:
    """What became of each attempt, by its name: ``held EPERM``, ``BROKE /proc/sys/...``."""
    folder = Path(tempfile.mkdtemp())
    try:
        return _attempts(folder, Layout.of_user().root)
    finally:
        remove_tree(folder)


def _attempts(folder: Path, root: Path) -> dict[str, str]:
    for name in ("source", "models", "feeds"):
        (folder / name).mkdir()
        (folder / name).chmod(0o755)
    (folder / "source/break_out.c").write_text(_SOURCE)
    (folder / "models/model.txt").write_text("to be read only")
    (folder / "host.txt").write_text("not for the worker")
    out, results, shaders = (shared_folders.fresh(folder / name) for name in ("out", "results", "shaders"))
    build = ["/usr/bin/gcc", "-O1", "-Wall", "-Werror", "-o", "/out/break_out", "/native/break_out.c"]
    made = subprocess.run(
        sandbox.command(root, build, read={"/native": folder / "source"}, write={"/out": out}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert not made.returncode, made.stderr
    name = f"dmlprep-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        line = sandbox.command(
            root,
            ["/native/break_out", str(os.getpid()), str(folder / "host.txt"), name],
            read={"/native": out, "/exchange/models": folder / "models", "/exchange/feeds": folder / "feeds"},
            write={"/exchange": results, "/shaders": shaders},
            scratch=16 << 20,
        )
        tried = subprocess.run(
            line, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "DMLPREP_TEST_SECRET": "secret"},
        )  # fmt: skip
    assert not tried.returncode, tried.stderr
    rows = [row.partition(" ") for row in tried.stdout.splitlines()]
    return {name: what for name, _, what in rows}


def session() -> dict[str, object]:
    """A sum on DirectML, and who computed it."""
    import onnx
    from onnx import TensorProto, helper

    from dmlprep.runtime.linux.host import LinuxHost

    layout = Layout.of_user()
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, [3])],
        [info("y", TensorProto.FLOAT, [3])],
    )
    with tempfile.TemporaryDirectory() as name, LinuxHost(layout, layout.release_for()) as host:
        model = Path(name, "m.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
        model.chmod(0o600)
        with host.open(model) as opened:
            found = opened.run({"x": np.arange(3, dtype=np.float32)})["y"].tolist()
            users = sorted(_users_of_wine(host.worker().pid))
    return {"found": found, "users": users}


def _users_of_wine(leader: int) -> set[int]:
    """Who runs the processes below ``leader`` that are Wine's, as the host numbers users."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = set()
    for pid in parents:
        above = pid
        while above in parents and above != leader:
            above = parents[above]
        name = Path(f"/proc/{pid}/comm")
        if above == leader and name.is_file() and "wine" in name.read_text():
            found.add(name.parent.stat().st_uid)
    return found
