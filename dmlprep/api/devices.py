"""The software environment, the DirectML devices of this machine, the runtime on Linux, and the known releases."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlprep.record import Finding, finding

if TYPE_CHECKING:
    from dmlprep.directml.targets import Target
    from dmlprep.directml.targets.target import Kind
    from dmlprep.runtime import Adapter, DmlStatus
    from dmlprep.runtime.linux.gpus import Gpu, GpuListing


@dataclass(frozen=True)
class Environment:
    """The software environment of dmlprep on this machine.

    Attributes:
        python, system: version of Python, and name of the operating system.
        libraries: versions of the installed packages that dmlprep uses, by package name.
        landlock: version of Landlock's ABI (Linux's confinement of file access); 0 if the kernel lacks Landlock.
        seccomp: True if the kernel accepts filters of system calls.
        lacking: reasons why the process that opens models on the CPU is not fully confined; empty if it is.
        dml: result of the DirectML test: ``available``, ``reason`` and ``device``; ``None`` if it was not tried.
        windows_ml: a line of text for each provider in the catalog of Windows ML; empty on other systems.
        findings: the problems found.
    """

    python: str
    system: str
    libraries: dict[str, str]
    landlock: int
    seccomp: bool
    lacking: list[str]
    dml: DmlStatus | None
    windows_ml: list[str]
    findings: list[Finding]


def check_environment(*, dml: bool = True) -> Environment:
    """Return the software environment and its problems: conflicting packages and broken libraries.

    With ``dml`` also test whether DirectML works, which takes about 10 s the first time.
    """
    from dmlprep.process.confinement import lacking, landlock_abi, takes_filters
    from dmlprep.runtime import dml_status, environment
    from dmlprep.runtime.catalog import catalog_lines

    findings = environment.runtime_findings() + environment.requirement_findings() + environment.genai_findings()
    if not {one.code for one in findings} & {"DP801", "DP805"}:
        findings += _cpu_findings()
    status = dml_status() if dml else None
    missing = None if status is None else environment.dml_finding(status)
    if missing is not None and not any(one.code == "DP803" for one in findings):
        findings.append(missing)
    return Environment(
        python=platform.python_version(),
        system=environment.system_name(),
        libraries=environment.installed_versions((*environment.RUNTIMES, *environment.LIBRARIES)),
        landlock=landlock_abi(),
        seccomp=takes_filters(),
        lacking=lacking(),
        dml=status,
        windows_ml=catalog_lines(),
        findings=findings,
    )


def _cpu_findings() -> list[Finding]:
    """Try to load ONNX Runtime in a child process, because a broken one can crash.

    Returns:
        the finding DP805 if it cannot be loaded; an empty list if it can.
    """
    from dmlprep.runtime import SessionFailure, cpu_host

    try:
        with cpu_host() as host:
            host.worker()
    except SessionFailure as error:
        remedy = "install it again with the same pip command"
        return [finding("DP805", f"ONNX Runtime cannot be loaded: {error.message}", remedy=remedy)]
    return []


def adapters() -> tuple[Adapter, ...]:
    """Return the graphics adapters that DirectML can use on this machine.

    Returns:
        on Windows all adapters in the order of DXGI; on Linux only lavapipe, the CPU device of the installed runtime.
        Empty if there are none.
    """
    from dmlprep.runtime.adapters import listing

    return listing()[0]


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that the option ``gpu`` accepts: on Linux, with the runtime, those with a usable Vulkan driver.

    Returns:
        the GPUs in the order of their numbers; empty on other systems. ``dmlprep runtime status`` shows why a GPU is
        missing.
    """
    from dmlprep.runtime.adapters import gpu_listing

    return gpu_listing().gpus


def adapter_listing() -> tuple[list[tuple[Adapter, list[str]]], str]:
    """Return each adapter with the command-line options that choose it, and the reason if there are no adapters.

    The reason is empty if there are adapters. ``no option`` among the options marks the default adapter.
    """
    from dmlprep.runtime.adapters import listing

    rows, reason = listing()
    return [(one, _ways(one, rows)) for one in rows], reason


def _ways(one: Adapter, others: tuple[Adapter, ...]) -> list[str]:
    from dmlprep.portable.device import VENDORS

    ways = ["no option"] if one.number == 0 and not one.software else []
    ways.append(f"--device-id {one.number}")
    if one.vendor in VENDORS and sum(other.vendor == one.vendor for other in others) == 1:
        ways.append(f"--adapter {one.vendor}")
    return [*ways, *(f"performance_preference {name}" for name in one.preferences)]


@dataclass(frozen=True)
class Installed:
    """A release of ONNX Runtime that was installed in the runtime for DirectML on Linux.

    Attributes:
        folder: the folder of the whole runtime.
        status: the result of the self-test; ``available`` is False if it failed.
        package: ``file`` name and ``sha256`` of the package with the release, and ``pin``: ``pinned`` if dmlprep knows
            this digest.
    """

    release: str
    folder: Path
    status: DmlStatus
    package: dict[str, str]


def install_runtime(
    release: str = "",
    *,
    wheel: Path | None = None,
    mirror: str = "",
    keyring: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Installed:
    """Install the missing parts of the runtime for DirectML on Linux, and test it.

    Args:
        release: release of ONNX Runtime (``1.24.4``); empty: dmlprep's default release.
        wheel: a file to use instead of a download: a win_amd64 wheel, or an npm package.
        mirror: address of a Debian mirror; empty: the one that apt uses on this machine.
        keyring: file with the keys of Debian's archive; ``None``: the usual place.
        progress: called with the name of the stage, its finished bytes and its total bytes.

    Returns:
        the installed release. A failed self-test raises no error: ``status.available`` is False.

    Raises:
        CheckNotRun: the runtime cannot work on this machine, or a download fails.
        UsageError: an option makes no sense.
        OutputError: the cache folder, where the runtime is, cannot be written.
    """
    from dmlprep.runtime import dml_status
    from dmlprep.runtime.linux.install import check_machine, install, package_of
    from dmlprep.runtime.linux.layout import DEFAULT_RELEASE, Layout
    from dmlprep.runtime.linux.release import DEFAULT_KEYRING
    from dmlprep.runtime.linux.source import Source

    check_machine()
    layout = Layout.of_user()
    version = install(layout, Source(mirror, keyring or DEFAULT_KEYRING, release or DEFAULT_RELEASE, wheel), progress)
    progress("self-test", 0, 0)
    return Installed(version, layout.home, dml_status(version), package_of(layout, version))


@dataclass(frozen=True)
class Runtime:
    """The installed runtime for DirectML on Linux.

    Attributes:
        manifest: the origin of its parts: ``mirror``, ``signatures``, ``native`` and ``packages``.
        releases: for each release of ONNX Runtime the result of its self-test (``available``, ``reason``, ``device``,
            ``fp16``), its ``libraries`` and its ``package``.
        gpus: the usable Vulkan devices (``gpus``), and why others cannot be used (``problems``).
        untried: Debian packages whose version differs from the tested one: (name, version, tested version).
    """

    folder: Path
    manifest: dict[str, Any]
    releases: dict[str, dict[str, Any]]
    gpus: GpuListing
    untried: list[tuple[str, str, str]]


def installed_runtime(*, gpu: str | None = None, again: bool = False) -> Runtime:
    """Return the installed runtime for DirectML on Linux, with the self-test of each release.

    Args:
        gpu: the GPU for the self-tests; ``None``: the CPU device.
        again: True to repeat self-tests whose result is known.

    Raises:
        CheckNotRun: a part of the runtime is missing, or no GPU matches ``gpu``.
        UsageError: several GPUs match.
    """
    from dmlprep.core.errors import CheckNotRun
    from dmlprep.runtime import SessionOptions, choose_gpu, dml_status
    from dmlprep.runtime.adapters import gpu_listing
    from dmlprep.runtime.linux.base import TESTED
    from dmlprep.runtime.linux.install import missing_piece, package_of, read_manifest
    from dmlprep.runtime.linux.layout import Layout, read_json

    layout = Layout.of_user()
    if reason := missing_piece(layout):
        raise CheckNotRun(reason, where=str(layout.home), code="DP803")
    session = SessionOptions(gpu=choose_gpu(gpu))
    found_gpus = gpu_listing()
    manifest = read_manifest(layout)
    releases: dict[str, dict[str, Any]] = {}
    for version in layout.installed():
        status = dml_status(version, again=again, session=session)
        releases[version] = {
            "available": status.available,
            "reason": status.reason,
            "device": str(status.device or ""),
            "fp16": {**asdict(status.fp16), "native": status.native_fp16},
            **read_json(layout.release(version) / "piece.json"),
            "package": package_of(layout, version),
        }
    versions = {one["name"]: one["version"] for one in manifest["packages"]}
    untried = [(name, versions[name], tried) for name, tried in TESTED.items() if versions.get(name, tried) != tried]
    return Runtime(layout.home, manifest, releases, found_gpus, untried)


def runtime_folder() -> Path:
    """Return the folder of the runtime for DirectML on Linux, whether installed or not.

    Raises:
        CheckNotRun: this user has no cache folder.
    """
    from dmlprep.runtime.linux.layout import Layout

    return Layout.of_user().home


def remove_runtime(release: str = "") -> list[Path]:
    """Remove the runtime for DirectML on Linux, or only one ``release`` of it; return the removed paths.

    Without a runtime there are none, and no error.

    Raises:
        UsageError: the runtime does not have the release.
        CheckNotRun: the runtime is in use.
    """
    from dmlprep.runtime.linux.install import remove
    from dmlprep.runtime.linux.layout import Layout

    return remove(Layout.of_user(), release)


def target_names(kind: Kind = "onnxruntime") -> list[str]:
    """Return the names of the known DirectML releases, such as ``ort-1.24``, without reading their kernel tables.

    ``kind``: as in ``list_targets``.
    """
    from dmlprep.directml.targets import target_names as names

    return names(kind)


def list_targets(kind: Kind = "onnxruntime") -> tuple[Target, ...]:
    """Return the DirectML releases that dmlprep knows, oldest first: versions, limits, sources.

    >>> [target.name for target in dmlprep.list_targets()][-2:]
    ['ort-1.29', 'ort-1.30']

    Args:
        kind: ``onnxruntime``; ``windowsml`` for releases of Windows ML, each of which includes a release of ONNX
            Runtime; or ``windows`` for Windows itself, whose kernels are unknown.

    Returns:
        the releases of that kind.
    """
    from dmlprep.directml.targets import find_target, target_names

    return tuple(find_target(name) for name in target_names(kind))


def find_target(name: str = "latest") -> Target:
    """Return one DirectML release by its name (``ort-1.24``), its version (``1.24``), or ``latest``.

    Args:
        name: a name of ``dmlprep explain targets``.

    Returns:
        versions, limits, kernels and sources.

    Raises:
        UsageError: the name is unknown.
    """
    from dmlprep.directml.targets import find_target as find

    return find(name)


def default_target() -> tuple[str, str]:
    """Return the name of the target that applies if none is set, and the reason as a clause."""
    from dmlprep.runtime.default_target import default_target as default

    return default()
