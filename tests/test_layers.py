"""Rooms import only from floors below, and third-party tools only come in by their doors (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "dmlprep"

FLOORS: dict[str, int] = {
    "_deferred": 1,
    "_version": 1,
    "errors": 1,
    "arrays": 1,
    "bounds": 1,
    "files": 1,
    "processes": 1,
    "record": 1,
    "compiled": 2,
    "model": 2,
    "analysis": 2,
    "covering": 2,
    "targets": 2,
    "options": 5,
    "rewriting": 3,
    "quirks": 3,
    "fused": 3,
    "framing": 3,
    "metrics": 2,
    "engines": 4,
    "runtime": 3,
    "placement": 5,
    "memory": 5,
    "passes": 5,
    "precision": 5,
    "parity": 5,
    "speed": 5,
    "tuning": 6,
    "recipe": 6,
    "pipeline": 6,
    "kit": 6,
    "fleet": 6,
    "genai": 6,
    "package": 6,
    "project": 6,
    "report": 6,
    "api": 7,
    "cli": 8,
    "buildsys": 8,
    "__main__": 8,
    "__init__": 8,
}

COMPILED = (
    "checker",
    "compose",
    "hub",
    "inliner",
    "onnx_cpp2py_export",
    "parser",
    "printer",
    "shape_inference",
    "utils",
    "version_converter",
)
"""Modules of onnx that hand a model to its C++. ``onnx.defs`` has schemas, which are onnx's own data."""

COMPILED_METHODS = {
    "_infer_node_outputs",
    "get_context_dependent_function",
    "get_context_dependent_function_with_opset_version",
}
"""Methods of a schema that do."""

DOORS: dict[str, set[str]] = {
    "onnxruntime": {"runtime"},
    "click": {"cli"},
    "rich": {"cli", "report"},
    "jinja2": {"report"},
    "markdown_it": {"report"},
    "markupsafe": {"report"},
    "onnxsim": {"engines"},
    "onnxconverter_common": {"engines"},
    **{f"onnx.{part}": {"compiled"} for part in COMPILED},
    "PIL": {"engines"},
    "cryptography": {"package"},
    "dask": {"fleet"},
    "distributed": {"fleet"},
    "soundfile": {"engines"},
    "tokenizers": {"engines"},
    "onnxruntime_genai": {"engines"},
}

FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    """``passes`` for ``dmlprep/passes/pin/sizes.py``; the stem for files at the top."""
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything a file imports, also inside functions and for types alone."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called == "import_module" and node.args and isinstance(node.args[0], ast.Constant):
                yield node.lineno, str(node.args[0].value)


def test_every_room_has_a_floor() -> None:
    assert {room(p) for p in FILES} <= set(FLOORS)


def test_a_file_imports_from_its_own_room_and_the_floors_below() -> None:
    wrong = []
    # What stands for types alone counts too: a room that names a type from above knows of it.
    every = [(path, *found) for path in FILES for found in imports(path)]
    for path, line, imported in every:
        own, parts = room(path), imported.split(".")
        if parts[0] != "dmlprep" or len(parts) < 2 or parts[1] not in FLOORS:
            continue
        other = parts[1]
        # Rooms on one floor lean on each other in one direction only: see the test of cycles.
        if other != own and FLOORS[other] > FLOORS[own]:
            wrong.append(f"{path}:{line}: {own} (floor {FLOORS[own]}) imports {imported} (floor {FLOORS[other]})")
    assert wrong == []


def test_the_faces_reach_other_rooms_through_the_api() -> None:
    allowed = {"_version", "api", "bounds", "cli", "errors", "files", "options", "record", "report"}
    wrong = [
        f"{path}:{line}: {imported}"
        for path in FILES
        if (own := room(path)) in ("cli", "buildsys")
        for line, imported in imports(path)
        if imported.startswith("dmlprep.") and imported.split(".")[1] in FLOORS.keys() - {own, *allowed}
    ]
    assert wrong == []


def test_passes_and_precision_never_open_sessions() -> None:
    wrong = [
        f"{path}:{line}"
        for path in FILES
        if room(path) in ("passes", "precision")
        for line, imported in imports(path)
        if imported.startswith("dmlprep.runtime")
    ]
    assert wrong == []


def test_rooms_of_one_floor_do_not_import_each_other_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    for path in FILES:
        for _, imported in imports(path):
            parts = imported.split(".")
            if parts[0] == "dmlprep" and len(parts) > 1 and parts[1] in FLOORS:
                own, other = room(path), parts[1]
                if own != other and FLOORS[own] == FLOORS[other] and "__" not in own:
                    edges.setdefault(own, set()).add(other)
    assert circle(edges) == []


def test_modules_do_not_import_each_other_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    for path in FILES:
        # ``from room import module`` names a module of a room; ``from room import name`` the room's own file.
        others = {i if i in MODULES else i.rpartition(".")[0] for _, i in imports(path)}
        edges[module(path)] = (others & MODULES) - {module(path)}
    assert circle(edges) == []


def module(path: Path) -> str:
    """``dmlprep.passes.pin`` for ``dmlprep/passes/pin/__init__.py``."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = frozenset(map(module, FILES))


def circle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """The first circle in a graph, each name once; empty where there is none."""
    try:
        TopologicalSorter({name: sorted(others) for name, others in sorted(edges.items())}).prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def test_a_tool_comes_in_by_its_door() -> None:
    wrong = [
        f"{path}:{line}: {imported}"
        for tool, rooms in DOORS.items()
        for path in FILES
        if room(path) not in rooms
        for line, imported in imports(path)
        if tool == tool_of(imported)
    ]
    assert wrong == []


def tool_of(imported: str) -> str:
    """The narrowest of ``DOORS`` that a module belongs to; empty for none."""
    return max((tool for tool in DOORS if f"{imported}.".startswith(f"{tool}.")), key=len, default="")


def test_a_model_meets_onnx_s_compiled_code_behind_its_door_only() -> None:
    """``onnx.checker.check_model`` needs no import of its own; the file that the worker runs is not imported at all."""
    wrong = []
    for path in FILES:
        if room(path) == "compiled":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute):
                continue
            of_onnx = isinstance(node.value, ast.Name) and node.value.id == "onnx"
            if (of_onnx and node.attr in COMPILED) or node.attr in COMPILED_METHODS:
                wrong.append(f"{path}:{node.lineno}: {node.attr}")
    assert wrong == []


def test_no_file_is_called_after_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
    assert [str(path) for path in FILES if empty & set(path.with_suffix("").parts)] == []


def test_folders_of_tests_are_those_of_the_package() -> None:
    """``tests/passes/pin/`` holds the tests of ``dmlprep/passes/pin/``, or of a module ``dmlprep/passes/pin.py``."""
    tests = PACKAGE.parent / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    unknown = [
        folder.as_posix()
        for folder in sorted(folders)
        if not (PACKAGE / folder).is_dir() and not (PACKAGE / folder).with_suffix(".py").is_file()
    ]
    assert unknown == []


def test_no_environment_switches() -> None:
    """Behaviour comes from options. The environment is read for the user's folders, for colour and for proxies only."""
    allowed = {"cli", "runtime", "processes", "buildsys"}
    wrong = []
    for path in FILES:
        if room(path) in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                wrong.append(f"{path}:{node.lineno}")
    assert wrong == []


def test_durations_are_of_a_clock_that_does_not_jump() -> None:
    """The clock on the wall is set back and forth. It may say which day it is."""
    days = {
        "runtime/linux/rootfs.py",  # which release files of Debian are today's
        "record/origin.py",  # when a run began
        "pipeline/kept_verdicts.py",  # on which day a verdict was measured
    }
    wrong = []
    for path in FILES:
        if path.relative_to(PACKAGE).as_posix() in days:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "time.time_ns", "datetime.now"):
                wrong.append(f"{path}:{node.lineno}")
    assert wrong == []


def test_texts_leave_by_their_doors() -> None:
    """What is printed is made printable there, names of strangers included; elsewhere nothing prints."""
    doors = {
        "cli/streams.py",
        "cli/output.py",
        "cli/bars.py",
        "cli/console.py",
        "report/console.py",
        "runtime/offsite/main.py",  # at the other machine
        "runtime/offsite/sample.py",  # in somebody's app
        "runtime/catalog.py",  # a worker, which is read and not shown
        "buildsys/__main__.py",  # a path, which must be as it is
        "processes/leash.py",  # in the place of a worker, whose words are read and not shown
    }
    wrong = []
    for path in FILES:
        if path.relative_to(PACKAGE).as_posix() in doors:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            given = {ast.unparse(argument) for argument in (*node.args, *(word.value for word in node.keywords))}
            writes = re.fullmatch(r"(sys|click)\.(stdout\.|stderr\.)?(write|echo|secho)", called)
            leaves = called in ("sys.exit", "SystemExit") and isinstance((node.args or [None])[0], ast.JoinedStr)
            if called in ("print", "Console") or writes or leaves or given & {"sys.stdout", "sys.stderr"}:
                wrong.append(f"{path}:{node.lineno}: {called}")
    assert wrong == []


def test_each_format_is_escaped_in_one_place() -> None:
    """Who writes Markdown, HTML, XML or files of builds takes the escapes from ``record``, and has none of its own."""
    own = {
        "record/markdown.py",
        "record/markup.py",
        "record/build_files.py",
        "record/hints.py",  # words of a shell
        "record/documents.py",  # JSON and TOML
    }
    wrong = []
    for path in FILES:
        if path.relative_to(PACKAGE).as_posix() in own:
            continue
        names = {"html", "xml.sax.saxutils", "shlex", "markupsafe.escape"}
        wrong += [
            f"{path}:{line}: {imported}"
            for line, imported in imports(path)
            if imported in names or imported.rpartition(".")[0] in names
        ]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in ("&lt;", "&quot;", "&amp;", "\\|"):
                wrong.append(f"{path}:{node.lineno}: {node.value}")
    assert wrong == []


def test_documents_are_decoded_by_one_function() -> None:
    """``parse_json`` and ``parse_toml`` bound depth and numbers; every error of theirs is ``Unfit``."""
    doors = {
        "files/given.py",  # the two functions
        "genai/document.py",  # as onnxruntime-genai reads its config: duplicate keys, places of errors; bounded itself
        "genai/dml_config.py",  # edits a document that genai/document.py has read, and keeps numbers as text
        "model/pinned.py",  # a note in a model, of values that may be a million numbers
        "passes/frame.py",  # its own options, encoded in the same line
        "engines/reader_process.py",  # a worker: what the parent wrote
        "runtime/offsite/integrity.py",  # at the other machine, with nothing of dmlprep
        "runtime/offsite/loader.py",  # in somebody's app
        "runtime/offsite/main.py",  # at the other machine
        "runtime/offsite/work.py",  # at the other machine
        # Data of the package itself.
        "genai/schema.py",
        "quirks/catalog.py",
        "record/codes.py",
        "runtime/linux/pins.py",
        "targets/kernels.py",
        "targets/precision.py",
        "targets/target.py",
    }
    decoders = {
        *(f"json.{name}" for name in ("load", "loads", "JSONDecoder")),
        *(f"msgspec.{form}.{name}" for form in ("json", "toml", "yaml", "msgpack") for name in ("decode", "Decoder")),
        *(f"tomllib.{name}" for name in ("load", "loads")),
    }
    used, wrong = set(), []
    for path in FILES:
        inside = path.relative_to(PACKAGE).as_posix()
        named = [imported for _, imported in imports(path) if imported in decoders]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in decoders:
                named.append(f"{node.lineno}: {ast.unparse(node)}")
        if named and inside in doors:
            used.add(inside)
        elif named:
            wrong += [f"{inside}: {name}" for name in named]
    assert wrong == []
    assert used == doors
