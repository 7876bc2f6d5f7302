"""What DirectML can run on here, and the releases of it that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmlprep.runtime import Adapter
    from dmlprep.runtime.linux.gpus import Gpu
    from dmlprep.targets import Target
    from dmlprep.targets.target import Kind

__all__ = ["adapters", "find_target", "gpus", "list_targets"]


def adapters() -> tuple[Adapter, ...]:
    """The graphics adapters that DirectML can have here.

    Returns:
        on Windows those that DXGI lists, in its order; on Linux the one of the installed runtime, lavapipe, which
        computes on the CPU; empty where there is none.
    """
    from dmlprep.runtime import adapters as found

    return found()


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that ``gpu`` takes on Linux, by Vulkan; empty where there are none, and elsewhere.

    ``dmlprep runtime status`` says what is missing.

    Returns:
        in the order of their numbers.
    """
    from dmlprep.runtime import gpus as listed

    return listed()


def list_targets(kind: Kind = "onnxruntime") -> tuple[Target, ...]:
    """The DirectML releases that dmlprep knows, oldest first: versions, limits, sources.

    >>> [target.name for target in dmlprep.list_targets()][-2:]
    ['ort-1.29', 'ort-1.30']

    Args:
        kind: releases of ONNX Runtime; those of Windows ML (``windowsml``), which carry one of them; or Windows itself
            (``windows``), whose kernels are not known.

    Returns:
        the releases.
    """
    from dmlprep.targets import find_target, target_names

    return tuple(find_target(name) for name in target_names(kind))


def find_target(name: str = "latest") -> Target:
    """One release by its name (``ort-1.24``), its version (``1.24``), or ``latest``.

    Args:
        name: of ``dmlprep target list``.

    Returns:
        versions, limits, kernels and sources of it.

    Raises:
        UsageError: unknown name.
    """
    from dmlprep.targets import find_target as find

    return find(name)
