"""DirectML sessions on Linux: the host program of ``native/`` in the sandbox, as one more worker."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dmlprep.files import remove_tree
from dmlprep.record import DeviceInfo
from dmlprep.runtime.child import Child
from dmlprep.runtime.linux import claims, lending, sandbox, shaders
from dmlprep.runtime.linux.install import WINE_ENVIRONMENT
from dmlprep.runtime.linux.layout import Layout
from dmlprep.runtime.linux.staging import external_files, stage
from dmlprep.runtime.served import Session, SessionHost
from dmlprep.runtime.starting import leashed
from dmlprep.runtime.types import DATA_FOLDER, SessionOptions
from dmlprep.runtime.wire import FEEDS, RESULTS

__all__ = ["describe", "linux_host"]

_MODELS = "models"


class _Host(SessionHost):
    """A host whose worker keeps the compiled shaders of the first model that it loads.

    Args:
        layout: the installation.
        release: of ONNX Runtime.
        traits: what the self-test found, for the device's description.
    """

    def __init__(self, layout: Layout, release: str, traits: Sequence[str]) -> None:
        super().__init__(self._started, lambda facts: describe(facts, traits), self._staged, stranger=True)
        self._layout = layout
        self._release = release
        self._numbers = itertools.count(1)
        self._locations: Sequence[str] = ()
        self._key: str | None = None

    def open(self, path: Path, options: SessionOptions | None = None) -> Session:
        data = _data_folder(path, options or SessionOptions())
        self._locations = external_files(path, data)
        if self._key is None:
            with contextlib.suppress(OSError):  # said when it is loaded
                self._key = shaders.key_of([path, *(data / location for location in self._locations)])
        return super().open(path, options)

    def _started(self) -> Child:
        return Child(
            lambda exchange: leashed(_command(self._layout, self._release, exchange, self._key or "")),
            "the DirectML worker",
            holds=claims.use(self._layout),
        )

    def _staged(
        self, child: Child, path: Path, options: SessionOptions
    ) -> tuple[str, SessionOptions, Callable[[], None]]:
        name = f"m{next(self._numbers)}"
        folder = child.exchange / _MODELS / name

        def release_model() -> None:
            remove_tree(folder, ignore_errors=True)

        try:
            # The worker finds all data files beside the model, wherever they lie here.
            config = {key: value for key, value in options.config.items() if key != DATA_FOLDER}
            stage(path, folder, _data_folder(path, options), self._locations)
        except BaseException:
            release_model()
            raise
        return f"{name}/model.onnx", replace(options, config=config), release_model


def _data_folder(path: Path, options: SessionOptions) -> Path:
    return Path(options.config.get(DATA_FOLDER, path.resolve().parent))


def linux_host(layout: Layout, release: str, traits: Sequence[str] = ()) -> SessionHost:
    """A host for sessions on one release of ONNX Runtime.

    Args:
        traits: what the self-test found, for the device's description.
    """
    return _Host(layout, release, traits)


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


def _command(layout: Layout, release: str, exchange: Path, key: str) -> list[str]:
    """The worker's command line.

    Of the exchange folder it sees what it is given, read-only, and the folder of its results. The rest, its log above
    all, is ours alone.

    Args:
        key: see ``shaders.key_of``.
    """
    compiled = shaders.folder_of(layout.shaders, key) or exchange / "shaders"
    for folder in (exchange / _MODELS, exchange / FEEDS, exchange / RESULTS, compiled):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)  # whatever the umask is: as root, the worker is another user
    lending.lend(exchange / RESULTS, compiled)
    return sandbox.command(
        layout.root,
        ["/usr/bin/sh", "/native/launch.sh", "/native/host.exe.so", "Z:\\libraries", "/exchange/models", "/exchange"],
        write={"/exchange": exchange / RESULTS, "/shaders": compiled},
        read={
            "/exchange/models": exchange / _MODELS,
            f"/exchange/{FEEDS}": exchange / FEEDS,
            "/libraries": layout.release(release),
            "/native": layout.built,
            "/prefix": layout.prefix,
            **_name_of_the_server(layout, exchange),
        },
        environment={
            **WINE_ENVIRONMENT,
            "DMLPREP_ROUNDING": "/native/rounding.so",
            "MESA_SHADER_CACHE_DIR": "/shaders",
            "MESA_SHADER_CACHE_MAX_SIZE": f"{shaders.LARGEST >> 21}M",
            "MESA_DISK_CACHE_DATABASE_NUM_PARTS": "1",  # else there are a hundred files, for many writers
            "VK_ICD_FILENAMES": "/usr/share/vulkan/icd.d/lvp_icd.json",
            "VKD3D_DEBUG": "none",
        },
    )


def _name_of_the_server(layout: Layout, exchange: Path) -> dict[str, Path]:
    """Debian's Wine notes in a prefix which folder of /tmp its server's socket lies in, for its user's eyes alone.

    The note is copied with the prefix, by a worker who may be another user than the one who made the prefix.
    """
    if not (layout.prefix / "wineserver").exists():
        return {}
    own = exchange / "wineserver"
    own.write_text("wine-server")  # as long as what mkdtemp makes of wine-XXXXXX
    own.chmod(0o444)
    return {"/prefix/wineserver": own}
