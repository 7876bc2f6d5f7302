"""Which adapters there are, which of them a number, a name or a preference means, and which is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from click.testing import CliRunner

import dmlprep
from dmlprep.cli.doctor import command as doctor
from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.portable import device, dxgi
from dmlprep.portable.dxgi import AdapterDesc, Dxgi
from dmlprep.runtime import DmlStatus, SessionHost, SessionOptions, choose_adapter, dml, dml_host, dml_status
from dmlprep.runtime.environment import dml_finding
from dmlprep.runtime.selftest import SelfTest, failures_text
from dmlprep.runtime.session import python_worker
from dmlprep.runtime.types import Fp16Traits, OpenBy
from tests.fixtures_index import fixture
from tests.in_process import Run

DRIVER = 32 << 48 | 15 << 16 | 6603


def card(name: str, vendor: int, model: int, luid: int, *, flags: int = 0, memory: int = 8 << 30) -> AdapterDesc:
    """What DXGI would say of an adapter."""
    desc = AdapterDesc()
    desc.description[: len(name)] = [ord(letter) for letter in name]
    desc.vendor, desc.device, desc.dedicated_video, desc.flags = vendor, model, memory, flags
    desc.shared_system = 16 << 30
    desc.luid[:] = (luid & 0xFFFFFFFF, luid >> 32)
    return desc


INTEL = card("Intel(R) Iris(R) Xe Graphics", 0x8086, 0x46A6, 0x1_0000_0005, memory=128 << 20)
NVIDIA = card("NVIDIA GeForce RTX 4070 Laptop GPU", 0x10DE, 0x2860, 7)
RADEON = card("AMD Radeon RX 7600", 0x1002, 0x7480, 8)
RADEON_TOO = card("AMD Radeon(TM) Graphics", 0x1022, 0x1638, 9)
ADRENO = card("Snapdragon(R) X Elite - X1E80100 - Qualcomm(R) Adreno(TM) GPU", 0x4D4F4351, 0x36334330, 10)
BASIC = card("Microsoft Basic Render Driver", 0x1414, 0x8C, 11, memory=0)
FLAGGED = card("Some rasterizer", 0x9999, 1, 12, flags=2)


def has(
    monkeypatch: pytest.MonkeyPatch, *cards: AdapterDesc, fast: Sequence[int] = (), slow: Sequence[int] = ()
) -> None:
    """A machine with these adapters; ``fast`` and ``slow`` are LUIDs by preference, none on an old factory."""
    preferred = {"high_performance": fast, "minimum_power": slow} if fast else {}
    monkeypatch.setattr(dxgi, "read_dxgi", lambda: Dxgi([(one, DRIVER) for one in cards], preferred))


def on_windows(monkeypatch: pytest.MonkeyPatch, *cards: AdapterDesc) -> None:
    has(monkeypatch, *cards)
    monkeypatch.setattr(sys, "platform", "win32")


def laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, the desktop on the slow one; DXGI puts software first where it likes."""
    has(monkeypatch, INTEL, NVIDIA, BASIC, fast=[11, 7, 0x1_0000_0005, 99], slow=[0x1_0000_0005, 7, 11])


def test_adapters_are_what_dxgi_says(monkeypatch: pytest.MonkeyPatch) -> None:
    laptop(monkeypatch)
    intel, nvidia, basic = device.adapters()
    assert (intel.number, intel.name, intel.vendor) == (0, "Intel(R) Iris(R) Xe Graphics", "Intel")
    assert (intel.dedicated_memory, intel.shared_memory, intel.luid) == (128 << 20, 16 << 30, 0x1_0000_0005)
    assert (nvidia.vendor_id, nvidia.model_id, nvidia.driver) == (0x10DE, 0x2860, "32.0.15.6603")
    assert [one.software for one in (intel, nvidia, basic)] == [False, False, True]
    # A preference takes hardware only, as the provider does.
    assert [one.preferences for one in (intel, nvidia, basic)] == [("minimum_power",), ("high_performance",), ()]


def test_an_old_factory_has_no_preferences(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, INTEL, NVIDIA)
    assert [one.preferences for one in device.adapters()] == [(), ()]


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        ("NVIDIA", 1),
        ("nvidia", 1),
        ("INTEL", 0),
        ("amd", 2),
        ("Qualcomm", 3),
        ("rtx 4070", 1),
        ("basic render", 4),
        ("Iris(R)", 0),
    ],
)
def test_a_vendor_or_a_part_of_the_name_chooses(monkeypatch: pytest.MonkeyPatch, wanted: str, number: int) -> None:
    has(monkeypatch, INTEL, NVIDIA, RADEON, ADRENO, BASIC)
    assert device.find_adapter(wanted, device.adapters()).number == number
    monkeypatch.setattr(sys, "platform", "win32")
    assert choose_adapter(f" {wanted} ", None) == number


def test_no_match_and_two_matches_name_the_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    on_windows(monkeypatch, RADEON, RADEON_TOO)
    with pytest.raises(UsageError, match="no adapter matches 'nvidia'; there are: 0 AMD Radeon RX 7600, 1 AMD Radeon"):
        choose_adapter("nvidia", None)
    for wanted in ("AMD", "radeon"):
        with pytest.raises(UsageError, match=f"2 adapters match '{wanted}': 0 AMD Radeon RX 7600, 1 AMD Radeon"):
            choose_adapter(wanted, None)
    on_windows(monkeypatch)
    with pytest.raises(UsageError, match=r"DXGI lists no adapter.*\(update the graphics driver"):
        choose_adapter("AMD", None)


def test_a_name_is_refused_where_it_makes_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_adapter(None, 3) == 3
    assert choose_adapter(None, None, on="cpu") is None
    with pytest.raises(UsageError, match="name and its number are set"):
        choose_adapter("NVIDIA", 0)
    with pytest.raises(UsageError, match="name is empty"):
        choose_adapter(" ", None)
    with pytest.raises(UsageError, match="but the device is not dml"):
        choose_adapter("NVIDIA", None, on="cpu")
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(UsageError, match="on Linux has one adapter: lavapipe"):
        choose_adapter("NVIDIA", None)


@pytest.mark.parametrize("software", [BASIC, FLAGGED])
def test_a_software_adapter_is_refused_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch, software: AdapterDesc
) -> None:
    has(monkeypatch, software, NVIDIA)
    reason, fix = device.session_problem({})
    assert "software adapter" in reason
    assert reason.startswith(f"a session would use 0 {device.adapters()[0].name}")
    assert "--device-id: 1 NVIDIA GeForce" in fix
    assert device.session_problem({"device_id": "0"}) == ("", "")
    assert device.session_problem({"device_id": "1"}) == ("", "")
    assert device.session_problem({"performance_preference": "high_performance"}) == ("", "")
    has(monkeypatch, NVIDIA, software)
    assert device.session_problem({}) == ("", "")


def test_an_adapter_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, INTEL, NVIDIA)
    reason, _fix = device.session_problem({"device_id": "7"})
    assert reason == (
        "there is no adapter 7 (887A0002 DXGI_ERROR_NOT_FOUND); there are: 0 Intel(R) Iris(R) Xe Graphics, "
        "1 NVIDIA GeForce RTX 4070 Laptop GPU"
    )
    assert device.session_problem({"device_id": "-1"})[0].startswith("there is no adapter -1")


def test_where_dxgi_does_not_answer_the_provider_will(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Dxgi:
        raise OSError("DXGI has no factory")

    monkeypatch.setattr(dxgi, "read_dxgi", broken)
    assert device.session_problem({"device_id": "7"}) == ("", "")
    assert device.adapter_facts(0) == {"adapter": "not known: DXGI has no factory"}


def test_a_kits_name_becomes_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, INTEL, NVIDIA)
    assert device.with_number({"dim:n": "1"}) == {"dim:n": "1"}
    assert device.with_number({"adapter": "NVIDIA", "dim:n": "1"}) == {"device_id": "1", "dim:n": "1"}
    with pytest.raises(ValueError, match="no adapter matches 'AMD'; there are: 0 Intel"):
        device.with_number({"adapter": "AMD"})


def test_facts_are_of_the_number_that_the_session_got(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, INTEL, NVIDIA)
    assert device.adapter_facts(1) == {
        "adapter": "NVIDIA GeForce RTX 4070 Laptop GPU",
        "adapter number": "1",
        "adapter id": "10de:2860",
        "adapter memory": "8192 MiB",
        "adapter kind": "hardware",
        "driver": "32.0.15.6603",
    }


def test_a_host_looks_for_the_adapter_before_it_tests_it(monkeypatch: pytest.MonkeyPatch, add_relu: Path) -> None:
    """On a stand-in: the worker of the CPU."""
    tested: list[int | None] = []

    def test(_host: SessionHost, adapter: SessionOptions) -> SelfTest:
        tested.append(adapter.device_id)
        return SelfTest((), (), Fp16Traits("toward-zero" if adapter.device_id else "nearest-even"))

    monkeypatch.setattr(dml, "self_test", test)
    monkeypatch.setattr(dml, "python_worker", lambda _device, name: python_worker("cpu", name))
    has(monkeypatch, BASIC, NVIDIA)
    with dml.windows_host({}) as host:
        with pytest.raises(CheckNotRun, match="there is no adapter 7") as caught:
            host.open(add_relu, SessionOptions(device_id=7))
        assert caught.value.exit_code == 3
        with pytest.raises(CheckNotRun, match="software adapter"):
            host.open(add_relu)
        assert tested == []
        host.open(add_relu, SessionOptions(device_id=1)).close()
        host.open(add_relu, SessionOptions(device_id=1)).close()
    assert tested == [1]


def test_the_same_fault_is_said_once() -> None:
    address = "dml_provider_factory.cc(513)\\x.pyd!00006FFFF5C57105: (caller: 00006FFFF5C56ED0) Exception({}) tid(24)"
    faults = [f"{name}: {address.format(n)} 887A0002" for n, name in enumerate(("Conv FP32", "MatMul FP32", "Add"), 1)]
    text = failures_text([*faults, "Softmax FP32: the shape is [1], not [2]"])
    assert text == (
        f"3 of the models (Conv FP32 ...): {address.format(1)} 887A0002; Softmax FP32: the shape is [1], not [2]"
    )
    other = failures_text([faults[0], faults[1].replace("887A0002", "80070057")])
    assert other.count("Exception") == 2
    assert failures_text(["it ended"]) == "it ended"
    assert failures_text(["Conv FP32: the result is off by 0.1", "Add: the result is off by 0.2"]).count("off by") == 2


@pytest.mark.parametrize(
    ("system", "code", "says", "never"),
    [
        ("win32", "DP804", "update the graphics driver", "runtime"),
        ("linux", "DP804", "dmlprep runtime remove", "driver"),
        ("win32", "DP803", "pip install onnxruntime-windowsml", "runtime install"),
        ("linux", "DP803", "dmlprep runtime install", "pip"),
    ],
)
def test_the_remedy_is_that_of_the_system(system: str, code: Literal["DP803", "DP804"], says: str, never: str) -> None:
    found = dml_finding(DmlStatus(False, "why", code=code), system)
    assert found is not None
    assert found.code == code
    assert says in found.remedy
    assert never not in found.remedy
    assert dml_finding(DmlStatus(True), system) is None


def test_a_status_knows_its_own_remedy() -> None:
    found = dml_finding(DmlStatus(False, "there is no adapter 7", fix="choose one of these"), "win32")
    assert found is not None
    assert found.remedy == "choose one of these"


def test_doctor_lists_the_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    laptop(monkeypatch)
    monkeypatch.setattr(sys, "platform", "win32")
    text = CliRunner().invoke(doctor, ["--adapters"])
    data = CliRunner().invoke(doctor, ["--adapters", "--format", "json"])
    monkeypatch.undo()
    assert text.exit_code == data.exit_code == 0
    assert text.stdout.splitlines()[4:8] == [
        "1 NVIDIA GeForce RTX 4070 Laptop GPU",
        "  NVIDIA 10de:2860, hardware, driver 32.0.15.6603",
        "  memory 8192 MiB dedicated, 16384 MiB shared; LUID 0000000000000007",
        "  select with: --device-id 1, --adapter NVIDIA, performance_preference high_performance",
    ]
    assert "select with: no option, --device-id 0, --adapter Intel" in text.stdout
    record = json.loads(data.stdout)
    assert record["reason"] == ""
    assert [one["vendor_id"] for one in record["adapters"]] == ["8086", "10de", "1414"]
    assert record["adapters"][0]["luid"] == "0000000100000005"
    assert record["adapters"][2]["software"] is True


@pytest.mark.skipif(sys.platform != "linux", reason="the runtime is Linux's")
def test_without_the_runtime_there_is_no_adapter_on_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert dmlprep.adapters() == ()
    result = CliRunner().invoke(doctor, ["--adapters"])
    assert result.exit_code == 0
    assert result.stdout == (
        "DirectML has no adapter on this machine: the runtime is not installed; run dmlprep runtime install\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="on Windows a name chooses")
def test_a_name_on_linux_is_a_wrong_option(run: Run, tmp_path: Path) -> None:
    path = str(fixture("residual_cnn").path)
    for line in (
        ["prepare", path, "-o", str(tmp_path / "out"), "--adapter", "NVIDIA"],
        ["compare", path, path, "--device", "dml", "--adapter", "NVIDIA"],
        ["bisect", path, "-o", str(tmp_path / "out"), "--adapter", "NVIDIA"],
        ["check", path, "--verify", "--adapter", "NVIDIA"],
    ):
        done = run(*line)
        assert done.code == 2, line
        assert "DirectML on Linux has one adapter: lavapipe" in done.err
    done = run("compare", path, path, "--adapter", "NVIDIA", "--device", "dml", "--device-id", "0")
    assert done.code == 2
    assert "both an adapter's name and its number are set" in done.err
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def session_here() -> DmlStatus:
    found = dml_status()
    if not found.available:
        pytest.skip(f"DirectML tests NOT RUN: {found.reason}")
    return found


WINDOWS = pytest.mark.skipif(sys.platform != "win32", reason="DXGI is Windows'")


@pytest.mark.dml
def test_there_is_an_adapter_where_there_is_a_session(session_here: DmlStatus) -> None:
    first = dmlprep.adapters()[0]
    assert first.number == 0
    assert first.name
    if sys.platform == "win32":
        assert session_here.device is not None
        assert session_here.device.name == f"dml on windows: {first.name}"
        assert not first.software
        assert first.luid
        assert first.driver.count(".") == 3
    else:
        assert "llvmpipe" in first.name
        assert first.software


@pytest.mark.dml
@WINDOWS
def test_a_session_names_the_adapter_of_its_number(session_here: DmlStatus, add_relu: Path) -> None:
    first = dmlprep.adapters()[0]
    with dml_host() as host:
        # Fused, the package refuses this model: Add's result is an output as well.
        plain = SessionOptions(optimization="disabled")
        for options in (plain, replace(plain, device_id=0)):
            with host.open(add_relu, options) as session:
                assert session.device.name == f"dml on windows: {first.name}"
                assert {"adapter 0", f"driver {first.driver}"} <= set(session.device.details)
                assert str(session.device) == str(session_here.device)


@pytest.mark.dml
@WINDOWS
@pytest.mark.parametrize("way", ["device", "policy"])
def test_a_session_is_opened_as_windows_ml_opens_it(session_here: DmlStatus, add_relu: Path, way: OpenBy) -> None:
    plain = SessionOptions(optimization="disabled", record_placement=True)
    with dml_host() as host, host.open(add_relu, plain) as classic:
        feed = {value.name: np.full([2, 3], 2, np.float32) for value in classic.inputs}
        want = classic.run(feed)
        with host.open(add_relu, replace(plain, open_by=way)) as session:
            assert {node.provider for node in session.placement()} == {"DmlExecutionProvider"}
            assert {name: value.tolist() for name, value in session.run(feed).items()} == {
                name: value.tolist() for name, value in want.items()
            }


def test_devices_are_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    status = dml_status(session=SessionOptions(open_by="device"))
    assert (status.available, status.fix) == (False, "remove --open-by")


@pytest.mark.dml
@WINDOWS
def test_a_name_chooses_on_windows(session_here: DmlStatus) -> None:
    first = dmlprep.adapters()[0]
    assert choose_adapter(first.name.upper(), None) == 0
    with pytest.raises(UsageError, match=r"no adapter matches 'no such card'; there (is|are): 0 "):
        choose_adapter("no such card", None)


@pytest.mark.dml
def test_a_number_that_is_not_there_is_exit_code_3_and_one_line(session_here: DmlStatus, tmp_path: Path) -> None:
    path, out = str(fixture("residual_cnn").path), tmp_path / "out"
    dml = ["--device", "dml", "--device-id", "77"]
    for line in (
        ["compare", path, path, "--size", "batch=1", *dml],
        ["prepare", path, "-o", str(out), "--pin", "batch=1", "--require-dml", "-q", *dml],
    ):
        code, said = _command(line)
        assert code == 3, said
        assert "there is no adapter 77 (887A0002 DXGI_ERROR_NOT_FOUND)" in said
        assert "self-test" not in said
    assert not (out / "model.onnx").exists()


def _command(line: list[str]) -> tuple[int, str]:
    """A command in a process of its own, where the runtime is the user's; all that it says, as one line."""
    done = subprocess.run(
        [sys.executable, "-m", "dmlprep", *line], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())
