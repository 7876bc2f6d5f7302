"""The loader for Python, on the CPU provider and on a stand-in for DirectML's."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnxruntime
import pytest

import dmlprep
from dmlprep.portable import loader
from dmlprep.portable.device import describe
from dmlprep.portable.dxgi import AdapterDesc
from dmlprep.portable.loader import (
    AdapterMissing,
    BadInput,
    DeviceRemoved,
    Model,
    ModelError,
    OutOfMemory,
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
    running = 0
    at_once = 0

    def __init__(self, source: Any, settings: Any, providers: list[Any], enable_fallback: bool) -> None:
        assert not enable_fallback
        self.on_dml = providers[0] != loader.CPU
        assert settings.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        assert settings.enable_mem_pattern != self.on_dml
        type(self).opened.append((source, providers))
        if self.on_dml and self.error.startswith("open: "):
            raise RuntimeError(self.error)
        self._own = _REAL(source, settings, providers=[loader.CPU])

    def get_providers(self) -> list[str]:
        return [loader.DML, loader.CPU] if self.on_dml else [loader.CPU]

    def run(self, names: list[str], feeds: dict[str, Array]) -> list[Any]:
        if self.on_dml and self.error:
            raise RuntimeError(self.error)
        kind = type(self)
        kind.running += 1
        kind.at_once = max(kind.at_once, kind.running)
        time.sleep(0.002)
        try:
            return list(self._own.run(names, feeds))
        finally:
            kind.running -= 1


_REAL = onnxruntime.InferenceSession


@pytest.fixture
def directml(monkeypatch: pytest.MonkeyPatch) -> type[_Session]:
    """A stand-in for DirectML; ``error`` is what its sessions say."""
    monkeypatch.setattr(onnxruntime, "InferenceSession", _Session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [loader.DML, loader.CPU])
    monkeypatch.setattr(_Session, "error", "")
    monkeypatch.setattr(_Session, "opened", [])
    monkeypatch.setattr(_Session, "at_once", 0)
    return _Session


def _feeds(model: Model, factor: float = 1.0) -> dict[str, Array]:
    return {one["name"]: example(one) * np.float32(factor) for one in model.inputs}


def test_it_gives_what_a_plain_session_gives(made: Path) -> None:
    model = Model(made, device="cpu")
    assert (model.device, model.notice) == ("cpu", "")
    plain = _REAL(made / "model.onnx", providers=[loader.CPU]).run(None, _feeds(model))
    np.testing.assert_array_equal(model.run(_feeds(model))["logits"], plain[0])


def test_directml_is_opened_as_it_demands(made: Path, directml: type[_Session]) -> None:
    model = Model(made, adapter=1, disable_metacommands=True)
    assert model.device == "dml"
    ((source, providers),) = directml.opened
    assert source == (made / "model.onnx").read_bytes()  # the very bytes that were checked
    assert providers == [(loader.DML, {"device_id": "1", "disable_metacommands": "true"}), loader.CPU]


def test_threads_and_models_take_turns(made: Path, directml: type[_Session]) -> None:
    models = [Model(made), Model(made)]
    expected = [models[0].run(_feeds(models[0], factor))["logits"] for factor in range(4)]
    wrong: list[str] = []

    def work(number: int) -> None:
        for _ in range(5):
            answer = models[number % 2].run(_feeds(models[0], number))["logits"]
            if not np.array_equal(answer, expected[number]):
                wrong.append(f"thread {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert directml.at_once == 1


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
    assert model.device == "cpu"
    assert "887A0004" in model.notice
    assert model.notice in caplog.text
    directml.error = ""
    model.reopen()
    assert (model.device, model.notice) == ("dml", "")


def test_without_directml_it_says_what_to_install(made: Path) -> None:
    if loader.DML in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has DirectML")
    with pytest.raises(RuntimeMissing, match="pip install onnxruntime-directml"):
        Model(made)


def test_a_runtime_that_is_too_old(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", "1.2.0")
    with pytest.raises(RuntimeMissing, match=r"1\.2\.0 is older than 1\."):
        Model(made, device="cpu")


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
    kept = {p.name: bytes(byte ^ 0x5A for byte in p.read_bytes()) for p in made.iterdir()}  # "encrypted"

    def read(name: str) -> bytes:
        return bytes(byte ^ 0x5A for byte in kept[name])

    model = Model(read=read, device="cpu")
    assert model.run(_feeds(model))["logits"].shape == (1, 10)
    kept["model.onnx"] = kept["model.onnx"][:-1] + b"\0"
    with pytest.raises(loader.PackageDamaged, match=r"^model\.onnx was changed"):
        Model(read=read, device="cpu")


def test_a_closed_model(made: Path) -> None:
    model = Model(made, device="cpu")
    model.close()
    with pytest.raises(ModelError, match="closed"):
        model.run(_feeds(model))


def _sample(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(folder / "sample.py"), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, cwd=folder)


def test_the_sample_prints_the_numbers(made: Path, app: Path) -> None:
    done = _sample(app, "cpu")
    assert done.returncode == 0, done.stderr
    device, logits = done.stdout.splitlines()
    assert device == "device cpu"
    model = Model(made, device="cpu")
    expected = " ".join(f"{value:.6f}" for value in model.run(_feeds(model))["logits"][0, :8])
    assert logits == f"logits 1x10 {expected}"


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
