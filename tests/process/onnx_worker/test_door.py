"""The process behind the door: its limits, its ends, and that the next request finds one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from dmlprep.core.errors import CheckNotRun, ToolFailed
from dmlprep.process.onnx_worker import calls, door
from dmlprep.process.onnx_worker.door import Limits, limited
from fixtures.crashing import MODELS, calls_twice
from tests.living import gone_within, is_filtered
from tests.system import not_on_windows

MIB = 1 << 20
TIGHT = Limits(seconds=0.3, memory=192 * MIB)

GOOD = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 4] x) => (float[2, 4] y) { h = Neg (x) y = Relu (h) }'
)


@pytest.fixture(autouse=True)
def goes_on() -> Iterator[None]:
    """Whatever became of the process: the next model works. Each request goes there, however often it was answered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "ask_once", door.ask)
        yield
        assert [v.name for v in calls.infer_shapes(GOOD).graph.value_info] == ["h"]


def refused(model: onnx.ModelProto, limits: Limits = TIGHT) -> ToolFailed:
    began = time.monotonic()
    with limited(limits), pytest.raises(ToolFailed) as caught:
        calls.infer_shapes(model)
    assert time.monotonic() - began < 60
    assert caught.value.exit_code == 1
    assert caught.value.fix
    return caught.value


def worker() -> int:
    """The number of the worker; it is started where it does not run."""
    calls.check_model(GOOD)
    process = door.shared.process
    assert process is not None
    return process.process.pid


@not_on_windows("Windows has no such filter")
def test_the_process_is_confined() -> None:
    assert is_filtered(worker())


@not_on_windows("under Wine a process that really crashes stays")
def test_a_crash() -> None:
    found = refused(MODELS["label_encoder"]())
    assert found.code == "DP012"
    assert "SIGSEGV" in found.what


@pytest.mark.parametrize("name", ["einsum_dot", "einsum_dots", "functions"])
def test_no_end(name: str) -> None:
    found = refused(MODELS[name]())
    assert found.code == "DP013"
    assert "did not finish" in found.what


@pytest.mark.parametrize("name", ["range", "concat", "shape_concat"])
def test_too_much_memory(name: str) -> None:
    found = refused(MODELS[name](), Limits(seconds=20, memory=192 * MIB))
    assert found.code == "DP013"
    assert "needs more than 192 MiB of memory" in found.what


def test_too_large_an_answer() -> None:
    model, names = calls_twice(17), [("f", f"f{level}") for level in range(17)]
    with limited(Limits(answer=MIB)), pytest.raises(ToolFailed, match="makes more than 1 MiB of this model") as caught:
        calls.inline_functions(model, names)
    assert caught.value.code == "DP013"
    assert len(calls.inline_functions(model, names).graph.node) == 2**16


def test_large_models_may_take_more() -> None:
    assert Limits(10, 1024 * MIB, 64 * MIB).for_request(3 * MIB) == Limits(13, (1024 + 96) * MIB, (64 + 48) * MIB)


def test_one_process_serves_many_requests() -> None:
    assert len({worker() for _ in range(5)}) == 1


def test_a_process_that_is_gone_is_replaced() -> None:
    before = worker()
    os.kill(before, signal.SIGTERM)
    assert gone_within(before, 5.0)
    assert worker() != before


@not_on_windows("signals")
def test_a_process_that_is_killed_at_work_is_asked_again_once() -> None:
    """The system's out-of-memory killer takes it for the memory of other programs too."""
    pid, killed = worker(), list[int]()

    def kill() -> None:
        for _ in range(2):
            time.sleep(0.3)
            process = door.shared.process
            assert process is not None
            killed.append(process.process.pid)
            process.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    found = refused(MODELS["einsum_dot"](), Limits(seconds=20))
    killer.join()
    assert killed[0] == pid
    assert killed[1] != pid
    assert found.code == "DP012"
    assert "SIGKILL" in found.what


def test_an_interrupted_request_leaves_nothing_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    before = worker()
    process = door.shared.process
    assert process is not None
    ask = process.ask

    def interrupted(parts: list[bytes], limits: Limits) -> list[bytes]:
        ask(parts, limits)
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calls.infer_shapes(GOOD)
    assert gone_within(before, 2.0)
    assert worker() != before


def test_threads_get_their_own_answers() -> None:
    wrong: list[str] = []

    def ask(number: int) -> None:
        model = onnx.ModelProto()
        model.CopyFrom(GOOD)
        name = model.graph.node[0].output[0] = model.graph.node[1].input[0] = f"h{number}"
        for _ in range(20):
            found = [v.name for v in calls.infer_shapes(model).graph.value_info]
            if found != [name]:
                wrong.append(f"{name}: {found}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@not_on_windows("no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_program_has_a_process_of_its_own() -> None:
    before = worker()
    child = os.fork()
    if not child:
        try:
            os._exit(0 if worker() != before else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert worker() == before


_PARENT = """
import sys, threading
from dmlprep.process.onnx_worker import calls, door
from fixtures.crashing import MODELS
door.start()
print(door.shared.process.process.pid, flush=True)
{then}
"""
_HANG = "calls.infer_shapes(MODELS['einsum_dot']())"


@pytest.mark.parametrize("then", ["sys.stdin.read()", _HANG], ids=["idle", "at work"])
def test_it_dies_with_its_parent(then: str) -> None:
    command = [sys.executable, "-c", _PARENT.format(then=then)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.5)
        parent.kill()
        assert gone_within(pid, 2.0)


_BEFORE = {
    "at once": "",
    "while other things end": "import atexit, time; atexit.register(time.sleep, 1.0)\n",  # what is set first runs last
}
_BEHIND = (
    "import atexit, os, time; atexit.register(lambda: (os.kill(door.shared.process.process.pid, 9), time.sleep(1)))\n"
)


@pytest.mark.parametrize("how", [*_BEFORE, pytest.param("while others end the process", marks=pytest.mark.slow)])
def test_the_program_ends_while_a_thread_still_waits(how: str) -> None:
    first = _BEFORE.get(how, "")
    then = "" if how in _BEFORE else _BEHIND
    then += f"threading.Thread(target=lambda: {_HANG}, daemon=True).start()\nimport time\ntime.sleep(0.5)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    then += "\nprint(time.time(), flush=True)"
    done = subprocess.run(
        [sys.executable, "-c", first + _PARENT.format(then=then)],
        env=environment,
        capture_output=True,
        timeout=60,
        check=True,
    )
    pid, at_end = done.stdout.split()
    assert time.time() - float(at_end) < 9  # the request has ten seconds
    assert gone_within(int(pid), 2.0)
    assert done.stderr == b""


def test_a_process_that_does_not_start_is_no_fault_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    door.end()
    monkeypatch.setattr(sys, "executable", str(Path(sys.executable).parent / "no-such-python"))
    with pytest.raises(CheckNotRun, match="did not start"):
        calls.infer_shapes(GOOD)


def test_without_the_extension_module_by_itself_onnx_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An onnx that is laid out otherwise works as well, a little slower."""
    door.end()
    folder = door.library_of_onnx()[1]
    monkeypatch.setattr(door, "library_of_onnx", lambda: ("", folder))
    calls.check_model(GOOD)
    door.end()
    monkeypatch.setattr(door, "library_of_onnx", lambda: ("", ""))
    with pytest.raises(CheckNotRun, match="onnx"):
        calls.check_model(GOOD)
    door.end()


def test_what_was_answered_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    keeper = door.Door()
    answers = [[b"first"], ToolFailed("crashes"), [b"second"]]

    def ask(word: str, parts: list[bytes]) -> list[bytes]:
        asked.append(word)
        answer = answers[len(asked) - 1]
        if isinstance(answer, ToolFailed):
            raise answer
        return answer

    monkeypatch.setattr(keeper, "ask", ask)
    assert [keeper.ask_once("infer", [b"a"]) for _ in range(2)] == [[b"first"]] * 2
    with pytest.raises(ToolFailed):
        keeper.ask_once("infer", [b"b"])
    assert keeper.ask_once("infer", [b"b"]) == [b"second"]
    monkeypatch.setattr(door, "_CACHE_BYTES", 1)
    answers += [[b"third"], [b"fourth"], [b"fifth"]]
    assert [keeper.ask_once("infer", [part])[0] for part in (b"c", b"d", b"c")] == [b"third", b"fourth", b"fifth"]
