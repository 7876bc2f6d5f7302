"""The loader for Python, on the CPU provider and on a stand-in for DirectML's."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnxruntime
import pytest

import dmlprep
from dmlprep.directml.targets import find_target, target_names
from dmlprep.portable import loader
from dmlprep.portable.app_errors import requirement
from dmlprep.portable.app_sessions import CPU, DML
from dmlprep.portable.device import describe
from dmlprep.portable.dxgi import AdapterDesc
from dmlprep.portable.public import (
    AdapterMissing,
    BadInput,
    DeviceRemoved,
    Model,
    ModelError,
    OutOfMemory,
    PackageDamaged,
    RuntimeMissing,
)
from dmlprep.portable.sample import example
from tests.in_process import Run
from tests.system import WINDOWS

Array = np.ndarray[Any, Any]


class _Session:
    """What onnxruntime-directml's session is, computed by the CPU provider."""

    error = ""
    opened: ClassVar[list[Any]] = []
    alive: ClassVar[list[weakref.ref[_Session]]] = []
    busy = threading.Lock()  # of DirectML
    meeting: threading.Barrier | None = None

    def __init__(self, source: Any, settings: Any, providers: list[Any], enable_fallback: bool) -> None:
        assert not enable_fallback
        self.on_dml = providers[0] != CPU
        if not self.on_dml:
            self.busy = threading.Lock()
        assert settings.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        assert settings.enable_mem_pattern != self.on_dml
        type(self).opened.append((source, providers))
        if self.on_dml and self.error.startswith("open: "):
            raise RuntimeError(self.error)
        with self.alone():
            self._own = _REAL(source, settings, providers=[CPU])
        self.alive.append(weakref.ref(self))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        assert self.busy.acquire(blocking=False), "two runs or creations at a time"
        try:
            yield
        finally:
            self.busy.release()

    def get_providers(self) -> list[str]:
        return [DML, CPU] if self.on_dml else [CPU]

    def run(self, names: list[str], feeds: dict[str, Array]) -> list[Any]:
        if self.on_dml and self.error:
            raise RuntimeError(self.error)
        with self.alone():
            if self.meeting is not None:
                self.meeting.wait(60)
            return list(self._own.run(names, feeds))


_REAL = onnxruntime.InferenceSession


@pytest.fixture
def directml(monkeypatch: pytest.MonkeyPatch) -> type[_Session]:
    """A stand-in for DirectML; ``error`` is what its sessions say."""
    monkeypatch.setattr(onnxruntime, "InferenceSession", _Session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [DML, CPU])
    for name, value in (("error", ""), ("opened", []), ("alive", []), ("meeting", None)):
        monkeypatch.setattr(_Session, name, value)
    return _Session


def _feeds(model: Model, factor: float = 1.0) -> dict[str, Array]:
    return {one["name"]: example(one) * np.float32(factor) for one in model.inputs}


def test_it_gives_what_a_plain_session_gives(made: Path) -> None:
    model = Model(made, device="cpu")
    assert (model.asked, model.device, model.notice) == ("cpu", "cpu", "")
    assert model.evidence == f"the session lists only {CPU}"
    plain = _REAL(made / "model.onnx", providers=[CPU]).run(None, _feeds(model))
    np.testing.assert_array_equal(model.run(_feeds(model))["logits"], plain[0])


def test_directml_is_opened_as_it_demands(made: Path, directml: type[_Session]) -> None:
    model = Model(made, adapter=1, disable_metacommands=True)
    assert (model.device, model.evidence) == ("dml", f"the session lists {DML}")
    ((source, providers),) = directml.opened
    assert source == (made / "model.onnx").read_bytes()  # the very bytes that were checked
    assert providers == [(DML, {"device_id": "1", "disable_metacommands": "true"}), CPU]


@pytest.fixture
def recording(directml: type[_Session], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The providers with the number of their nodes, as the stand-in reports them."""
    parts: list[Any] = []
    monkeypatch.setattr(directml, "get_provider_graph_assignment_info", lambda session: parts, raising=False)
    return parts


def _part(provider: str, nodes: int) -> Any:
    return SimpleNamespace(ep_name=provider, get_nodes=lambda: [object()] * nodes)


def test_the_evidence_is_the_number_of_nodes(made: Path, recording: list[Any]) -> None:
    recording += [_part(DML, 20), _part(CPU, 1), _part(DML, 3)]
    model = Model(made)
    assert (model.device, model.evidence) == ("dml", f"ONNX Runtime assigned 23 of 24 nodes to {DML}")
    model.close()
    assert (model.asked, model.device, model.evidence) == ("dml", "", "")


def test_directml_that_runs_no_node_is_not_the_device(made: Path, recording: list[Any]) -> None:
    recording += [_part(CPU, 24)]
    with pytest.raises(ModelError, match="assigned 0 of 24 nodes to DmlExecutionProvider"):
        Model(made)
    model = Model(made, device="dml-or-cpu")
    assert (model.asked, model.device) == ("dml-or-cpu", "cpu")
    assert "assigned 0 of 24 nodes" in model.notice


def _threads(work: Callable[[int], None], count: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, number) for number in range(count)]:
            done.result()


def test_on_directml_threads_and_models_take_turns(made: Path, directml: type[_Session]) -> None:
    models = [Model(made), Model(made)]
    expected = [models[0].run(_feeds(models[0], factor))["logits"] for factor in range(4)]

    def work(number: int) -> None:
        for turn in range(5):
            model = models[(number + turn) % 2]
            np.testing.assert_array_equal(model.run(_feeds(model, number))["logits"], expected[number])
            Model(made).close()

    _threads(work, 4)


def test_on_the_cpu_models_run_side_by_side(made: Path, directml: type[_Session]) -> None:
    models = [Model(made, device="cpu"), Model(made, device="cpu")]
    directml.meeting = threading.Barrier(2)  # each run waits for the other
    _threads(lambda number: models[number].run(_feeds(models[number])) and None, 2)


@pytest.mark.parametrize("code", ["887A0005", "887A0006", "887A0007", "887A0020"])
def test_a_device_that_went_away(made: Path, directml: type[_Session], code: str) -> None:
    model = Model(made)
    directml.error = f"Non-zero status code: DmlCommandRecorder.cpp(371) {code} The GPU device instance was suspended."
    for _ in range(2):  # the session is gone; so says every later run
        with pytest.raises(DeviceRemoved, match=rf"{code} .* call reopen\(\)") as said:
            model.run(_feeds(model))
    assert "reopen(device='cpu')" in str(said.value)
    directml.error = ""
    with pytest.raises(DeviceRemoved):
        model.run(_feeds(model))
    model.reopen()
    assert model.run(_feeds(model))["logits"].shape == (1, 10)
    model.reopen(device="cpu")
    model.reopen()
    assert model.device == "cpu"


@pytest.mark.parametrize(
    "text", ["8007000E Not enough memory resources", "bad allocation", "Failed to allocate memory"]
)
def test_no_memory(made: Path, directml: type[_Session], text: str) -> None:
    model = Model(made)
    directml.error = text
    with pytest.raises(OutOfMemory, match="smaller inputs"):
        model.run(_feeds(model))


def test_the_cpu_in_place_of_directml_says_so(
    made: Path, directml: type[_Session], caplog: pytest.LogCaptureFixture
) -> None:
    directml.error = "open: 887A0004 The specified device interface or feature level is not supported"
    with pytest.raises(AdapterMissing, match="887A0004"):
        Model(made)
    model = Model(made, device="dml-or-cpu")
    assert (model.asked, model.device) == ("dml-or-cpu", "cpu")
    assert "887A0004" in model.notice
    assert model.evidence == f"the session lists only {CPU}"
    model.run(_feeds(model))
    assert [(one.name, one.getMessage()) for one in caplog.records] == [("dmlprep_model", model.notice)]
    model.reopen()  # on the device as before
    assert (model.asked, model.device) == ("dml-or-cpu", "cpu")
    directml.error = ""
    model.reopen()
    assert (model.asked, model.device, model.notice) == ("dml-or-cpu", "dml", "")


def test_the_session_that_failed_is_freed_while_the_error_is_handled(made: Path, directml: type[_Session]) -> None:
    model = Model(made)
    directml.error = "8007000E Not enough memory resources"
    with pytest.raises(OutOfMemory) as raised:
        model.run(_feeds(model))
    assert model.device == ""
    gc.collect()
    assert raised.value.__cause__ is not None
    assert [one() for one in directml.alive] == [None]


def _required(app: Path) -> str:
    return (app / "requirements.txt").read_text(encoding="utf-8").splitlines()[1]


def test_without_directml_it_says_what_to_install(made: Path) -> None:
    if DML in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has DirectML")
    with pytest.raises(RuntimeMissing) as refused:
        Model(made)
    assert f'pip install "{_required(made)}"' in str(refused.value)


def test_without_onnxruntime_it_says_what_to_install(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for device in ("dml", "cpu", "dml-or-cpu"):
        with pytest.raises(RuntimeMissing) as refused:
            Model(made, device=device)
        assert f'pip install "{_required(made)}"' in str(refused.value)


def test_a_runtime_that_is_too_old(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", "1.2.0")
    with pytest.raises(RuntimeMissing, match=r"1\.2\.0 is older than 1\.") as refused:
        Model(made, device="cpu")
    assert f'pip install "{_required(made)}"' in str(refused.value)


@pytest.mark.parametrize("name", [*target_names(), *target_names("windowsml")])
def test_what_to_install_exists(name: str) -> None:
    target = find_target(name)
    for lowest in (find_target(other) for other in target_names()):
        if lowest.release > target.release:
            break
        versions = {"onnxruntime": target.ort_version, "lowest_onnxruntime": lowest.ort_version}
        package, oldest = requirement({"name": name, **versions}).split(">=")
        exist = [one for one in map(find_target, target_names()) if one.package == package]
        assert exist[-1].release >= min(tuple(map(int, oldest.split("."))), exist[-1].release) >= lowest.release
        if target.package.startswith("onnxruntime-") and target.package != "onnxruntime-node":
            assert package == target.package


def _card(number: int, name: str, vendor: int) -> Any:
    desc = AdapterDesc()
    desc.description[: len(name)] = [ord(letter) for letter in name]
    desc.vendor, desc.luid[0] = vendor, number + 1
    return describe(desc, number)


def test_adapters_by_vendor_name_and_preference(
    made: Path, directml: type[_Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    small, large = _card(0, "Intel UHD", 0x8086), _card(1, "GeForce RTX", 0x10DE)
    found = (replace(small, preferences=("minimum_power",)), replace(large, preferences=("high_performance",)))
    monkeypatch.setattr(loader, "adapters", lambda: found)
    for wanted, number in (("NVIDIA", 1), ("uhd", 0), ("high_performance", 1), ("minimum_power", 0)):
        Model(made, adapter=wanted)
        assert directml.opened[-1][1][0][1]["device_id"] == str(number)
    with pytest.raises(AdapterMissing, match="no adapter matches 'AMD'; there are: 0 Intel UHD, 1 GeForce RTX"):
        Model(made, adapter="AMD")


@pytest.mark.parametrize(
    ("feeds", "said"),
    [
        ({}, "'pixel_values' is missing"),
        ({"pixel_values": np.zeros((1, 3, 32, 32))}, "is float64, but the model needs float32"),
        ({"pixel_values": np.zeros((1, 32, 32, 3), np.float32)}, r"is \[1, 32, 32, 3\], but the model needs"),
        ({"pixel_values": np.zeros((1, 3, 32, 32), np.float32), "more": np.zeros(1)}, "no input 'more'"),
    ],
)
def test_inputs_that_do_not_fit(made: Path, feeds: dict[str, Array], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Model(made, device="cpu").run(feeds)


def test_bytes_in_place_of_files(made: Path) -> None:
    kept = {p.name: bytes(byte ^ 0x5A for byte in p.read_bytes()) for p in made.iterdir() if p.is_file()}  # "encrypted"

    def read(name: str) -> bytes:
        return bytes(byte ^ 0x5A for byte in kept[name])

    model = Model(read=read, device="cpu")
    assert model.run(_feeds(model))["logits"].shape == (1, 10)
    kept["model.onnx"] = kept["model.onnx"][:-1] + b"\0"
    with pytest.raises(PackageDamaged, match=r"^model\.onnx was changed"):
        Model(read=read, device="cpu")
    with pytest.raises(PackageDamaged, match=r"^model\.json is missing: "):
        Model(read=dict[str, bytes]().get, device="cpu")


def test_a_closed_model(made: Path) -> None:
    with Model(made, device="cpu") as model:
        model.run(_feeds(model))
    with pytest.raises(ModelError, match="closed"):
        model.run(_feeds(model))
    assert (model.device, model.evidence) == ("", "")


_APP = """
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from {module} import Device, Model, Tensor


def logits(pixels: NDArray[np.float32], device: Device = "cpu") -> NDArray[np.float32]:
    with Model(device=device) as model:
        one: Tensor = model.inputs[0]
        assert one["shape"] == list(pixels.shape)
        return model.run({{one["name"]: pixels}})["logits"]


print(logits(np.zeros((1, 3, 32, 32), np.float32)).shape)
"""


def _within_a_package(made: Path, folder: Path) -> Path:
    """Copy the package into the package ``shop`` of an app, with a module that uses it; return its folder."""
    vision = folder / "shop" / "vision"
    shutil.copytree(made, vision, ignore=shutil.ignore_patterns("sample.py"))
    for place in (vision.parent, vision):
        (place / "__init__.py").touch()
    (vision / "main.py").write_text(_APP.format(module=".dmlprep_model"))
    return vision


def _python(folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [sys.executable, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_it_works_within_another_package(made: Path, tmp_path: Path, place: str) -> None:
    vision = _within_a_package(made, tmp_path)
    if place == "inside":
        for name in ("model.json", "model.json.sha256", "model.onnx"):
            (vision / name).rename(vision / "dmlprep_model" / name)
    assert _python(tmp_path, "-c", "import shop.vision.main") == "(1, 10)\n"


def test_its_types_are_whole(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    _within_a_package(made, tmp_path)
    _python(tmp_path, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "shop")


def test_without_its_files_it_says_where_it_looked(made: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageDamaged) as refused:
        Model(tmp_path)
    assert str(refused.value).startswith(f"model.json is missing in {tmp_path}: ")


def _sample(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(folder / "sample.py"), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, cwd=folder)


def test_the_sample_prints_the_numbers(made: Path, app: Path) -> None:
    done = _sample(app, "cpu")
    assert done.returncode == 0, done.stderr
    device, logits, _, verdict = done.stdout.splitlines()
    assert device == "device cpu"
    model = Model(made, device="cpu")
    expected = " ".join(f"{value:.6f}" for value in model.run(_feeds(model))["logits"][0, :8])
    assert (logits, verdict) == (f"logits 1x10 {expected}", "as expected")


@pytest.mark.dml
@pytest.mark.skipif(not WINDOWS, reason="onnxruntime-directml is for Windows: python scripts/windows.py test")
def test_on_the_real_directml(tmp_path: Path, run: Run) -> None:
    from tests.fixtures_index import fixture

    one, out, app = fixture("residual_cnn"), tmp_path / "out", tmp_path / "app"
    record = dmlprep.prepare(
        one.path, out=out, recipe="@vision-fp16", pins={"batch": 1}, device="dml", require_dml=True
    )
    assert record.exit_code == 0, record.error
    assert dmlprep.package_model(out, out=app, language="python").contract.unproven == []
    done = _sample(app, "dml", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("device dml\n")
    model = Model(app, adapter="high_performance")
    assert model.device == "dml"
    numbers = model.run(_feeds(model))["logits"]
    printed = [float(word) for word in done.stdout.splitlines()[1].split()[2:]]
    np.testing.assert_allclose(numbers[0, :8], printed, atol=1e-5)
    on_cpu = Model(app, device="cpu").run(_feeds(model))["logits"]
    assert np.abs(numbers - on_cpu).max() <= 0.03 * np.abs(on_cpu).max()
    answers: list[Array] = []
    threads = [threading.Thread(target=lambda: answers.append(model.run(_feeds(model))["logits"])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(answer, numbers) for answer in answers)
    assert len(answers) == 2
    with pytest.raises(AdapterMissing):
        Model(app, adapter=99)
