"""Run DirectML sessions on Linux: the host program of ``native/`` is the worker, in the sandbox."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dmlprep.core.files import remove_tree
from dmlprep.process.child import Child
from dmlprep.process.starting import leashed
from dmlprep.record import DeviceInfo
from dmlprep.runtime.linux import install_locks, sandbox, shaders, shared_folders
from dmlprep.runtime.linux.drivers import ICD, icd_text
from dmlprep.runtime.linux.gpus import Gpu
from dmlprep.runtime.linux.install import WINE_ENVIRONMENT
from dmlprep.runtime.linux.layout import Layout
from dmlprep.runtime.linux.staging import external_files, stage
from dmlprep.runtime.served import Session, SessionHost
from dmlprep.runtime.types import DATA_FOLDER, SessionOptions, is_software
from dmlprep.runtime.wire import FEEDS, RESULTS

_MODELS = "models"


class LinuxHost(SessionHost):
    """A host for DirectML sessions on one release of ONNX Runtime, with a shader cache for its first model.

    Args:
        traits: results of the self-test, for the description of the device.
        gpu: the GPU to use; ``None`` for lavapipe.
    """

    def __init__(self, layout: Layout, release: str, traits: Sequence[str] = (), gpu: Gpu | None = None) -> None:
        super().__init__(self.start_worker, lambda facts: describe(facts, traits, gpu), self._staged)
        self.layout, self.release, self.gpu = layout, release, gpu
        self._numbers = itertools.count(1)
        self._locations: Sequence[str] = ()
        self.shader_key: str | None = None

    def open(self, path: Path, options: SessionOptions | None = None) -> Session:
        """Open a session. The first model of this host decides the shader cache of all its sessions."""
        data = _data_folder(path, options or SessionOptions())
        self._locations = external_files(path, data)
        if self.shader_key is None:
            with contextlib.suppress(OSError):  # the load reports the error
                self.shader_key = shaders.key_of([path, *(data / location for location in self._locations)])
        return super().open(path, options)

    def start_worker(self) -> Child:
        """Start a worker process, which serves the sessions of this host.

        Raises:
            SessionFailure: it does not start.
            CheckNotRun: the runtime is being installed or removed.
        """
        return Child(
            lambda exchange: leashed(
                command_line(self.layout, self.release, exchange, self.shader_key or "", self.gpu)
            ),
            "the DirectML worker",
            holds=install_locks.use(self.layout),
        )

    def _staged(
        self, child: Child, path: Path, options: SessionOptions
    ) -> tuple[str, SessionOptions, Callable[[], None]]:
        name = f"m{next(self._numbers)}"
        folder = child.exchange / _MODELS / name

        def release_model() -> None:
            remove_tree(folder, ignore_errors=True)

        # The worker expects all data files next to the model, wherever they are on the host.
        config = {key: value for key, value in options.config.items() if key != DATA_FOLDER}
        try:
            stage(path, folder, _data_folder(path, options), self._locations)
        except BaseException:
            release_model()
            raise
        return f"{name}/model.onnx", replace(options, config=config), release_model


def _data_folder(path: Path, options: SessionOptions) -> Path:
    return Path(options.config.get(DATA_FOLDER, path.resolve().parent))


def describe(facts: Mapping[str, str], traits: Sequence[str] = (), gpu: Gpu | None = None) -> DeviceInfo:
    """Return the device of a session, such as ``dml on linux: lavapipe, DirectML 1.15.4, ...``.

    For a GPU, its driver is in the details. ``gpu`` is ``None`` for lavapipe.
    """
    adapter = facts.get("adapter", "unknown adapter")
    name = gpu.name if gpu is not None else "lavapipe" if "llvmpipe" in adapter else adapter
    details = [
        *([] if gpu is None else [f"driver {gpu.driver}", f"Vulkan {gpu.vulkan}"]),
        f"DirectML {facts.get('directml', '?')}",
        f"ONNX Runtime {facts.get('onnxruntime', '?')}",
        "no metacommands",
        "native FP16" if facts.get("native fp16") == "yes" else "no native FP16",
        *traits,
    ]
    version, driver = facts.get("onnxruntime", ""), "" if gpu is None else gpu.driver
    software = is_software(name)
    return DeviceInfo(f"dml on linux: {name}", details, "dml", software=software, onnxruntime=version, driver=driver)


def command_line(layout: Layout, release: str, exchange: Path, key: str, gpu: Gpu | None = None) -> list[str]:
    """Return the command line that starts the worker in the sandbox, and make the folders that it needs.

    In the exchange folder, the worker sees its input (read-only) and the folder of its results. It cannot see the rest,
    such as its log. ``key`` is the key of the shader cache (``shaders.key_of``). ``gpu`` is ``None`` for
    lavapipe.
    """
    compiled = shaders.folder_of(shaders.of_device(layout, gpu.slug if gpu else ""), key) or exchange / "shaders"
    for folder in (exchange / _MODELS, exchange / FEEDS, exchange / RESULTS, compiled):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)  # whatever the umask is: if root runs this, the worker is another user
    shared_folders.lend(exchange / RESULTS, compiled)
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
            "MESA_SHADER_CACHE_DIR": "/shaders",
            "MESA_SHADER_CACHE_MAX_SIZE": f"{shaders.LARGEST >> 21}M",
            "MESA_DISK_CACHE_DATABASE_NUM_PARTS": "1",  # the default is a hundred files, for many writers
            "VKD3D_DEBUG": "none",
            **_driver(gpu),
        },
        view=_view(gpu, exchange),
    )


def _driver(gpu: Gpu | None) -> dict[str, str]:
    """Return the environment variables that choose the Vulkan driver.

    The rounding fix is only for lavapipe: GPUs are measured as they are.
    """
    if gpu is None:
        icd = "/usr/share/vulkan/icd.d/lvp_icd.json"
        return {"DMLPREP_ROUNDING": "/native/rounding.so", "VK_ICD_FILENAMES": icd}
    cache = {"": "1", "_PATH": "/shaders", "_SIZE": str(shaders.LARGEST >> 1)}
    return {**{f"__GL_SHADER_DISK_CACHE{name}": value for name, value in cache.items()}, **gpu.way.environment}


def _view(gpu: Gpu | None, exchange: Path) -> sandbox.View:
    """Return the host devices that the worker sees; none for lavapipe."""
    if gpu is None:
        return sandbox.View()
    icd = exchange / ICD
    icd.write_text(icd_text(gpu.way))
    icd.chmod(0o444)
    return gpu.way.view(icd)


def _name_of_the_server(layout: Layout, exchange: Path) -> dict[str, Path]:
    """Return a replacement for the prefix's file ``wineserver``, with read rights for all, by its path in the sandbox.

    Debian's Wine writes into it which folder of /tmp has its server's socket. Only the owner of the prefix may read the
    file. The worker, which copies the prefix, may be another user. The result is empty if the prefix has no such file.
    """
    if not (layout.prefix / "wineserver").exists():
        return {}
    own = exchange / "wineserver"
    own.write_text("wine-server")  # as long as the name that mkdtemp makes from wine-XXXXXX
    own.chmod(0o444)
    return {"/prefix/wineserver": own}
