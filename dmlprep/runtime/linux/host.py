"""DirectML sessions on Linux: the host program of ``native/`` in the sandbox, as one more worker."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dmlprep.record import DeviceInfo
from dmlprep.runtime.child import Child
from dmlprep.runtime.linux import claims, sandbox
from dmlprep.runtime.linux.install import WINE_ENVIRONMENT
from dmlprep.runtime.linux.layout import Layout
from dmlprep.runtime.linux.staging import stage
from dmlprep.runtime.served import SessionHost
from dmlprep.runtime.types import DATA_FOLDER, SessionOptions

__all__ = ["describe", "linux_host"]


def linux_host(layout: Layout, release: str, traits: Sequence[str] = ()) -> SessionHost:
    """A host for sessions on one release of ONNX Runtime.

    Args:
        traits: what the self-test found, for the device's description.
    """
    numbers = itertools.count(1)

    def start() -> Child:
        return Child(
            lambda exchange: _command(layout, release, exchange), "the DirectML worker", holds=claims.use(layout)
        )

    def put(child: Child, path: Path, options: SessionOptions) -> tuple[str, SessionOptions, Callable[[], None]]:
        name = f"m{next(numbers)}"
        folder = child.exchange / "models" / name

        def release_model() -> None:
            shutil.rmtree(folder, ignore_errors=True)

        try:
            # The worker finds all data files beside the model, wherever they lie here.
            config = dict(options.config)
            stage(path, folder, Path(config.pop(DATA_FOLDER, path.resolve().parent)))
        except BaseException:
            release_model()
            raise
        return f"{name}/model.onnx", replace(options, config=config), release_model

    return SessionHost(start, lambda facts: describe(facts, traits), put)


def describe(facts: Mapping[str, str], traits: Sequence[str] = ()) -> DeviceInfo:
    """``dml on linux: lavapipe, DirectML 1.15.4, no metacommands, no native FP16``."""
    adapter = facts.get("adapter", "unknown adapter")
    name = "lavapipe" if "llvmpipe" in adapter else adapter
    details = [
        f"DirectML {facts.get('directml', '?')}",
        f"ONNX Runtime {facts.get('onnxruntime', '?')}",
        "no metacommands",
        "native FP16" if facts.get("native fp16") == "yes" else "no native FP16",
        *traits,
    ]
    return DeviceInfo(f"dml on linux: {name}", details)


def _command(layout: Layout, release: str, exchange: Path) -> list[str]:
    models = exchange / "models"
    models.mkdir()
    shaders = _shaders(layout, exchange)
    return sandbox.command(
        layout.root,
        ["/usr/bin/sh", "/native/launch.sh", "/native/host.exe.so", "Z:\\libraries", "/exchange/models", "/exchange"],
        write={"/exchange": exchange, "/shaders": shaders},
        read={
            "/exchange/models": models,
            "/libraries": layout.release(release),
            "/native": layout.built,
            "/prefix": layout.prefix,
        },
        environment={
            **WINE_ENVIRONMENT,
            "DMLPREP_ROUNDING": "/native/rounding.so",
            "MESA_SHADER_CACHE_DIR": "/shaders",
            "VK_ICD_FILENAMES": "/usr/share/vulkan/icd.d/lvp_icd.json",
            "VKD3D_DEBUG": "none",
        },
    )


def _shaders(layout: Layout, exchange: Path) -> Path:
    """Where compiled shaders are kept; in a folder that goes with the worker where the installation is another's."""
    with contextlib.suppress(OSError):
        layout.shaders.mkdir(exist_ok=True)
        if os.access(layout.shaders, os.W_OK | os.X_OK):
            return layout.shaders
    own = exchange / "shaders"
    own.mkdir()
    return own
