"""DirectML on Windows, as far as it can be seen without Windows: what is asked of ONNX Runtime."""

from __future__ import annotations

import io
from enum import Enum
from importlib import metadata
from pathlib import Path

import pytest

from dmlprep.core.errors import CheckNotRun
from dmlprep.portable import device, dxgi
from dmlprep.portable.ortoptions import config_entries, provider_options, providers, session_settings
from dmlprep.process.wire import encode
from dmlprep.runtime import SessionHost, dml
from dmlprep.runtime.selftest import SelfTest
from dmlprep.runtime.served import option_lines
from dmlprep.runtime.serving import Worker, serve
from dmlprep.runtime.session import python_worker
from dmlprep.runtime.types import Fp16Traits, SessionOptions
from dmlprep.runtime.windows import describe, file_version, provider_missing, session_facts


class Mode(Enum):
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class Level(Enum):
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_ALL = 99


class FakeSettings:
    """Records what is set, as onnxruntime.SessionOptions would."""

    def __init__(self) -> None:
        self.enable_mem_pattern = True
        self.execution_mode = Mode.ORT_PARALLEL
        self.calls: list[tuple[str, str, object]] = []

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        self.calls.append(("name", name, size))

    def add_free_dimension_override_by_denotation(self, name: str, size: int) -> None:
        self.calls.append(("denotation", name, size))

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.calls.append(("config", key, value))


def sent(options: SessionOptions) -> dict[str, str]:
    return {line[1]: line[2] for line in option_lines(options)}


def settings_of(options: SessionOptions) -> FakeSettings:
    settings = FakeSettings()
    session_settings(settings, sent(options), "dml", "profile", Level)
    return settings


def test_what_directml_needs_is_always_set() -> None:
    settings = settings_of(SessionOptions())
    assert settings.enable_mem_pattern is False
    assert settings.execution_mode is Mode.ORT_SEQUENTIAL
    assert settings.graph_optimization_level is Level.ORT_ENABLE_ALL
    assert settings.calls == []


def test_every_option_reaches_onnxruntime() -> None:
    settings = settings_of(
        SessionOptions(
            optimization="disabled",
            threads=3,
            free_dimensions={"batch": 2, "config:odd": 5},
            denotations={"DATA_CHANNEL": 3},
            config={"ep.dml.disable_memory_arena": "1"},
            unfused=True,
            record_placement=True,
            cpu_fallback=False,
            profile=True,
        )
    )
    assert settings.graph_optimization_level is Level.ORT_DISABLE_ALL
    assert settings.intra_op_num_threads == 3
    assert settings.enable_profiling is True
    assert settings.calls == [
        ("name", "batch", 2),
        ("name", "config:odd", 5),
        ("denotation", "DATA_CHANNEL", 3),
        ("config", "session.record_ep_graph_assignment_info", "1"),
        ("config", "ep.dml.disable_graph_fusion", "1"),
        ("config", "session.disable_cpu_ep_fallback", "1"),
        ("config", "ep.dml.disable_memory_arena", "1"),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (SessionOptions(), {"device_id": "0"}),
        (SessionOptions(device_id=1), {"device_id": "1"}),
        (SessionOptions(device_id=0, performance_preference="high_performance"), {"device_id": "0"}),
        (SessionOptions(performance_preference="minimum_power"), {"performance_preference": "minimum_power"}),
        (SessionOptions(disable_metacommands=True), {"device_id": "0", "disable_metacommands": "true"}),
    ],
)
def test_provider_options(options: SessionOptions, expected: dict[str, str]) -> None:
    assert provider_options(sent(options)) == expected


def test_provider_lists() -> None:
    dml_first = ("DmlExecutionProvider", {"device_id": "0"})
    assert providers(sent(SessionOptions()), "dml") == [dml_first, "CPUExecutionProvider"]
    assert providers(sent(SessionOptions(cpu_fallback=False)), "dml") == [dml_first]
    assert providers(sent(SessionOptions(device_id=1)), "cpu") == ["CPUExecutionProvider"]
    assert "ep.dml.disable_graph_fusion" not in config_entries(sent(SessionOptions(unfused=True)), "cpu")


def test_file_version(tmp_path: Path) -> None:
    path = tmp_path / "DirectML.dll"
    path.write_bytes(
        b"MZ"
        + b"\xbd\x04\xef\xfe"
        + b"\0\0\1\0"
        + (1 << 16 | 15).to_bytes(4, "little")
        + (4 << 16).to_bytes(4, "little")
    )
    assert file_version(path) == "1.15.4"
    path.write_bytes(b"MZ")
    assert file_version(path) == "?"


def test_describe() -> None:
    facts = {
        "directml": "1.15.4",
        "onnxruntime": "1.24.4",
        "adapter": "Radeon",
        "directml library": "the one of Windows",
    }
    assert str(describe(facts, ["FP16 rounds to nearest even"])) == (
        "dml on windows: Radeon, DirectML 1.15.4, ONNX Runtime 1.24.4, DirectML.dll of Windows, "
        "FP16 rounds to nearest even"
    )


def test_the_session_names_its_adapter_and_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def adapter(index: int) -> dict[str, str]:
        return {"adapter": f"GPU {index}", "driver": "31.0.15.4601"}

    monkeypatch.setattr(device, "library_facts", lambda: {"directml": "1.15.4.0"})
    monkeypatch.setattr(device, "adapter_facts", adapter)
    assert session_facts(sent(SessionOptions()))["adapter"] == "GPU 0"
    facts = session_facts(sent(SessionOptions(device_id=1)))
    assert str(describe({**facts, "onnxruntime": "1.24.4"})) == (
        "dml on windows: GPU 1, driver 31.0.15.4601, DirectML 1.15.4, ONNX Runtime 1.24.4"
    )
    chosen = session_facts(sent(SessionOptions(performance_preference="high_performance")))
    assert chosen["adapter"] == "the high_performance adapter"
    assert "driver" not in chosen, "of another adapter, perhaps"


@pytest.mark.parametrize("package", ["onnxruntime-directml", "ort-nightly-directml", "onnxruntime-windowsml"])
def test_each_package_with_the_provider_will_do(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != package:
            raise metadata.PackageNotFoundError(name)
        return "1.24.4"

    monkeypatch.setattr(metadata, "version", version)
    assert provider_missing() == ""
    monkeypatch.setattr(metadata, "version", lambda name: version(name + "?"))
    assert "pip install onnxruntime-windowsml" in provider_missing()


def test_each_adapter_is_tested_before_its_first_session(add_relu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in: the worker of the CPU."""
    tested: list[int | None] = []

    def test(_host: SessionHost, adapter: SessionOptions) -> SelfTest:
        tested.append(adapter.device_id)
        return SelfTest((), ("Conv FP32: nonsense",) if adapter.device_id == 2 else (), Fp16Traits())

    monkeypatch.setattr(dml, "self_test", test)
    monkeypatch.setattr(dml, "python_worker", lambda _device, name: python_worker("cpu", name))
    monkeypatch.setattr(dxgi, "read_dxgi", lambda: dxgi.Dxgi([(dxgi.AdapterDesc(), None)] * 3, {}))
    with dml.windows_host({0: ()}) as host:
        for number in (None, 0, 1, 1):
            host.open(add_relu, SessionOptions(device_id=number)).close()
        assert tested == [1]
        for _ in range(2):
            with pytest.raises(CheckNotRun, match="adapter 2: the self-test failed: Conv FP32: nonsense"):
                host.open(add_relu, SessionOptions(device_id=2))
    assert tested == [1, 2, 2]


def test_the_providers_own_error_is_what_users_read(tmp_path: Path) -> None:
    """The package must not open the session anew on the CPU: that error would hide the provider's HRESULT."""
    asked: dict[str, object] = {}

    class Ort:
        __version__ = "1.24.4"
        GraphOptimizationLevel = Level
        SessionOptions = FakeSettings

        @staticmethod
        def InferenceSession(*_: object, **options: object) -> object:
            asked.update(options)
            raise RuntimeError("dml_provider_factory.cc(513) 887A0002 ")

    out = io.BytesIO()
    worker = Worker("dml", tmp_path, out, Ort)
    lines = encode(["option", "device_id", "7"]) + encode(["load", "1", "m.onnx"]) + encode(["quit"])
    serve(io.BytesIO(lines), worker.out, worker.handle)
    assert asked["enable_fallback"] is False
    assert asked["providers"] == [("DmlExecutionProvider", {"device_id": "7"})]
    assert b"887A0002" in out.getvalue()


def test_the_most_that_the_adapter_was_seen_to_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DXGI says what is held now; the worker keeps the most of what it was told."""
    from dmlprep.portable import dxgi

    told = iter([(100, 900), (300, 50), (200, 60)])
    monkeypatch.setattr(dxgi, "memory_in_use", lambda number: next(told))
    out = io.BytesIO()
    worker = Worker("dml", tmp_path, out, object())
    worker.adapter = 0
    for _ in range(3):
        worker.memory()
    rows = [line.split() for line in out.getvalue().decode().splitlines()]
    last = {row[1]: int(row[2]) for row in rows if row[0] == "memory"}
    assert (last["device"], last["device_peak"], last["shared_peak"]) == (260, 300, 900)
