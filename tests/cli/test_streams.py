"""Output that goes into a pipe or a file: every encoding takes every name, and JSON stays JSON."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from onnx import parser

from dmlprep.cli.main import command_line

_LETTERS = "модель-日本-é"
_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x) => (float[batch, 4] y) <float[4] b = {1, 2, 3, 4}> { a = Add(x, b)  y = Relu(a) }"""

ENCODINGS = ["cp1252", "cp437", "ascii", "utf-16"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose folder, file, tensors and dimension have letters that few code pages hold together."""
    proto = parser.parse_model(_TEXT)
    proto.graph.input[0].name = f"вход-{_LETTERS}"
    proto.graph.node[0].input[0] = proto.graph.input[0].name
    proto.graph.output[0].name = f"出力-{_LETTERS}"
    proto.graph.node[1].output[0] = proto.graph.output[0].name
    path = tmp_path / f"папка {_LETTERS}" / f"{_LETTERS}.onnx"
    path.parent.mkdir()
    onnx.save(proto, str(path))
    return path


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, and the bytes of stdout and stderr."""

    returncode: int
    stdout: bytes
    stderr: bytes


Run = Callable[..., Done]


@pytest.fixture
def dmlprep(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, with streams of an encoding, as ``PYTHONIOENCODING`` makes a process's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path(__file__).parent / "none"))

    def command(encoding: str, *arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["dmlprep", *map(str, arguments)])
        streams = []
        for name in ("stdout", "stderr"):
            streams.append(io.TextIOWrapper(io.BytesIO(), encoding=encoding))
            monkeypatch.setattr(sys, name, streams[-1])
        with pytest.raises(SystemExit) as left:
            command_line()
        out, err = (_written(stream) for stream in streams)
        code = left.value.code
        return Done(code if isinstance(code, int) else 0, out, err)

    return command


def _written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()


def test_a_process_of_its_own(model: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "XDG_CACHE_HOME": str(Path(__file__).parent / "none")}
    line = ["prepare", str(model), "-o", str(tmp_path / "готово"), "--pin", "batch=2", "--device", "cpu"]
    done = subprocess.run([sys.executable, "-m", "dmlprep", *line], capture_output=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "wrote" in done.stdout.decode("cp1252")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-16"])
def test_prepare_ends_well_whatever_its_output_goes_to(
    encoding: str, model: Path, tmp_path: Path, dmlprep: Run
) -> None:
    done = dmlprep(encoding, "prepare", model, "-o", tmp_path / "готово", "--pin", "batch=2", "--device", "cpu")
    text = done.stdout.decode(encoding)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 nodes on DirectML" in text
    assert "wrote" in text
    assert (tmp_path / "готово" / "model.onnx").is_file()
    done.stderr.decode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_is_json_in_every_encoding(encoding: str, model: Path, dmlprep: Run) -> None:
    found = {}
    for form in ("json", "sarif"):
        done = dmlprep(encoding, "check", model, "--format", form)
        assert done.returncode in (0, 1), done.stderr
        found[form] = json.loads(done.stdout.decode(encoding))
    assert _LETTERS in json.dumps(found["json"], ensure_ascii=False)
    assert found["sarif"]["version"] == "2.1.0"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_error_names_the_path(encoding: str, tmp_path: Path, dmlprep: Run) -> None:
    missing = tmp_path / f"нет-{_LETTERS}.onnx"
    done = dmlprep(encoding, "check", missing)
    assert (done.returncode, done.stdout.decode(encoding)) == (2, "")
    text = done.stderr.decode(encoding)
    assert text.startswith("error: ")
    assert "é" in text or "\\xe9" in text, text
    assert "internal error" not in text


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of Windows cannot close a stream")
@pytest.mark.parametrize(
    "closed", [*(pytest.param(one, marks=pytest.mark.slow) for one in (">&-", "2>&-")), "<&- >&- 2>&-"]
)
def test_a_closed_stream_takes_everything(closed: str, model: Path) -> None:
    for arguments, code in ((f"check '{model}'", 0), ("report nowhere.json", 2), ("explain recipes", 0)):
        command = f"'{sys.executable}' -m dmlprep {arguments} {closed}"
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)
        assert done.returncode == code, (arguments, done.stderr)
        assert b"Traceback" not in done.stderr
