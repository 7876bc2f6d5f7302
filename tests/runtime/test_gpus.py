"""GPUs on Linux: what is found on machines of all kinds, which one a name means, what the sandbox opens and says."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import dmlprep
from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.runtime import SessionOptions, choose_gpu, dml_status, open_dml
from dmlprep.runtime.linux import drivers, gpus, host, sandbox, shaders
from dmlprep.runtime.linux.gpus import Gpu, GpuListing, choose, find, parse
from dmlprep.runtime.linux.install import fingerprint, result_file
from dmlprep.runtime.linux.layout import Layout
from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.system import not_on_windows

pytestmark = not_on_windows("--gpu works only on Linux")

LISTING = sys.modules["dmlprep.runtime.adapters"]
"""The module: the room has a function of its name."""

_X86_64 = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00"
_I386 = b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x03\x00\x03\x00"
_PCI = "sys/devices/pci0000:00/0000:00:05.0"
_LISTED = (
    "NVIDIA H200\t10de:2335\t2\t1.4.312\tNVIDIA\t580.159.04\t150754820096\n"
    "llvmpipe (LLVM 19.1.7, 256 bits)\t10005:0000\t4\t1.4.305\tllvmpipe\tMesa 25.0.7\t8589934592\n"
)


def write(path: Path, content: bytes | str = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o666)


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


@pytest.fixture(autouse=True)
def _user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a user; what is found is not kept from test to test."""
    if "dml" not in request.keywords:
        monkeypatch.setattr(sandbox, "becomes_worker", lambda: False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    find.cache_clear()
    yield
    find.cache_clear()


def nvidia(tree: Path, folder: str = "usr/lib/x86_64-linux-gnu", cards: int = 1) -> Path:
    """A machine with NVIDIA's driver."""
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia-uvm-tools"):
        write(tree / "dev" / name)
    for number in range(cards):
        write(tree / f"dev/nvidia{number}")
        write(tree / f"proc/driver/nvidia/gpus/0000:00:{number + 5:02x}.0/information", f"Device Minor: \t {number}\n")
        place = tree / f"sys/devices/pci0000:00/0000:00:{number + 5:02x}.0"
        write(place / "vendor", "0x10de\n")
        write(place / "config")
        link(tree / f"sys/bus/pci/devices/0000:00:{number + 5:02x}.0", f"../../../devices/pci0000:00/{place.name}")
    libraries = tree / folder
    for name in ("libEGL_nvidia", "libGLX_nvidia", "libnvidia-glcore", "libnvidia-gpucomp"):
        write(libraries / f"{name}.so.580.159.04", _X86_64)
    link(libraries / "libEGL_nvidia.so.0", "libEGL_nvidia.so.580.159.04")
    link(libraries / "libGLX_nvidia.so.0", "libGLX_nvidia.so.580.159.04")
    for name in ("libcuda.so.1", "libc.so.6", "libnvidia-container.txt"):
        write(libraries / name, _X86_64)
    return tree


def render(tree: Path, driver: str, number: int = 128, place: str = _PCI) -> Path:
    """A machine with a render node."""
    write(tree / f"dev/dri/renderD{number}")
    write(tree / place / "vendor", "0x1002\n")
    write(tree / place / "config")
    (tree / place / f"drm/renderD{number}").mkdir(parents=True)
    link(tree / place / f"drm/renderD{number}/device", "../..")
    (tree / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
    link(tree / place / "driver", f"../../../bus/pci/drivers/{driver}")
    link(tree / f"sys/class/drm/renderD{number}", f"../../../{place}/drm/renderD{number}")
    return tree


# ---- machines --------------------------------------------------------------------------------------------------------


def test_nvidia_s_driver_comes_from_the_host_file_by_file(tmp_path: Path) -> None:
    write(nvidia(tmp_path) / "usr/share/vulkan/icd.d/nvidia_icd.json", '{"ICD": {"api_version": "1.4.312"}}')
    (way,) = drivers.ways(tmp_path)
    assert (way.problem, way.version, way.vulkan) == ("", "580.159.04", "1.4.312")
    assert sorted(way.nodes) == ["/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]
    assert {"libEGL_nvidia.so.0", "libnvidia-glcore.so.580.159.04"} <= way.libraries.keys()
    assert not {"libcuda.so.1", "libc.so.6", "libnvidia-container.txt"} & way.libraries.keys()
    assert way.libraries["libEGL_nvidia.so.0"].name == "libEGL_nvidia.so.580.159.04"
    assert list(way.folders) == [f"/{_PCI}"]
    assert way.links == {"/sys/bus/pci/devices/0000:00:05.0": f"/{_PCI}"}
    assert way.environment["LD_LIBRARY_PATH"] == "/driver"
    assert way.environment["VK_DRIVER_FILES"] == "/driver/icd.json"
    assert json.loads(drivers.icd_text(way))["ICD"] == {
        "library_path": "/driver/libEGL_nvidia.so.0",
        "api_version": "1.4.312",
    }


@pytest.mark.parametrize(
    "folder", ["usr/lib64", "usr/lib/x86_64-linux-gnu/nvidia/current", "usr/local/nvidia/lib64", "opt/nvidia/lib"]
)
def test_nvidia_s_libraries_are_found_where_systems_put_them(tmp_path: Path, folder: str) -> None:
    write(nvidia(tmp_path, folder) / "etc/ld.so.conf.d/nvidia.conf", "# a comment\n/opt/nvidia/lib\n")
    write(tmp_path / "usr/lib/libEGL_nvidia.so.0", _I386)
    (way,) = drivers.ways(tmp_path)
    assert way.problem == ""
    assert way.libraries["libGLX_nvidia.so.0"].parent == tmp_path.resolve() / folder


def test_each_of_nvidia_s_cards_is_a_way_with_its_own_node_and_place(tmp_path: Path) -> None:
    found = drivers.ways(nvidia(tmp_path, cards=2))
    assert [way.title for way in found] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert "/dev/nvidia0" not in found[1].nodes
    assert list(found[1].links) == ["/sys/bus/pci/devices/0000:00:06.0"]


def test_what_is_missing_of_nvidia_s_driver_is_said(tmp_path: Path) -> None:
    nvidia(tmp_path)
    (tmp_path / "usr/lib/x86_64-linux-gnu/libEGL_nvidia.so.0").unlink()
    (way,) = drivers.ways(tmp_path)
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics" in way.problem
    nvidia(tmp_path / "other")
    (tmp_path / "other/dev/nvidiactl").unlink()
    (way,) = drivers.ways(tmp_path / "other")
    assert way.problem.startswith("/dev/nvidiactl is missing")


@pytest.mark.parametrize(
    ("driver", "icds"),
    [
        ("amdgpu", ("radeon_icd.json",)),
        ("i915", ("intel_icd.json", "intel_hasvk_icd.json")),
        ("xe", ("intel_icd.json",)),
        ("nouveau", ("nouveau_icd.json",)),
    ],
)
def test_others_are_served_by_the_root_file_system(tmp_path: Path, driver: str, icds: tuple[str, ...]) -> None:
    (way,) = drivers.ways(render(tmp_path, driver))
    assert (way.problem, way.icds, dict(way.libraries)) == ("", icds, {})
    assert list(way.nodes) == ["/dev/dri/renderD128"]
    assert list(way.folders) == [f"/{_PCI}"]
    assert way.links == {
        "/sys/bus/pci/devices/0000:00:05.0": f"/{_PCI}",
        "/sys/dev/char/226:128": f"/{_PCI}/drm/renderD128",
        "/sys/class/drm/renderD128": f"/{_PCI}/drm/renderD128",
    }
    assert "LD_LIBRARY_PATH" not in way.environment
    assert way.environment["VK_ICD_FILENAMES"].split(":") == [f"/usr/share/vulkan/icd.d/{name}" for name in icds]


def test_a_card_is_listed_once_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    render(nvidia(tmp_path), "nvidia", place="sys/devices/pci0000:00/0000:00:07.0")
    render(tmp_path, "panthor", number=129)
    first, second = drivers.ways(tmp_path)
    assert first.title == "/dev/nvidia0"
    assert "no Vulkan driver for the kernel's driver 'panthor'" in second.problem


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives files away")
def test_root_s_program_gets_the_group_of_the_node_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "becomes_worker", lambda: True)
    node = render(tmp_path, "amdgpu") / "dev/dri/renderD128"
    node.chmod(0o660)
    (way,) = drivers.ways(tmp_path)
    assert "only root" in way.problem
    os.chown(node, 0, 4711)
    (way,) = drivers.ways(tmp_path)
    assert (way.problem, way.groups) == ("", (4711,))
    assert "--groups=+4711" in sandbox.command(tmp_path, ["x"], view=way.view(tmp_path / "icd.json"))
    assert "--groups=" in sandbox.command(tmp_path, ["x"])


def test_a_node_that_this_user_may_not_open_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    (way,) = drivers.ways(render(tmp_path, "amdgpu"))
    assert "this user cannot open" in way.problem
    assert "render" in way.problem


# ---- the list, and names ---------------------------------------------------------------------------------------------


def way() -> drivers.Way:
    return drivers.Way("/dev/nvidia0", {}, version="580.159.04")


def gpu(name: str = "NVIDIA H200", number: int = 0, vendor: int = 0x10DE, kind: str = "discrete") -> Gpu:
    return Gpu(number, name, vendor, 0x2335, kind, "NVIDIA 580.159.04", "1.4.312", 1 << 30, way())


def test_the_list_of_the_native_program_is_read_and_lavapipe_is_no_gpu() -> None:
    (found,) = parse(_LISTED, 3, way())
    assert (found.number, found.name, found.ids, found.kind) == (3, "NVIDIA H200", "10de:2335", "discrete")
    assert (found.driver, found.vulkan, found.vendor) == ("NVIDIA 580.159.04", "1.4.312", "NVIDIA")
    assert found.memory == 150754820096
    assert parse("nonsense\n", 0, way()) == []


def test_names() -> None:
    both = GpuListing((gpu("Intel(R) Graphics", 0, 0x8086, "integrated"), gpu(number=1), gpu(number=2)))
    assert choose("auto", both).number == 1
    assert choose("AUTO", GpuListing(both.gpus[:1])).number == 0
    assert choose("intel", both).number == 0
    assert choose(" 2 ", both).number == 2
    assert choose("graphics", both).number == 0
    with pytest.raises(UsageError, match=r"2 GPUs match: 1 NVIDIA H200, 2 NVIDIA H200 .*--gpu 1"):
        choose("h200", both)
    with pytest.raises(CheckNotRun, match="no GPU matches 'AMD'; GPUs: 0 Intel"):
        choose("AMD", both)
    with pytest.raises(CheckNotRun, match="the driver is broken"):
        choose("auto", GpuListing((), ("the driver is broken",)))


def test_each_driver_version_has_its_own_shaders_and_self_test(tmp_path: Path) -> None:
    one, other = gpu(), replace(gpu(), driver="NVIDIA 590.1")
    assert one.slug.startswith("nvidia-h200-nvidia-580.159.04-")
    assert one.slug != other.slug
    assert one.stamp != other.stamp
    layout = Layout(tmp_path)
    assert shaders.of_device(layout, "") == layout.shaders
    assert shaders.of_device(layout, one.slug) != shaders.of_device(layout, other.slug)
    assert result_file(layout, "1.30.0") != result_file(layout, "1.30.0", one.slug)
    for number in range(shaders.DEVICES + 2):
        made = shaders.of_device(layout, f"device-{number}")
        os.utime(made, (0, number))
    assert len(list(layout.gpu_shaders.iterdir())) == shaders.DEVICES
    shaders.forget(layout)
    assert not layout.gpu_shaders.exists()


def test_a_fingerprint_is_of_one_driver(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.manifest.write_text("{}")
    layout.release("1.30.0").mkdir(parents=True)
    (layout.release("1.30.0") / "piece.json").write_text("{}")
    plain = fingerprint(layout, "1.30.0")
    assert plain == fingerprint(layout, "1.30.0", ())
    assert len({plain, *(fingerprint(layout, "1.30.0", replace(gpu(), driver=d).stamp) for d in "ab")}) == 3


def test_a_machine_without_a_gpu_says_what_is_missing(tmp_path: Path) -> None:
    found = find(Layout(tmp_path / "runtime"), tmp_path)
    assert found.gpus == ()
    assert "neither /dev/nvidia0 nor /dev/dri/renderD128" in found.problems[0]
    write(tmp_path / "wsl/dev/dxg")
    assert "not a Vulkan device" in find(Layout(tmp_path / "runtime"), tmp_path / "wsl").problems[0]


def test_a_machine_without_the_runtime_says_that(tmp_path: Path) -> None:
    found = find(Layout(tmp_path / "runtime"), nvidia(tmp_path / "machine"))
    assert "dmlprep runtime install" in found.problems[0]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Says what the native program answers."""

    def answers(said: str, fault: str = "") -> None:
        monkeypatch.setattr(gpus, "missing_piece", lambda _: "")
        monkeypatch.setattr(sandbox, "why_not", lambda _: "")
        monkeypatch.setattr(gpus, "ask_driver", lambda *_: (said, fault))

    return answers


def test_a_driver_that_finds_nothing_is_a_problem_with_its_words(
    tmp_path: Path, asked: Callable[[str, str], None]
) -> None:
    asked("", "vkCreateInstance gives -9")
    found = find(Layout(tmp_path / "runtime"), nvidia(tmp_path / "machine"))
    assert found.gpus == ()
    assert "driver 580.159.04 finds no device there (vkCreateInstance gives -9)" in found.problems[0]
    assert "that of the kernel driver" in found.problems[0]
    mesa = find(Layout(tmp_path / "runtime"), render(tmp_path / "amd", "amdgpu"))
    assert mesa.problems[0].endswith("finds no device there (vkCreateInstance gives -9)")


def test_usable_ones_are_numbered_and_the_rest_is_said(tmp_path: Path, asked: Callable[[str, str], None]) -> None:
    asked(_LISTED, "")
    machine = render(nvidia(tmp_path, cards=2), "panthor", place="sys/devices/pci0000:00/0000:00:09.0")
    found = find(Layout(tmp_path / "runtime"), machine)
    assert [str(one) for one in found.gpus] == ["0 NVIDIA H200", "1 NVIDIA H200"]
    assert len(found.problems) == 1


# ---- the sandbox -----------------------------------------------------------------------------------------------------


def test_the_sandbox_opens_this_gpu_and_nothing_else(tmp_path: Path) -> None:
    (found,) = drivers.ways(nvidia(tmp_path))
    text = " ".join(sandbox.command(tmp_path, ["/usr/bin/true"], view=found.view(tmp_path / "icd.json")))
    assert len(re.findall(r"--dev-bind ", text)) == 4
    assert f"--dev-bind {tmp_path}/dev/nvidia0 /dev/nvidia0" in text
    assert "uvm-tools" not in text
    assert f"--ro-bind {tmp_path}/icd.json /driver/icd.json" in text
    assert "/libnvidia-glcore.so.580.159.04 /driver/libnvidia-glcore.so.580.159.04" in text
    assert f"--ro-bind {tmp_path}/{_PCI} /{_PCI}" in text
    order = ["--dev /dev", "--tmpfs /sys", "/sys/devices/system/cpu", "--dev-bind", f" /{_PCI} "]
    order += ["--remount-ro /sys", "--tmpfs /driver", "--remount-ro /driver", "--remount-ro /dev"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    plain = " ".join(sandbox.command(tmp_path, ["/usr/bin/true"]))
    for words in ("--dev-bind", "/driver", "--tmpfs /sys"):
        assert words not in plain


def test_a_worker_on_a_gpu_rounds_as_the_gpu_does(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "runtime")
    layout.shaders.mkdir(parents=True)
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    (found,) = drivers.ways(nvidia(tmp_path / "machine"))
    chosen = replace(gpu(), way=found)
    on_gpu = " ".join(host.command_line(layout, "1.30.0", exchange, "a" * 64, chosen))
    assert "DMLPREP_ROUNDING" not in on_gpu
    assert "lvp_icd" not in on_gpu
    assert "--setenv __GL_SHADER_DISK_CACHE_PATH /shaders" in on_gpu
    assert f"--bind {layout.gpu_shaders / chosen.slug / ('a' * 64)} /shaders" in on_gpu
    assert stat.S_IMODE((exchange / "icd.json").stat().st_mode) == 0o444
    plain = " ".join(host.command_line(layout, "1.30.0", exchange, ""))
    assert "--setenv DMLPREP_ROUNDING /native/rounding.so" in plain
    assert "lvp_icd.json" in plain


def test_a_verdict_names_gpu_and_driver() -> None:
    facts = {"adapter": "NVIDIA H200", "directml": "1.15.4", "onnxruntime": "1.30.0", "native fp16": "no"}
    text = str(host.describe(facts, ["FP16 truncates toward zero"], gpu()))
    assert text == (
        "dml on linux: NVIDIA H200, driver NVIDIA 580.159.04, Vulkan 1.4.312, DirectML 1.15.4, ONNX Runtime 1.30.0, "
        "no metacommands, no native FP16, FP16 truncates toward zero"
    )


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = GpuListing((), ("no GPU",), "load its driver")
    monkeypatch.setattr(LISTING, "gpu_listing", lambda: nothing)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_every_command_says_so_and_exits_3(run: Run, tmp_path: Path) -> None:
    path, out = str(fixture("residual_cnn").path), str(tmp_path / "out")
    for line in (
        ["prepare", path, "-o", out, "--pin", "batch=1", "--gpu"],
        ["prepare", path, "-o", out, "--pin", "batch=1", "--device", "dml", "--gpu", "auto"],
        ["compare", path, path, "--device", "dml", "--gpu", "NVIDIA"],
        ["bisect", path, "-o", out, "--gpu", "auto"],
        ["check", path, "--verify", "--gpu", "0"],
    ):
        done = run(*line)
        assert done.code == 3, line
        assert "no GPU [DP803]" in done.err
        assert "load its driver" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_makes_no_sense_without_directml(run: Run, tmp_path: Path) -> None:
    path = str(fixture("residual_cnn").path)
    for line in (
        ["prepare", path, "-o", str(tmp_path / "out"), "--device", "cpu", "--gpu", "auto"],
        ["compare", path, path, "--gpu", "auto"],
        ["check", path, "--gpu", "auto"],
    ):
        done = run(*line)
        assert done.code == 2, line
        assert "but the device is not dml" in done.err
    with pytest.raises(UsageError, match="the name is empty"):
        choose_gpu(" ")
    assert choose_gpu(None, on="cpu") == ""


def test_the_api_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LISTING, "gpu_listing", lambda: GpuListing((gpu(),)))
    assert [str(one) for one in dmlprep.gpus()] == ["0 NVIDIA H200"]
    assert choose_gpu("nvidia") == "0"


@pytest.fixture
def as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """lavapipe without the interposer, as if it were a GPU: it truncates, as NVIDIA's driver does."""
    one = drivers.Way("lavapipe", {"/dev/zero": Path("/dev/zero")}, icds=("lvp_icd.json",))
    monkeypatch.setattr(drivers, "ways", lambda *_: (one,))
    monkeypatch.setattr(gpus, "_CPU", -1)


@pytest.mark.dml
@pytest.mark.usefixtures("as_a_gpu")
def test_a_device_that_truncates_is_measured_and_told_from_lavapipe(add_relu: Path) -> None:
    status = dml_status(session=SessionOptions(gpu="auto"))
    assert status.available, status.reason
    assert (status.fp16.rounding, status.fp16.overflow) == ("toward-zero", "saturates")
    assert status.device is not None
    assert "FP16 truncates toward zero" in status.device.details
    assert any(detail.startswith("driver llvmpipe Mesa") for detail in status.device.details)
    assert dml_status().fp16.rounding == "nearest-even"
    with open_dml(add_relu, SessionOptions(gpu="0", optimization="disabled")) as session:
        assert session.device == status.device
