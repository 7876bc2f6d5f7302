"""check --watch: a model that changes is checked again, and an error appears once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from dmlprep.api import checking
from dmlprep.graph.model.input_watch import changed_models
from tests.changed import added, touch
from tests.cli.test_stopping import start_command
from tests.directml.placement.graphs import parsed
from tests.in_process import Run
from tests.living import interrupted
from tests.system import WINDOWS

_ONE = "g (float[2] x) => (float[2] y) { y = Relu (x) }"
_TWO = "g (float[2] x) => (float[2] y) { a = Relu (x)  y = Neg (a) }"


def _model(path: Path, text: str) -> Path:
    onnx.save(ir.to_proto(parsed(text, 17).ir), path)
    return path


def test_each_change_of_a_model_or_its_data_is_yielded_once(tmp_path: Path) -> None:
    a, b = added(tmp_path / "a.onnx"), added(tmp_path / "b.onnx")
    watch = changed_models([a, b], wait=0)
    assert [next(watch), next(watch)] == [a, b]
    touch(b)
    assert next(watch) == b
    touch(tmp_path / "a.data")
    assert next(watch) == a
    a.unlink()
    assert next(watch) == a
    added(a)
    touch(b.with_suffix(".data"))
    assert {next(watch), next(watch)} == {a, b}


def test_a_model_that_is_still_written_is_not_yielded(tmp_path: Path) -> None:
    path = _model(tmp_path / "m.onnx", _ONE)
    slept: list[float] = []

    def grow(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) < 5:
            path.write_bytes(path.read_bytes() + b"\0")

    watch = changed_models([path], pause=grow)
    assert [next(watch), next(watch)] == [path, path]
    assert len(slept) == 5  # four times it was longer than before


def test_data_files_outside_the_folder_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    a, b = added(tmp_path / "in" / "a.onnx"), added(tmp_path / "b.onnx")
    proto = onnx.load(a, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../b.data"
    onnx.save(proto, a)
    watch = changed_models([a, b], wait=0)
    assert [next(watch), next(watch)] == [a, b]
    touch(tmp_path / "b.data")
    assert next(watch) == b
    touch(tmp_path / "b.data")
    shutil.copy(a, b)
    assert next(watch) == b


def _scripted(monkeypatch: pytest.MonkeyPatch, *contents: bytes | None) -> None:
    """Watch one model: it gets each of the contents in turn (``None``: it is removed), then the user presses Ctrl-C."""

    def watch(paths: Sequence[Path]) -> Iterator[Path]:
        (path,) = paths
        yield path
        for content in contents:
            path.unlink() if content is None else path.write_bytes(content)
            yield path
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "changed_models", watch)


def test_errors_are_shown_once_and_the_watch_continues(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _model(tmp_path / "m.onnx", _ONE)
    whole = _model(tmp_path / "two.onnx", _TWO).read_bytes()
    _scripted(monkeypatch, whole[:-9], whole[:-9], whole, None, whole[:-9], whole)
    done = run("check", path, "--watch", "-q")
    assert done.code == 130
    assert [line.partition(": ")[2].split(" on ")[0] for line in done.out.splitlines()] == [
        "1 of 1 node",
        "2 of 2 nodes",
        "2 of 2 nodes",
    ]
    assert [line for line in done.err.splitlines() if line.startswith("error: ")] == [
        f"error: {path}: the file is truncated [DP001]",
        f"error: {path}: no such file [DP001]",
        f"error: {path}: the file is truncated [DP001]",
    ]


def test_each_result_is_a_document_of_its_own(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _model(tmp_path / "m.onnx", _ONE)
    _scripted(monkeypatch, _model(tmp_path / "two.onnx", _TWO).read_bytes())
    done = run("check", path, "--watch", "--format", "json")
    first, end = json.JSONDecoder().raw_decode(done.out)
    second = json.loads(done.out[end:])
    assert [len(one["nodes"]) for one in (first, second)] == [1, 2]


@pytest.mark.parametrize(
    ("options", "code"), [(["--target", "ort-9"], 2), (["--target", "all", "--verify"], 2), (["--verify"], 3)]
)
def test_an_error_that_no_change_of_the_model_fixes_ends_it(
    run: Run, tmp_path: Path, options: list[str], code: int
) -> None:
    if code == 3 and WINDOWS:
        pytest.skip("DirectML may be there")
    assert run("check", _model(tmp_path / "m.onnx", _ONE), "--watch", *options).code == code


def test_in_a_pipe(tmp_path: Path) -> None:
    """The files change while the command runs, and Windows lets them."""
    path = _model(tmp_path / "m.onnx", _ONE)
    process = start_command(["-m", "dmlprep", "check", str(path), "--watch", "-q"], tmp_path)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "1 of 1 node " in process.stdout.readline()
        path.write_bytes(path.read_bytes()[:-9])
        assert "truncated" in process.stderr.readline()
        _model(tmp_path / "new.onnx", _TWO).replace(path)
        assert "2 of 2 nodes " in process.stdout.readline()
        if not WINDOWS:
            assert "stopped" in interrupted(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(WINDOWS, reason="Windows has no pipes in folders")
def test_a_pipe_in_place_of_a_model_does_not_stop_the_watch(tmp_path: Path) -> None:
    path = added(tmp_path / "a.onnx")
    watch = changed_models([path], wait=0)
    assert next(watch) == path
    path.unlink()
    os.mkfifo(path)
    assert next(watch) == path
    path.unlink()
    added(path)
    assert next(watch) == path
