"""Add a release of ONNX Runtime with DirectML to ``dmlprep/directml/targets/data/kernels.json``, from its package.

| command | effect |
|---|---|
| python scripts/read_release.py 1.30.0 | fetch the package of a release, read it, add it to the table |
| python scripts/read_release.py FILE | the same with a local wheel or npm package |
| python scripts/read_release.py 1.24.4 --check | write nothing; print the differences from the table |

It needs the runtime (``dmlprep runtime install``) and the Windows Python of ``scripts/windows.py setup``.
``docs/add-a-release.md`` says which facts it reads, how, and what a person must check afterwards. Exit codes: 0 good, 1
``--check`` found differences, 2 a person must add something for the release first, 3 not run.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper
from provider_table import ProviderRow, UnknownLayout, file_version, option_names, provider_table
from windows import Bed, NotRun, job, locked, setup

from dmlprep.core.errors import DmlprepError
from dmlprep.runtime.linux.wheel import fetch_release

HERE = Path(__file__).resolve().parent
TABLE = HERE.parent / "dmlprep" / "directml" / "targets" / "data" / "kernels.json"
PYTHON = "3.13"

OPSETS = range(7, 41)
"""Opsets to try: from the first that ONNX Runtime supports to more than any release knows."""

IR_VERSIONS = range(3, 21)

SMALL_LOSSES = frozenset(["Dropout", "ScatterElements", "ScatterND", "GridSample", "ConstantOfShape", "If"])
"""Operators that do not count for ``dml_opset``: removed before placement, or rare."""

_INTERNAL = ("com.microsoft.nchwc",)
"""Domains that only ONNX Runtime's own optimizers write."""

_LAST_VERSION = 2**31 - 1


class MissingFact(Exception):
    """The release has something that no file of the project knows; the message says what to add, and where."""


@dataclass(frozen=True)
class Package:
    """One package of a release.

    Attributes:
        name: ``onnxruntime-windowsml``.
        version: the package's version, with the build time if it has one.
        library: bytes of onnxruntime.dll.
        directml: bytes of DirectML.dll.
    """

    name: str
    version: str
    path: Path
    library: bytes
    directml: bytes

    @property
    def release(self) -> str:
        """The release's number, such as ``1.30.0``."""
        return ".".join(self.version.split(".")[:3])


def open_package(path: Path) -> Package:
    """Read the libraries of a wheel for win_amd64, or of npm's onnxruntime-node.

    Raises:
        NotRun: it is not such a file.
    """
    match = re.match(r"(onnxruntime(?:_directml|_windowsml|-node))-(\d+(?:\.\d+)+?)(?:-|\.tgz)", path.name)
    if match is None:
        raise NotRun(f"{path.name} is not a package of ONNX Runtime with DirectML")
    libraries: dict[str, bytes] = {}
    if path.suffix == ".tgz":
        with tarfile.open(path) as tar:
            for member in tar:
                source = tar.extractfile(member) if "/win32/x64/" in member.name else None
                if source is not None and member.name.endswith(("/onnxruntime.dll", "/DirectML.dll")):
                    libraries[Path(member.name).name] = source.read()
    else:
        with zipfile.ZipFile(path) as wheel:
            for name in ("onnxruntime.dll", "DirectML.dll"):
                libraries[name] = wheel.read(f"onnxruntime/capi/{name}")
    if len(libraries) != 2:
        raise NotRun(f"{path.name} does not hold onnxruntime.dll and DirectML.dll for x64")
    name = match[1].replace("_", "-")
    return Package(name, match[2], path, libraries["onnxruntime.dll"], libraries["DirectML.dll"])


def cpu_wheel(release: str, folder: Path) -> Path:
    """Return the wheel ``onnxruntime`` of a release, because npm's package has no Python that could list the kernels.

    Raises:
        NotRun: pip cannot fetch it.
    """
    line = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    line += ["--only-binary=:all:", "--platform", "win_amd64", "--python-version", PYTHON, "--dest", str(folder)]
    subprocess.run([*line, f"onnxruntime=={release}"], check=False, capture_output=True)
    wheels = sorted(folder.glob(f"onnxruntime-{release}-*.whl"))
    if not wheels:
        raise NotRun(f"pip cannot fetch onnxruntime {release}; pass --kernels FILE")
    return wheels[0]


def write_models(folder: Path) -> None:
    """Write one-node models of each opset, and of each IR version."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "g", [value], [result])

    def put(name: str, opset: int, ir_version: int) -> None:
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
        (folder / name).write_bytes(model.SerializeToString())

    for opset in OPSETS:
        put(f"opset-{opset}.onnx", opset, 7)
    for ir_version in IR_VERSIONS:
        put(f"ir-{ir_version}.onnx", 12, ir_version)


def ask(bed: Bed, wheel: Path) -> dict[str, Any]:
    """Run ``ask_release.py`` in the Windows Python with this wheel, and return its answer.

    Raises:
        NotRun: it does not run; the message ends with Python's output.
    """
    with tempfile.TemporaryDirectory(prefix="dmlprep-release-") as name:
        packages = Path(name) / "packages"
        shutil.copytree(bed.few, packages, ignore=shutil.ignore_patterns("onnxruntime*"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages, [n for n in archive.namelist() if n.startswith("onnxruntime/")])
        with locked(bed.home, fcntl.LOCK_SH), job(bed, packages=packages) as here:
            models = here.checkout / "models"
            models.mkdir()
            write_models(models)
            shutil.copyfile(HERE / "ask_release.py", here.checkout / "ask_release.py")
            code = here.run(["ask_release.py", "models", "answer.json"], limit=600)
            answer = here.checkout / "answer.json"
            if code or not answer.is_file():
                raise NotRun(f"{wheel.name} does not run (exit code {code}): {here.output()[-300:]}")
            facts: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            return facts


def short(name: str) -> str:
    """Return ``float`` for ``tensor(float)``; other types stay unchanged."""
    return name.removeprefix("tensor(").removesuffix(")") if name.startswith("tensor(") else name


def key_of(domain: str, op: str) -> str:
    """Return the operator's name, with its domain unless that is ONNX's own."""
    return op if domain == "ai.onnx" else f"{domain}::{op}"


Signature = dict[str, frozenset[str]]


def listed(kernels: Iterable[Mapping[str, Any]], provider: str) -> dict[tuple[str, int, int], Signature]:
    """Return a provider's kernels: (operator, first version, last version) -> label -> element types.

    A release has several CPU kernels for the types of one operator; they are merged.
    """
    signatures: dict[tuple[str, int, int], dict[str, set[str]]] = {}
    for kernel in kernels:
        if kernel["provider"] == provider and kernel["domain"] not in _INTERNAL:
            row = signatures.setdefault((key_of(kernel["domain"], kernel["op"]), *kernel["versions"]), {})
            for label, names in kernel["types"].items():
                row.setdefault(label, set()).update(map(short, names))
    return {key: {label: frozenset(names) for label, names in row.items()} for key, row in signatures.items()}


@dataclass(frozen=True)
class Release:
    """All facts about one release.

    Attributes:
        rows: (operator, version) -> labels and types, other facts: DirectML's kernels.
        cpu: (operator, first version, last version) -> labels and types.
    """

    head: dict[str, Any]
    rows: dict[tuple[str, int], tuple[Signature, dict[str, Any]]]
    cpu: dict[tuple[str, int, int], Signature]

    @property
    def name(self) -> str:
        """The name of the target, such as ``ort-1.30``."""
        return f"ort-{self.number}"

    @property
    def number(self) -> str:
        """The major and minor version, such as ``1.30``."""
        return ".".join(self.head["ort_version"].split(".")[:2])

    @property
    def order(self) -> list[int]:
        """The sort key of releases, oldest first."""
        return [int(part) for part in self.number.split(".")]

    def differences(self, known: Release) -> list[str]:
        """Return the differences from another release, for readers."""
        changes = [
            f"{k}: {known.head.get(k)} -> {v}"
            for k, v in self.head.items()
            if k != "sources" and known.head.get(k) != v
        ]
        for title, mine, other in (("DirectML", self.rows, known.rows), ("CPU", self.cpu, known.cpu)):
            for key in sorted(mine.keys() | other.keys()):
                if mine.get(key) != other.get(key):
                    change = "new" if key not in other else "gone" if key not in mine else "changed"
                    changes.append(f"{title} kernel {'-'.join(map(str, key[:2]))}: {change}")
        return changes


def read_table(path: Path) -> tuple[list[Release], list[list[str]]]:
    """Return all releases of a table, oldest first, and its sets of element types."""
    data = json.loads(path.read_text(encoding="utf-8"))
    sets = [frozenset(names) for names in data["types"]]
    releases = [Release(head, {}, {}) for head in data["releases"].values()]
    numbers = [release.number for release in releases]

    def having(span: str) -> list[Release]:
        first, _, last = span.partition("-")
        return releases[numbers.index(first) : numbers.index(last) + 1 if last else None]

    for op, rows in data["dml"].items():
        for span, since, labels, *facts in rows:
            for release in having(span):
                signature = {label: sets[number] for label, number in labels.items()}
                release.rows[op, since] = signature, facts[0] if facts else {}
    for op, rows in data["cpu"].items():
        for span, since, until, labels in rows:
            for release in having(span):
                signature = {label: sets[number] for label, number in labels.items()}
                release.cpu[op, since, until or _LAST_VERSION] = signature
    return releases, data["types"]


def named(releases: Iterable[Release], name: str) -> Release:
    """Return the release with this name (``ort-1.24``).

    Raises:
        MissingFact: the table has no such release.
    """
    for release in releases:
        if release.name == name:
            return release
    raise MissingFact(f"kernels.json has no {name}")


def query_names(table: Sequence[ProviderRow], known: Release, new_queries: Mapping[str, str]) -> dict[int, str]:
    """Return address of a support query -> its name, by the operators that had the query in an earlier release.

    Raises:
        MissingFact: a query has no name, or two.
    """
    names: dict[int, set[str]] = {}
    for row in table:
        if row.query:
            key = key_of(row.domain, row.op)
            name = new_queries.get(key) or known.rows.get((key, row.since), ({}, {}))[1].get("query")
            names.setdefault(row.query, set()).update([name] if name else [])
    for address, candidates in names.items():
        if len(candidates) != 1:
            ops = ", ".join(f"{r.op}-{r.since}" for r in table if r.query == address)
            raise MissingFact(
                f"the support query of {ops} is {' or '.join(sorted(candidates)) or 'new'}: write it in "
                "dmlprep/directml/targets/queries.py, and pass --query OPERATOR=NAME"
            )
    return {address: candidates.pop() for address, candidates in names.items()}


def dml_rows(
    table: Sequence[ProviderRow], known: Release, new_queries: Mapping[str, str]
) -> dict[tuple[str, int], Any]:
    """Return (operator, version) -> labels and types, other facts: the table and the known kernels outside of it."""
    queries = query_names(table, known, new_queries)
    memory = {
        op: {k: v for k, v in facts.items() if k in ("cpu_in", "cpu_out")} for (op, _), (_, facts) in known.rows.items()
    }
    rows: dict[tuple[str, int], Any] = {}
    for row in table:
        key = key_of(row.domain, row.op)
        facts: dict[str, Any] = {"const": list(row.const)} if row.const else {}
        facts |= memory.get(key, {})
        facts |= {} if row.fuses else {"fuses": False}
        facts |= {"fused_inputs": row.fused_inputs} if row.fused_inputs else {}
        facts |= {"query": queries[row.query]} if row.query else {}
        rows[key, row.since] = row.types, facts
    for place, (types, facts) in known.rows.items():
        if facts.get("made_by", "dml") != "dml":
            rows[place] = types, facts
    return rows


def agree(rows: Mapping[tuple[str, int], Any], ort_kernels: Mapping[tuple[str, int, int], Signature]) -> None:
    """Refuse rows that differ from ONNX Runtime's own list for DirectML.

    Raises:
        MissingFact: a row is missing, superfluous, or has other types.
    """
    mine = {key: types for key, (types, _) in rows.items()}
    its = {(op, since): types for (op, since, _), types in ort_kernels.items()}
    if wrong := sorted(
        f"{op}-{since}" for op, since in mine.keys() | its.keys() if mine.get((op, since)) != its.get((op, since))
    ):
        raise MissingFact(
            f"ONNX Runtime lists other DirectML kernels than were read: {', '.join(wrong)}. A kernel that is not a row "
            "of the provider's table (made_by) must be added to kernels.json, for the earlier release that --like names"
        )


def directml_opset(versions: Mapping[str, Iterable[int]], max_opset: int) -> int:
    """Return the highest opset at which no important operator loses its DirectML kernel by a new version.

    Args:
        versions: operator -> versions that have a kernel.
    """
    for opset in range(max_opset, 7, -1):
        lost = set()
        for op, have in versions.items():
            domain, _, name = op.rpartition("::")
            if domain or not onnx.defs.has(name, max_inclusive_version=opset):
                continue
            since = onnx.defs.get_schema(name, opset).since_version
            if since not in have and any(version < since for version in have):
                lost.add(op)
        if lost <= SMALL_LOSSES:
            return opset
    return 7


def highest(answer: Mapping[str, Any], kind: str, tried: range) -> int:
    """Return the highest number whose model loaded.

    Raises:
        MissingFact: the highest number tried loads as well, or one below does not.
    """
    loaded = answer[kind]["loaded"]
    best = max(loaded, default=0)
    if best in (0, tried[-1]) or loaded != list(range(loaded[0], best + 1)):
        raise MissingFact(f"{kind} versions that load are {loaded} of {tried[0]} to {tried[-1]}: raise the range tried")
    return int(best)


def _spans(releases: Sequence[Release], has: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield ranges of releases with the same row (``1.21-1.29``; ``1.21-`` up to the newest), and the row.

    Args:
        has: the row of each release; ``None`` for no row.
    """
    start = 0
    for at in range(1, len(has) + 1):
        if at == len(has) or has[at] != has[start]:
            if has[start] is not None:
                last = releases[at - 1].number if at < len(has) else ""
                yield f"{releases[start].number}-{last}", has[start]
            start = at


def write_table(path: Path, releases: Sequence[Release], sets: Sequence[Sequence[str]] = ()) -> None:
    """Write JSON with one operator a line. A row applies to the range of releases before it.

    Args:
        releases: all releases, oldest first.
        sets: sets of element types that keep their numbers, so that a new release changes few lines.
    """
    types = list(map(list, sets))

    def labels(signature: Signature) -> dict[str, int]:
        numbers = {}
        for label, names in sorted(signature.items()):
            if sorted(names) not in types:
                types.append(sorted(names))
            numbers[label] = types.index(sorted(names))
        return numbers

    dml: dict[str, list[list[Any]]] = {}
    for op, since in sorted({key for release in releases for key in release.rows}):
        for span, (signature, facts) in _spans(releases, [release.rows.get((op, since)) for release in releases]):
            dml.setdefault(op, []).append([span, since, labels(signature), *([facts] if facts else [])])
    cpu: dict[str, list[list[Any]]] = {}
    for op, since, until in sorted({key for release in releases for key in release.cpu}):
        for span, signature in _spans(releases, [release.cpu.get((op, since, until)) for release in releases]):
            end = None if until == _LAST_VERSION else until
            cpu.setdefault(op, []).append([span, since, end, labels(signature)])

    def compact(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    def block(name: str, lines: Iterable[str], ends: str) -> str:
        inside = ",\n".join(lines)
        return f'"{name}": {ends[0]}\n{inside}\n{ends[1]}'

    def head(release: Release) -> str:
        return block(release.name, (f'"{key}": {json.dumps(value)}' for key, value in release.head.items()), "{}")

    parts = ['"format": 2', block("releases", map(head, releases), "{}"), block("types", map(compact, types), "[]")]
    for name, kernels in (("dml", dml), ("cpu", cpu)):
        parts.append(block(name, (f'"{op}":{compact(value)}' for op, value in kernels.items()), "{}"))
    part = path.with_suffix(".part")
    part.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    part.replace(path)


def read(
    package: Package, answer: Mapping[str, Any], kernels: str, known: Release, additions: Mapping[str, Any]
) -> Release:
    """Combine the parts of a release.

    Args:
        answer: the answer of ``ask_release.py`` for the wheel ``kernels``.
        additions: ``feature_level``, empty for the known one; ``query``, names of new support queries by operator.

    Raises:
        MissingFact: something is new that only a person can add.
    """
    rows = dml_rows(provider_table(package.library), known, additions["query"])
    ort_kernels = listed(answer["kernels"], "DmlExecutionProvider")
    if ort_kernels:
        agree(rows, ort_kernels)
    directml = file_version(package.directml)
    level = additions["feature_level"] or (
        known.head["feature_level"] if known.head["directml_version"] == directml else ""
    )
    if not level:
        raise MissingFact(f"DirectML {directml} is new: pass --feature-level (DirectML's version history has it)")
    versions: dict[str, list[int]] = {}
    for op, since in rows:
        versions.setdefault(op, []).append(since)
    max_opset = highest(answer, "opset", OPSETS)
    digest = hashlib.sha256(package.path.read_bytes()).hexdigest()
    checked = (
        f"the same as {kernels} lists"
        if ort_kernels
        else f"kernels outside of the table as in {known.name}, not checked"
    )
    head = {
        "title": f"{package.name} {package.version}",
        "package": package.name,
        "ort_version": package.release,
        "directml_version": directml,
        "feature_level": level,
        "max_opset": max_opset,
        "max_ir": highest(answer, "ir", IR_VERSIONS),
        "dml_opset": directml_opset(versions, min(max_opset, onnx.defs.onnx_opset_version())),
        "options": option_names(package.library),
        "sources": [
            f"package: {package.path.name}, sha256 {digest}",
            f"kernels: the provider's table in onnxruntime.dll of this package; {checked}",
            f"CPU kernels: listed by {kernels} (get_all_opkernel_def)",
            f"max_opset, max_ir: measured by loading one-node models in {kernels}",
            "directml_version: file version of DirectML.dll in this package",
            "options: names in onnxruntime.dll of this package",
            "feature_level: learn.microsoft.com, DirectML version history",
            "dml_opset: derived: highest opset at which only Dropout, ScatterElements, ScatterND, GridSample, "
            "ConstantOfShape and If lose their DirectML kernel",
        ],
    }
    return Release(head, rows, listed(answer["kernels"], "CPUExecutionProvider"))


def main(arguments: Sequence[str]) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(description="Add a release of ONNX Runtime with DirectML to the table of kernels.")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("release", metavar="RELEASE|FILE", help="1.30.0, or a wheel or npm package of it")
    parser.add_argument("--like", default="", metavar="NAME", help="for facts that no binary has; the newest")
    parser.add_argument(
        "--kernels", type=Path, metavar="WHEEL", help="onnxruntime of the same release, for npm's package"
    )
    parser.add_argument("--feature-level", default="", metavar="6.4", help="of a new DirectML")
    parser.add_argument("--query", action="append", default=[], metavar="OPERATOR=NAME", help="a new support query")
    parser.add_argument("--out", type=Path, default=TABLE, metavar="FILE", help="the table to write")
    parser.add_argument("--check", action="store_true", help="write nothing; print what the table has otherwise")
    parser.add_argument("--home", type=Path, default=cache / "dmlprep" / "windows", help="as for scripts/windows.py")
    asked = parser.parse_args(list(arguments))
    try:
        with tempfile.TemporaryDirectory(prefix="dmlprep-release-") as folder:
            return _run(asked, Path(folder))
    except (NotRun, DmlprepError, UnknownLayout) as error:
        print(f"read_release: NOT RUN ({error})", file=sys.stderr)
        return 3
    except MissingFact as error:
        print(f"read_release: {error}", file=sys.stderr)
        return 2


def _run(asked: argparse.Namespace, folder: Path) -> int:
    path = Path(asked.release)
    if not path.is_file():
        path = fetch_release(asked.release, folder, lambda what, *_: print(f"fetching {what}", flush=True), PYTHON)
    package = open_package(path)
    wheel = path if path.suffix == ".whl" else asked.kernels or cpu_wheel(package.release, folder)
    bed = Bed.below(asked.home.absolute())
    setup(bed)
    print(f"asking {wheel.name}", flush=True)
    answer = ask(bed, wheel)
    if answer["version"] != package.release:
        raise NotRun(f"{wheel.name} is ONNX Runtime {answer['version']}, the package is {package.release}")
    releases, sets = read_table(TABLE)
    number = ".".join(package.release.split(".")[:2])
    others = [release for release in releases if release.number != number]
    known = named(releases, asked.like) if asked.like else others[-1]
    query = dict(text.split("=", 1) for text in asked.query)
    kernels = "-".join(wheel.name.split("-")[:2]).replace("_", "-").replace("-1.", " 1.")
    release = read(package, answer, kernels, known, {"query": query, "feature_level": asked.feature_level})
    compared = named(releases, release.name) if asked.check else known
    differences = release.differences(compared)
    print(f"{release.head['title']} and {compared.name}: {len(differences)} differences")
    for line in differences:
        print(f"  {line}")
    if asked.check:
        return int(bool(differences))
    write_table(asked.out, sorted([*others, release], key=lambda one: one.order), sets)
    print(f"written: {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
