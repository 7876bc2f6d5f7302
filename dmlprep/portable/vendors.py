"""The execution providers of hardware vendors (Windows ML): register their libraries, and choose a device.

Sources: ``onnxruntime``'s Python API since 1.23 (plugin execution providers), and the package ``windowsml`` 2.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from .app_errors import ModelError
from .app_sessions import CPU, DML, SESSIONS

KINDS = ("npu", "gpu")
"""The values of ``prefer``."""

_INSTALL = "install it with its ensure_ready()"

REGISTERED: set[str] = set()
"""Names of the libraries that are registered. ONNX Runtime refuses a second registration in one process."""


def find_device(onnxruntime: Any, prefer: str, libraries: Mapping[str, str | PathLike[str]] | None) -> Any:
    """Register the providers' libraries, and return the first ``OrtEpDevice`` of the preferred kind, or of the other.

    Args:
        onnxruntime: the module.
        prefer: ``npu`` or ``gpu``.
        libraries: path of the library by name of the provider; ``None``: those that the package ``windowsml`` lists.

    Raises:
        ModelError: there is none; the message also says which libraries could not be registered.
    """
    if not hasattr(onnxruntime, "get_ep_devices"):
        raise ModelError(f"onnxruntime {onnxruntime.__version__} has no vendors' providers: install 1.23 or newer")
    paths, problems = _of_windowsml() if libraries is None else ({n: fspath(p) for n, p in libraries.items()}, [])
    with SESSIONS:
        present = {one.ep_name for one in onnxruntime.get_ep_devices()}
        for name, path in paths.items():
            if name in REGISTERED or name in present:
                continue
            try:
                onnxruntime.register_execution_provider_library(name, path)
                REGISTERED.add(name)
            except Exception as error:  # onnxruntime's errors have no common class
                problems.append(f"{name} cannot be registered: {error}")
    kinds = {name.lower(): kind for name, kind in onnxruntime.OrtHardwareDeviceType.__members__.items()}
    devices = [one for one in onnxruntime.get_ep_devices() if one.ep_name not in (DML, CPU)]
    for kind in sorted(KINDS, key=prefer.__ne__):
        for one in devices:
            if one.device.type == kinds[kind]:
                return one
    raise ModelError("; ".join(["none is registered for an NPU or a GPU", *problems]))


def _of_windowsml() -> tuple[dict[str, str], list[str]]:
    """Return the libraries that the package ``windowsml`` lists, and the reasons why others are missing."""
    try:
        from windowsml import EpCatalog, EpReadyState  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except (ImportError, OSError) as error:
        return {}, [f"no libraries: pass them, or install the package windowsml ({error})"]
    paths: dict[str, str] = {}
    problems: list[str] = []
    try:
        with EpCatalog() as catalog:
            for one in catalog.find_all_providers():
                if one.ready_state == EpReadyState.NotPresent:
                    problems.append(f"{one.name} is not on this machine: {_INSTALL}")
                    continue
                one.ensure_ready()  # it is installed, and is added to this process
                paths[one.name] = one.library_path
    except OSError as error:
        problems.append(f"windowsml: {error}")
    return paths, problems
