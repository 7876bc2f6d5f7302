"""The runner, as the person on the other machine meets it."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dmlprep import api
from dmlprep.portable import device, dxgi, integrity, runner
from dmlprep.record import RunRecord
from tests.hostile_names import nothing_acts
from tests.kit.box import CPU, extract, run_kit, stand_in
from tests.living import alive, gone_within
from tests.system import WINDOWS, break_off, not_on_windows


def _result(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return dict(json.loads(archive.read("result.json")))


def test_it_runs_on_the_cpu_and_says_that_this_is_not_directml(made: Path) -> None:
    result = _result(made / "result.zip")
    assert result["outcome"] == "passed"
    assert result["provider"] == "CPUExecutionProvider"
    assert result["session"]["providers"] == ["CPUExecutionProvider"]
    assert result["session"]["kernels"].keys() == {"CPUExecutionProvider"}
    assert all(len(feed["seconds"]) == 5 for feed in result["feeds"])
    assert integrity.seal(result) == result["seal"]


def test_without_directml_it_is_not_run_and_says_what_to_install(box: Path, tmp_path: Path) -> None:
    without = stand_in(tmp_path / "site", "missing")
    done = run_kit(box, environment=without)
    assert done.returncode == 3
    assert f"pip install {json.loads((box / 'kit.json').read_bytes())['package']}" in done.stdout
    result = _result(box / "result.zip")
    assert result["outcome"] == "not-run"
    assert result["files"] == {}
    again = run_kit(box, environment=without)
    assert again.returncode == 2
    assert "--force" in again.stdout


@pytest.mark.parametrize(
    ("mode", "code", "said"),
    [
        ("good", 0, "Radeon"),
        ("wrong", 1, "NOT as expected"),
        ("left-out", 3, "did not add DmlExecutionProvider"),
        ("idle", 3, "no node ran on DirectML"),
        ("refused", 1, "80070057 E_INVALIDARG"),
        ("removed", 1, "887A0005 DXGI_ERROR_DEVICE_REMOVED"),
        ("crash", 1, f"the process died with {'exit code 3' if WINDOWS else 'signal 6'}"),
    ],
)
def test_on_a_stand_in_for_directml(box: Path, tmp_path: Path, mode: str, code: int, said: str) -> None:
    done = run_kit(box, environment=stand_in(tmp_path / "site", mode))
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    assert sorted(p.name for p in box.iterdir() if p.name.startswith((".run", "result"))) == ["result.zip"]
    result = _result(box / "result.zip")
    assert result["outcome"] == {0: "passed", 1: "failed", 3: "not-run"}[code]


@pytest.mark.slow
def test_a_hang_ends_with_the_time_limit(box: Path, tmp_path: Path) -> None:
    limit = "30" if WINDOWS else "4"  # starting takes some seconds there
    done = run_kit(box, "--time-limit", limit, environment=stand_in(tmp_path / "site", "hang"))
    assert done.returncode == 1
    assert f"longer than {limit} seconds" in done.stdout


def _until_it_runs(box: Path) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for state in box.glob(".run-*/state.json"):
            with contextlib.suppress(OSError):  # on Windows: at the moment of its replacement
                if "run feed" in state.read_text():
                    return
        time.sleep(0.05)


def test_a_runner_that_is_killed_leaves_no_process(box: Path, tmp_path: Path) -> None:
    environment = {**os.environ, **stand_in(tmp_path / "site", "hang")}
    process = subprocess.Popen([sys.executable, "run.py"], cwd=box, env=environment, stdout=subprocess.DEVNULL)
    _until_it_runs(box)
    note = tmp_path / "site" / "pid"
    worker = int(note.read_text())
    assert alive(worker)
    process.kill()
    process.wait(30)
    assert gone_within(worker, 10.0), "the worker lives on"


_ENDS = [signal.CTRL_BREAK_EVENT] if sys.platform == "win32" else [signal.SIGINT, signal.SIGTERM]


@break_off
@pytest.mark.parametrize("end", _ENDS)
def test_stopping_leaves_nothing(box: Path, tmp_path: Path, end: signal.Signals) -> None:
    environment = {**os.environ, **stand_in(tmp_path / "site", "hang")}
    before = sorted(p.name for p in box.iterdir())
    # Where the tests themselves run in the background, SIGINT is ignored, and what they start inherits that.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "run.py"],
        cwd=box,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    signal.signal(signal.SIGINT, ours)
    _until_it_runs(box)
    process.send_signal(end)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == (143 if end == signal.SIGTERM else 130), out
    assert "no result was written" in out
    assert sorted(p.name for p in box.iterdir()) == before


@pytest.mark.parametrize(
    ("target", "package"),
    [
        ("", "onnxruntime-directml"),
        ("ort-1.24", "onnxruntime-directml"),
        ("ort-1.30", "onnxruntime-windowsml"),
        ("windowsml-2.5", "onnxruntime-windowsml"),
    ],
)
def test_the_package_to_install_is_that_of_the_target(made: Path, tmp_path: Path, target: str, package: str) -> None:
    shutil.copytree(made / "out", tmp_path / "out")
    record = RunRecord.read(tmp_path / "out")
    record.target, record.input = target, str(made / "original.onnx")
    (tmp_path / "out" / "run.json").write_bytes(record.to_json())
    api.pack_kit(tmp_path / "out" / "model.onnx", out=tmp_path / "kit.zip")
    box = extract(tmp_path / "kit.zip", tmp_path / "box")
    assert f"pip install numpy {package}\n" in (box / "README.txt").read_text(encoding="utf-8")
    done = run_kit(box, environment=stand_in(tmp_path / "site", "missing"))
    assert f"pip install {package}" in done.stdout


def test_every_file_is_checked_before_anything_runs(box: Path) -> None:
    names = sorted(json.loads((box / "kit.json").read_bytes())["files"])
    assert {"run.py", "README.txt", "model/model.onnx", "feeds/0-0.npy", "expected/0-0.npy"} <= set(names)
    manifest, _ = integrity.read_manifest(box)
    assert integrity.problems(box, manifest) == []
    for name in names:
        path = box / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if whole else b"x")
        assert [p.split()[0] for p in integrity.problems(box, manifest)] == [name]
        path.write_bytes(whole[:-1])
        assert [p.split()[0] for p in integrity.problems(box, manifest)] == [name] or not whole
        path.unlink()
        assert integrity.problems(box, manifest) == [f"{name} is missing"]
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["numpy.py", "dmlprep_kit/extra.py", "model/other.onnx"])
def test_what_was_added_is_refused(box: Path, name: str) -> None:
    (box / name).write_bytes(b"raise SystemExit(0)\n")
    done = run_kit(box, *CPU)
    assert done.returncode == 2
    assert f"{name} does not belong to the kit" in done.stdout
    assert not (box / "result.zip").exists()


def test_a_damaged_model_is_refused(box: Path) -> None:
    with (box / "model" / "model.onnx").open("r+b") as file:
        file.seek(50)
        file.write(b"\xff")
    done = run_kit(box, *CPU)
    assert done.returncode == 2
    assert "model/model.onnx is not the file that was packed" in done.stdout


def test_a_venv_beside_it_is_no_harm(box: Path) -> None:
    (box / "venv" / "Lib").mkdir(parents=True)
    (box / "venv" / "Lib" / "numpy.py").write_text("x = 1\n")
    (box / "Thumbs.db").write_bytes(b"1")
    assert integrity.problems(box, integrity.read_manifest(box)[0]) == []


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"\xff", b'{"format": 2, "files": {}}'])
def test_a_manifest_that_is_none(box: Path, raw: bytes) -> None:
    (box / "kit.json").write_bytes(raw)
    done = run_kit(box, *CPU)
    assert (done.returncode, done.stderr) == (2, "")
    assert "kit.json" in done.stdout


def test_the_runner_is_python_3_9_with_numpy_and_onnxruntime_alone(box: Path) -> None:
    files = [box / "run.py", *sorted((box / "dmlprep_kit").glob("*.py"))]
    assert {"measure", "rows", "comparison", "output_metrics", "process", "replacing"} <= {path.stem for path in files}
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        top = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                top |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                if node.level:
                    beside = [node.module] if node.module else [alias.name for alias in node.names]
                    assert all((path.parent / f"{name}.py").is_file() for name in beside), beside
                else:
                    top.add(str(node.module).partition(".")[0])
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
                assert not node.keywords, "zip(strict=) is of Python 3.10"
        assert top - set(sys.stdlib_module_names) <= {"numpy", "onnxruntime", "dmlprep_kit"}, path


@not_on_windows("Windows has no such name of a file")
def test_names_that_the_runner_shows_do_nothing(box: Path, tmp_path: Path) -> None:
    out = tmp_path / "\x1b[2Ja\n::error::b##vso[x].zip"
    out.touch()
    done = run_kit(box, *CPU, "-o", out)
    assert done.returncode == 2
    nothing_acts(done.stdout)
    assert len(done.stdout.splitlines()) == 2


def test_versions_and_adapters_are_read_from_their_structures() -> None:
    block = struct.pack("<4I", 0xFEEF04BD, 0x10000, 1 << 16 | 15, 4 << 16 | 1) + bytes(36)
    assert device.fixed_version(block) == "1.15.4.1"
    with pytest.raises(ValueError, match="VS_FIXEDFILEINFO"):
        device.fixed_version(block[:8])
    assert device.driver_version(31 << 48 | 0 << 32 | 15 << 16 | 4601) == "31.0.15.4601"
    desc = dxgi.AdapterDesc()
    assert ctypes.sizeof(desc) == 312 if ctypes.sizeof(ctypes.c_size_t) == 8 else 292
    desc.description[:5] = [ord(c) for c in "GPU é"]
    desc.vendor, desc.device, desc.dedicated_video, desc.flags = 0x10DE, 0x2684, 24 << 30, 0
    one = device.describe(desc, 2, 31 << 48 | 4601)
    assert (one.number, one.name, one.vendor, one.vendor_id, one.model_id) == (2, "GPU é", "NVIDIA", 0x10DE, 0x2684)
    assert (one.dedicated_memory, one.driver, one.software) == (24 << 30, "31.0.0.4601", False)
    assert device.adapter_facts(0) == {} or sys.platform == "win32"


def _has(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A machine with NVIDIA's adapters of these names."""
    cards = []
    for number, name in enumerate(names):
        desc = dxgi.AdapterDesc()
        desc.description[: len(name)] = [ord(letter) for letter in name]
        desc.vendor, desc.luid[0] = 0x10DE, number + 1
        cards.append((desc, None))
    monkeypatch.setattr(dxgi, "read_dxgi", lambda: dxgi.Dxgi(cards, {}))


def test_an_adapter_is_chosen_by_name(
    box: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _has(monkeypatch, "RTX 4070", "RTX 2000")
    runner.main(box, ["--adapter", "2000"])  # only its result says how DirectML is here
    assert _result(box / "result.zip")["session"]["options"]["device_id"] == "1"
    capsys.readouterr()
    for name, said in (
        ("AMD", "no adapter matches 'AMD'; there are: 0 RTX 4070, 1 RTX 2000"),
        ("nvidia", "2 adapters match 'nvidia': 0 RTX 4070, 1 RTX 2000"),
    ):
        assert runner.main(box, ["--force", "--adapter", name]) == 2
        assert said in capsys.readouterr().out
    assert runner.main(box, ["--force", "--adapter", "4070", *CPU]) == 2
    with pytest.raises(SystemExit) as left:
        runner.main(box, ["--force", "--adapter", "4070", "--device-id", "0"])
    assert left.value.code == 2


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "1e9", "9" * 5000, "x"])
def test_a_time_limit_ends(box: Path, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        runner.main(box, [*CPU, "--time-limit", value])
    assert left.value.code == 2
    assert "not a number of seconds above 0" in capsys.readouterr().err
    assert not (box / "result.zip").exists()


@pytest.mark.parametrize("option", ["--runs", "--device-id"])
@pytest.mark.parametrize("value", ["-1", "1" + 20 * "0", "9" * 5000, "1.5", "nan"])
def test_numbers_have_bounds(box: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        runner.main(box, [*CPU, option, value])
    assert left.value.code == 2
    assert "not a whole number from" in capsys.readouterr().err


def test_an_adapter_that_the_kit_asks_for_and_is_not_there_is_not_run(box: Path, tmp_path: Path) -> None:
    manifest = json.loads((box / "kit.json").read_bytes())
    manifest["session"]["adapter"] = "NVIDIA"
    (box / "kit.json").write_text(json.dumps(manifest))
    done = run_kit(box, environment=stand_in(tmp_path / "site", "good"))
    assert done.returncode == 3
    assert "the kit asks for the adapter 'NVIDIA': no adapter matches 'NVIDIA'; there are: 0 Radeon" in done.stdout
    assert _result(box / "result.zip")["session"]["options"] == {**manifest["session"], "adapter": "NVIDIA"}
    done = run_kit(box, "--force", "--device-id", "1", environment=stand_in(tmp_path / "site", "good"))
    assert done.returncode == 0, done.stdout
    result = _result(box / "result.zip")
    assert "adapter" not in result["session"]["options"]
    assert (result["device"]["adapter number"], result["device"]["driver"]) == ("1", "31.0.1.2")
    done = run_kit(box, "--force", "--device-id", "7", environment=stand_in(tmp_path / "site", "good"))
    assert done.returncode == 3
    assert "there is no adapter 7 (887A0002 DXGI_ERROR_NOT_FOUND); there are: 0 Radeon" in done.stdout
