"""The original in a package, and a loader that runs it on a vendor's provider: stand-ins for ONNX Runtime's devices."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

import dmlprep
from dmlprep import api
from dmlprep.core.errors import InputError, ModelRefused, UsageError
from dmlprep.portable import vendors
from dmlprep.portable.app_sessions import CPU, DML
from dmlprep.portable.public import AdapterMissing, Model, PackageDamaged
from dmlprep.record import RunRecord
from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.package.runs import run_of

ORIGINAL = fixture("residual_cnn").path
NPU, GPU = onnxruntime.OrtHardwareDeviceType.NPU, onnxruntime.OrtHardwareDeviceType.GPU
_REAL = onnxruntime.InferenceSession


@pytest.fixture(scope="session")
def whole(proved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package for Python with the original."""
    folder = tmp_path_factory.mktemp("packages") / "whole"
    api.package_model(proved, out=folder, language="python", unproven=True, original=ORIGINAL)
    return folder


@dataclass(frozen=True)
class _Device:
    """An ``OrtEpDevice``."""

    ep_name: str
    kind: Any

    @property
    def device(self) -> SimpleNamespace:
        return SimpleNamespace(type=self.kind)


_DML = _Device(DML, GPU)


@dataclass
class _Machine:
    """A machine with DirectML, and with libraries whose providers appear when they are registered.

    Attributes:
        libraries: devices by the path of the library.
        present: devices of registered libraries.
        failing: text of the error of sessions, by provider.
        nodes: number of nodes of 12 that a provider runs; 12 by default.
        opened: source, provider and fixed sizes of each session.
    """

    libraries: dict[str, list[_Device]] = field(default_factory=dict)
    present: list[_Device] = field(default_factory=lambda: [_DML])
    failing: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    opened: list[tuple[Any, str, dict[str, int]]] = field(default_factory=list)

    def register(self, name: str, path: str) -> None:
        if path not in self.libraries:
            raise RuntimeError(f"Failed to load library {path}")
        self.present += self.libraries.pop(path)


class _Options(onnxruntime.SessionOptions):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.devices: list[_Device] = []
        self.fixed: dict[str, int] = {}

    def add_provider_for_devices(self, devices: Sequence[_Device], options: dict[str, str]) -> None:
        assert options == {}
        self.devices += devices

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        self.fixed[name] = size
        super().add_free_dimension_override_by_name(name, size)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> _Machine:
    """The machine behind ``onnxruntime``; its sessions compute on the CPU."""
    here = _Machine()

    class Session:
        def __init__(
            self, source: Any, settings: _Options, providers: list[Any] | None = None, enable_fallback: bool = True
        ) -> None:
            assert not enable_fallback
            assert bool(providers) != bool(settings.devices)
            first = settings.devices[0].ep_name if settings.devices else (providers or [""])[0]
            self.provider: str = first[0] if isinstance(first, tuple) else first
            here.opened.append((source, self.provider, settings.fixed))
            if text := here.failing.get(self.provider):
                raise RuntimeError(text)
            self.own = _REAL(source, settings, providers=[CPU])

        def get_providers(self) -> list[str]:
            return [self.provider, CPU]

        def get_provider_graph_assignment_info(self) -> list[SimpleNamespace]:
            count = here.nodes.get(self.provider, 12)
            parts = {self.provider: count, CPU: 12 - count}
            return [
                SimpleNamespace(ep_name=name, get_nodes=lambda n=n: [None] * n)  # type: ignore[misc]
                for name, n in parts.items()
            ]

        def run(self, names: list[str], feeds: dict[str, Any]) -> list[Any]:
            return list(self.own.run(names, feeds))

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(onnxruntime, "SessionOptions", _Options)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [DML, CPU])
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: list(here.present))
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", here.register)
    monkeypatch.setattr(vendors, "REGISTERED", set())
    monkeypatch.setitem(sys.modules, "windowsml", None)
    return here


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_original_runs_on_the_vendors_npu(whole: Path, machine: _Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.libraries["qnn.dll"] = [_Device("QNNExecutionProvider", GPU), _Device("QNNExecutionProvider", NPU)]
    model = Model(whole, prefer="npu", libraries={"QNNExecutionProvider": Path("qnn.dll")})
    assert model.device == "QNNExecutionProvider"
    assert model.evidence == "ONNX Runtime assigned 12 of 12 nodes to QNNExecutionProvider"
    assert (model.notice, _warnings(caplog)) == ("", [])
    ((source, provider, fixed),) = machine.opened
    assert (source, provider, fixed) == (ORIGINAL.read_bytes(), "QNNExecutionProvider", {"batch": 1})
    picture = np.linspace(0, 1, 3 * 32 * 32, dtype=np.float32).reshape(1, 3, 32, 32)
    plain = _REAL(ORIGINAL, providers=[CPU]).run(None, {"pixel_values": picture})
    np.testing.assert_array_equal(model.run({"pixel_values": picture})["logits"], plain[0])
    model.reopen()  # the library is registered once in a process
    assert model.device == "QNNExecutionProvider"
    model.reopen("cpu")
    assert (model.device, model.notice) == ("cpu", "")
    model.close()
    assert (model.device, model.evidence) == ("", "")


def test_without_the_original_the_prepared_model_runs_on_the_vendors_provider(made: Path, machine: _Machine) -> None:
    machine.libraries["vitis.dll"] = [_Device("VitisAIExecutionProvider", NPU)]
    model = Model(made, prefer="npu", libraries={"VitisAIExecutionProvider": "vitis.dll"})
    assert model.device == "VitisAIExecutionProvider"
    assert machine.opened[0][0] == (made / "model.onnx").read_bytes()


@pytest.mark.parametrize(("prefer", "other"), [("npu", GPU), ("gpu", NPU)])
def test_the_other_kind_is_the_second_choice(whole: Path, machine: _Machine, prefer: str, other: Any) -> None:
    machine.libraries["ov.dll"] = [_Device("OpenVINOExecutionProvider", other)]
    model = Model(whole, prefer=prefer, libraries={"OpenVINOExecutionProvider": "ov.dll"})
    assert model.device == "OpenVINOExecutionProvider"


def test_no_vendors_device_means_directml(whole: Path, machine: _Machine, caplog: pytest.LogCaptureFixture) -> None:
    model = Model(whole, prefer="npu", libraries={"QNNExecutionProvider": "absent.dll"})
    assert model.device == "dml"
    assert "QNNExecutionProvider cannot be registered: Failed to load library absent.dll" in model.notice
    assert _warnings(caplog) == [model.notice]
    assert machine.opened[0][0] == (whole / "model.onnx").read_bytes()


@pytest.mark.parametrize(
    ("failing", "nodes", "reason"),
    [
        ({"QNNExecutionProvider": "no backend"}, {}, "QNNExecutionProvider: no backend"),
        ({}, {"QNNExecutionProvider": 0}, "assigned 0 of 12 nodes to QNNExecutionProvider"),
    ],
)
def test_a_provider_that_does_not_run_the_model_gives_way_to_directml(
    whole: Path,
    machine: _Machine,
    caplog: pytest.LogCaptureFixture,
    failing: dict[str, str],
    nodes: dict[str, int],
    reason: str,
) -> None:
    machine.libraries["qnn.dll"] = [_Device("QNNExecutionProvider", NPU)]
    machine.failing, machine.nodes = failing, nodes
    model = Model(whole, prefer="npu", libraries={"QNNExecutionProvider": "qnn.dll"})
    assert model.device == "dml"
    assert DML in model.evidence
    assert reason in model.notice
    assert _warnings(caplog) == [model.notice]


def test_the_cpu_is_last_and_only_if_allowed(whole: Path, machine: _Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.failing = {DML: "887A0004 The specified device interface is not supported"}
    with pytest.raises(AdapterMissing, match="887A0004"):
        Model(whole, prefer="npu", libraries={})
    (reason,) = _warnings(caplog)
    assert "no vendor's provider" in reason
    caplog.clear()
    model = Model(whole, prefer="npu", libraries={}, device="dml-or-cpu")
    assert model.device == "cpu"
    assert "no vendor's provider" in model.notice
    assert "887A0004" in model.notice
    assert _warnings(caplog) == [model.notice]


def test_a_changed_original_is_refused(whole: Path, tmp_path: Path, machine: _Machine) -> None:
    app = Path(shutil.copytree(whole, tmp_path / "app"))
    machine.libraries["qnn.dll"] = [_Device("QNNExecutionProvider", NPU)]
    raw = (app / "original.onnx").read_bytes()
    (app / "original.onnx").write_bytes(raw[:-1] + b"!")
    with pytest.raises(PackageDamaged, match=r"original\.onnx was changed"):
        Model(app, prefer="npu", libraries={"QNNExecutionProvider": "qnn.dll"})
    with pytest.raises(InputError, match="was changed"):
        dmlprep.verify_package(app)


def test_onnxruntime_itself_refuses_a_wrong_library(whole: Path) -> None:
    """The real ``onnxruntime``; with DirectML, its own ``OrtEpDevice`` is not taken for a vendor's."""
    libraries = {"QNNExecutionProvider": whole / "model.onnx"}
    model = Model(whole, prefer="gpu", libraries=libraries, device="dml-or-cpu")
    assert model.device == ("dml" if DML in onnxruntime.get_available_providers() else "cpu")
    assert "QNNExecutionProvider cannot be registered" in model.notice


def test_an_unknown_preference(whole: Path) -> None:
    with pytest.raises(ValueError, match="unknown prefer 'tpu'"):
        Model(whole, prefer="tpu")


@dataclass
class _Entry:
    """One provider in the catalog of windowsml."""

    name: str
    library_path: str
    ready_state: int

    def ensure_ready(self) -> None:
        assert self.ready_state != 2, "this would download it"


def test_without_libraries_the_catalog_of_windowsml_is_read(
    whole: Path, machine: _Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [_Entry("VitisAIExecutionProvider", "", 2), _Entry("OpenVINOExecutionProvider", "ov.dll", 1)]

    class Catalog:
        def __enter__(self) -> Catalog:
            return self

        def __exit__(self, *error: object) -> None: ...

        def find_all_providers(self) -> list[_Entry]:
            return rows

    module = ModuleType("windowsml")
    module.EpCatalog = Catalog  # type: ignore[attr-defined]
    module.EpReadyState = SimpleNamespace(NotPresent=2)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "windowsml", module)
    machine.libraries["ov.dll"] = [_Device("OpenVINOExecutionProvider", NPU)]
    assert Model(whole, prefer="npu").device == "OpenVINOExecutionProvider"
    machine.present = [_DML]
    rows.pop()
    model = Model(whole, prefer="npu")
    assert model.device == "dml"
    assert "VitisAIExecutionProvider is not on this machine" in model.notice


def test_a_machine_without_windowsml(whole: Path, machine: _Machine) -> None:
    model = Model(whole, prefer="gpu")
    assert model.device == "dml"
    assert "or install the package windowsml" in model.notice


def test_the_package_lists_and_ships_the_original(
    proved: Path, whole: Path, made: Path, tmp_path: Path, run: Run
) -> None:
    verified = dmlprep.verify_package(whole)
    assert verified.others == []
    assert "original.onnx" in verified.contract.shipped_files
    assert "## Vendors' providers" in (whole / "README.md").read_text(encoding="utf-8")
    assert json.loads((made / "model.json").read_text(encoding="utf-8"))["original"] is None
    assert "Windows ML" not in (made / "README.md").read_text(encoding="utf-8").partition("## Rules")[0]
    done = run("package", proved, "-o", tmp_path / "app", "--for", "cpp", "--unproven", "--original", ORIGINAL)
    assert done.code == 0, done.err
    assert "model.onnx and original.onnx for cpp" in done.out
    contract = json.loads((tmp_path / "app" / "model.json").read_text(encoding="utf-8"))
    assert contract["original"] == {"file": "original.onnx", "data": []}
    # Without the option, the file goes with the package that had it.
    done = run("package", proved, "-o", tmp_path / "app", "--for", "cpp", "--unproven", "--force")
    assert done.code == 0, done.err
    assert not (tmp_path / "app" / "original.onnx").exists()


@pytest.mark.parametrize("in_memory", [False, True])
def test_data_files_of_the_original(tmp_path: Path, machine: _Machine, in_memory: bool) -> None:
    weights = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 128])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["rows", 128])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "exported").mkdir()
    source = tmp_path / "exported" / "model.onnx"
    onnx.save(model, source, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    record = api.prepare(source, out=tmp_path / "out", pins={"rows": 2}, device="cpu", external_data=True)
    assert record.exit_code == 0, record.error
    app = tmp_path / "app"
    package = api.package_model(tmp_path / "out", out=app, language="python", unproven=True, original=source)
    assert package.contract.original is not None
    assert package.contract.original.data == ["original.onnx.data"]
    machine.libraries["qnn.dll"] = [_Device("QNNExecutionProvider", NPU)]
    files = {path.name: path.read_bytes() for path in app.iterdir() if path.is_file()}
    where: dict[str, Any] = {"read": files.__getitem__} if in_memory else {"folder": app}
    loaded = Model(**where, prefer="npu", libraries={"QNNExecutionProvider": "qnn.dll"})
    assert (loaded.device, machine.opened[-1][2]) == ("QNNExecutionProvider", {"rows": 2})
    x = np.eye(2, 128, 3, dtype=np.float32)
    np.testing.assert_array_equal(loaded.run({"x": x})["y"], weights[3:5])


_BEFORE = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }"""


@pytest.mark.parametrize(
    ("prepared", "difference"),
    [
        (_BEFORE, ""),
        (_BEFORE.replace("[n, 4]", "[2, 4]"), ""),
        (_BEFORE.replace("float", "float16"), r"its input 'x' is float16 \['n', 4\], not float32 \['n', 4\]"),
        (_BEFORE.replace("[n, 4] x", "[4, n] x"), r"its input 'x' is float32 \[4, 'n'\]"),
        (_BEFORE.replace("[n, 4]", "[m, 4]"), "its input 'x'"),
        (_BEFORE.replace(" x)", " z)").replace("(x)", "(z)"), "it has no input 'x'"),
        (
            _BEFORE.replace("[n, 4] y", "[n, 4] y, float[n, 4] z").replace("}", "z = Abs(x) }"),
            "the original has no output",
        ),
    ],
)
def test_only_a_model_of_equal_inputs_and_outputs(tmp_path: Path, prepared: str, difference: str) -> None:
    before, out = tmp_path / "before.onnx", tmp_path / "run"
    onnx.save(parser.parse_model(_BEFORE), before)
    out.mkdir()
    onnx.save(parser.parse_model(prepared), out / "model.onnx")
    _prepared_from(before, run_of(out))

    def package() -> Any:
        return api.package_model(out, out=tmp_path / "app", language="python", original=before).contract

    if not difference:
        assert package().fixed == ({"n": 2} if "[2" in prepared else {})
        return
    with pytest.raises(ModelRefused, match=difference):
        package()
    assert not (tmp_path / "app").exists()


def _prepared_from(original: Path, run: Path) -> None:
    """Let the record of a run say that it prepared this file."""
    record = RunRecord.read(run / "run.json")
    record.input_sha256 = hashlib.sha256(original.read_bytes()).hexdigest()
    (run / "run.json").write_bytes(record.to_json())


def test_what_is_not_the_original_is_refused(proved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the file that was prepared"):
        api.package_model(
            proved, out=tmp_path / "app", language="python", unproven=True, original=fixture("depthwise_cnn").path
        )
    with pytest.raises(UsageError, match="onnxruntime-node cannot register"):
        api.package_model(proved, out=tmp_path / "app", language="node", unproven=True, original=ORIGINAL)
    assert not (tmp_path / "app").exists()
