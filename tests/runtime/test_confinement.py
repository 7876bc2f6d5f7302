"""A worker on the CPU is taken over by the model that it opens: what it can do then, and what it must still do."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlprep.process.confinement import lacking
from dmlprep.runtime import DATA_FOLDER, SessionFailure, SessionOptions, cpu_host, open_cpu, open_evaluator
from tests.runtime.conftest import save

pytestmark = pytest.mark.skipif(
    bool(lacking()), reason=f"this kernel does not confine a worker: {'; '.join(lacking())}"
)

ATTEMPTS = Path(__file__).with_name("worker_attempts.py")
ONES = np.ones((2, 3), np.float32)

_TAKEN_OVER = """
import importlib.util, json, os
from pathlib import Path
__version__ = "1.0"
def get_available_providers():
    return []
class SessionOptions:
    def __init__(self):
        spec = importlib.util.spec_from_file_location("attempts", {code!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        folder = Path(os.environ["TMPDIR"])
        facts = {facts!r} | {{"results": str(folder), "feeds": str(folder.parent / "feeds"), "parent": os.getppid()}}
        (folder / "answers.json").write_text(json.dumps(module.attempts(facts)))
        raise RuntimeError("taken over")
"""
"""An ``onnxruntime`` that does what a model could make the true one do."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What there is to attack: a file, a service, a port."""
    home = tmp_path_factory.mktemp("home")
    (home / "id_rsa").write_text("secret")
    folder = Path(tempfile.mkdtemp())  # the names of Unix sockets have 107 characters
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        unix.bind(str(folder / "s"))
        unix.listen()
        yield {"secret": str(home / "id_rsa"), "tcp": tcp.getsockname()[1], "unix": str(folder / "s")}
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def answers(attacked: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of the attempts of the code that has taken a worker over."""
    folder = tmp_path_factory.mktemp("taken")
    model = save(folder / "model.onnx", [], [], [])
    package = folder / "packages" / "onnxruntime"
    package.mkdir(parents=True)
    shutil.copy(ATTEMPTS, package)
    code = _TAKEN_OVER.format(code=str(package / ATTEMPTS.name), facts=attacked | {"victim": str(model)})
    (package / "__init__.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        # Modules are read from where Python has them, but not the whole home folder for one of them.
        home = Path(attacked["secret"]).parent
        patch.setenv("HOME", str(home))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), str(home)]))
        with cpu_host() as host:
            (host.worker().exchange / "feeds").mkdir()
            with pytest.raises(SessionFailure):
                host.open(model)
            found: dict[str, str] = json.loads((host.worker().exchange / "results" / "answers.json").read_text())
    return found


NAMES = (
    *("read a file", "read the file of another process", "list a folder", "write a file", "make a folder"),
    *("write to the model", "cut the model short", "move the model", "change the mode of the model"),
    *("change the time of the model", "make a link", "make a hard link", "write to a feed"),
    *("connect by TCP", "send by UDP", "connect to a service", "signal the parent", "signal all"),
    *("signal a thread of the parent", "set a limit of the parent", "trace the parent", "open the parent's memory"),
    *("outlive the parent", "a fork bomb", "start a program", "become a program", "namespaces", "mount", "a ring"),
    *("the keyring", "shared memory"),
)


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_refuses(answers: dict[str, str], name: str) -> None:
    assert answers.keys() == set(NAMES)
    assert answers[name].startswith("held ")


def test_the_attempts_are_true_ones(attacked: dict[str, Any], tmp_path: Path) -> None:
    """Without confinement they come through, but for what only root may do and what needs no more than a place."""
    model = save(tmp_path / "model.onnx", [], [], [])
    (tmp_path / "results").mkdir()
    facts = attacked | {"victim": str(model), "results": str(tmp_path / "results"), "feeds": "", "parent": os.getpid()}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    line = [sys.executable, str(ATTEMPTS), str(tmp_path / "facts.json"), str(tmp_path / "answers.json")]
    subprocess.run(line, check=True, start_new_session=True)
    found = json.loads((tmp_path / "answers.json").read_text())
    depends = {"trace the parent", "open the parent's memory", "read the file of another process"}
    depends |= {"namespaces", "mount", "a ring", "signal all"}
    assert {name for name, outcome in found.items() if not outcome.startswith("BROKE")} <= depends


def test_onnx_runtime_itself_opens_no_other_file(add_relu: Path, tmp_path: Path) -> None:
    other = shutil.copy(add_relu, tmp_path / "other.onnx")
    with cpu_host() as host, host.open(add_relu) as session:
        with pytest.raises(SessionFailure) as caught:
            host.worker().ask([["load", "99", str(other)]], limit=20.0)
        assert caught.value.kind == "load"
        assert session.run({"x": ONES, "y": ONES})["r"][0, 0] == 2
        with pytest.raises(SessionFailure):  # nor is it let out again
            host.worker().ask([["confine", str(tmp_path)], ["load", "99", str(other)]], limit=20.0)


def test_a_model_that_a_worker_may_not_read_has_another_one(add_relu: Path, tmp_path: Path) -> None:
    other = shutil.copy(add_relu, tmp_path / "other.onnx")
    with cpu_host() as host:
        session = host.open(add_relu)
        first = host.worker().pid
        assert host.open(Path(other)).run({"x": ONES, "y": ONES})["r"][0, 0] == 2
        assert host.worker().pid != first
        assert session.run({"x": ONES, "y": ONES})["r"][0, 0] == 2  # by the first one
        second = host.worker().pid
        host.open(add_relu)  # by now both are known
        assert host.worker().pid == second


def test_one_worker_serves_models_that_are_named_before(add_relu: Path, tmp_path: Path) -> None:
    other = Path(shutil.copy(add_relu, tmp_path / "other.onnx"))
    with cpu_host() as host:
        host.may_read([other])
        first = host.worker().pid
        for path in (add_relu, other):
            with host.open(path) as session:
                assert session.run({"x": ONES, "y": ONES})["r"][0, 0] == 2
        assert host.worker().pid == first


def test_no_thread_is_there_before_the_worker_confines_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Landlock confines the thread that asks for it, and those that it starts then."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    with cpu_host() as host:
        assert len(os.listdir(f"/proc/{host.worker().pid}/task")) == 1


def _with_data(folder: Path) -> Path:
    """y = x * w, with w in ``sub folder/w``."""
    (folder / "sub folder").mkdir(parents=True)
    info = helper.make_tensor_value_info
    weights = numpy_helper.from_array(np.full(3, 2, np.float32), "w")
    path = save(
        folder / "model.onnx",
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        [info("x", TensorProto.FLOAT, [2, 3])],
        [info("y", TensorProto.FLOAT, [2, 3])],
        initializer=[weights],
    )
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="sub folder/w", size_threshold=0)
    return path


@pytest.mark.parametrize("opened", [open_cpu, open_evaluator])
def test_data_files_are_read(opened: Any, tmp_path: Path) -> None:
    with opened(_with_data(tmp_path)) as session:
        assert session.run({"x": ONES})["y"][0, 0] == 2


def test_data_files_of_another_folder_are_read_where_the_session_names_it(tmp_path: Path) -> None:
    model = _with_data(tmp_path / "data")
    elsewhere = Path(shutil.copy(model, tmp_path / "model.onnx"))
    with open_cpu(elsewhere, SessionOptions(config={DATA_FOLDER: str(model.parent)})) as session:
        assert session.run({"x": ONES})["y"][0, 0] == 2


def test_a_model_that_names_a_file_outside_its_folder_does_not_open_it(tmp_path: Path) -> None:
    model = _with_data(tmp_path / "model")
    (tmp_path / "model" / "sub folder" / "w").rename(tmp_path / "w")
    (tmp_path / "model" / "sub folder" / "w").symlink_to(tmp_path / "w")
    with pytest.raises(SessionFailure) as caught:
        open_cpu(model)
    assert caught.value.kind == "load"


def test_threads_start_and_large_outputs_come_back(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    path = save(
        tmp_path / "model.onnx",
        [helper.make_node("Expand", ["x", "s"], ["y"])],
        [info("x", TensorProto.FLOAT, [1]), info("s", TensorProto.INT64, [1])],
        [info("y", TensorProto.FLOAT, ["N"])],
    )
    with open_cpu(path, SessionOptions(threads=4)) as session:
        size = 20 << 20
        found = session.run({"x": np.ones(1, np.float32), "s": np.array([size])})["y"]
        assert found.size == size
        assert found[-1] == 1
