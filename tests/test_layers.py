"""Rooms import only from floors below, and third-party tools only come in by their doors (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.rooms import (
    FILES,
    FLOOR,
    FLOORS,
    MOST_ARROWS,
    MOST_ROOMS,
    PACKAGE,
    PAGE,
    arrows,
    imports,
    page,
    room,
    syntax,
)

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

DOORS: dict[str, tuple[str, ...]] = {
    "onnxruntime": ("runtime", "portable"),
    "click": ("cli",),
    "rich": ("cli", "report"),
    "jinja2": ("report",),
    "markdown_it": ("report",),
    "markupsafe": ("report",),
    "onnxsim": ("runtime/tools",),
    "onnxconverter_common": ("runtime/tools",),
    **{f"onnx.{part}": ("process/onnx_worker",) for part in COMPILED},
    "PIL": ("runtime/tools",),
    "cryptography": ("package",),
    "dask": ("fleet",),
    "distributed": ("fleet",),
    "soundfile": ("runtime/tools",),
    "tokenizers": ("runtime/tools",),
    "onnxruntime_genai": ("runtime/tools",),
    "windowsml": ("portable", "runtime"),
}
"""Folders that may import a tool."""


def test_the_rooms_are_those_of_the_floors() -> None:
    assert {room(path) for path in FILES if path.parent != PACKAGE} == set(FLOOR)
    assert {path.stem for path in FILES if path.parent == PACKAGE} == {"__init__", "__main__"}
    assert len(FLOOR) <= MOST_ROOMS


def test_a_room_imports_from_the_floors_below_it() -> None:
    wrong = {pair: where for pair, where in arrows().items() if FLOOR.get(pair[1], len(FLOORS)) >= FLOOR[pair[0]]}
    assert wrong == {}


def test_there_are_few_arrows_between_rooms() -> None:
    assert len(arrows()) <= MOST_ARROWS


def test_the_picture_of_the_rooms_is_that_of_the_code() -> None:
    """``python -m tests.rooms`` draws it again."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_what_travels_imports_itself_alone() -> None:
    """``portable`` is copied to other machines as it is."""
    own = {imported for path in FILES if room(path) == "portable" for _, imported in imports(path)}
    assert {name for name in own if name.startswith("dmlprep.") and not name.startswith("dmlprep.portable.")} == set()


def test_the_command_line_reaches_other_rooms_through_the_api() -> None:
    """It may use what has nothing to do with models, and the declared options of ``prepare``."""
    allowed = ("api", "cli", "core", "pipeline.options", "portable", "record", "report")
    wrong = [
        f"{path}:{line}: {imported}"
        for path in FILES
        if room(path) == "cli"
        for line, imported in imports(path)
        if imported.startswith("dmlprep.") and not f"{imported}.".startswith(tuple(f"dmlprep.{n}." for n in allowed))
    ]
    assert wrong == []


def test_passes_never_open_sessions() -> None:
    wrong = [
        f"{path}:{line}"
        for path in FILES
        if room(path) == "passes"
        for line, imported in imports(path)
        if imported.startswith("dmlprep.runtime") and not imported.startswith("dmlprep.runtime.tools")
    ]
    assert wrong == []


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
        for tool, folders in DOORS.items()
        for path in FILES
        if not path.relative_to(PACKAGE).as_posix().startswith(tuple(f"{folder}/" for folder in folders))
        for line, imported in imports(path)
        if tool == tool_of(imported)
    ]
    assert wrong == []


@cache
def tool_of(imported: str) -> str:
    """The narrowest of ``DOORS`` that a module belongs to; empty for none."""
    return max((tool for tool in DOORS if f"{imported}.".startswith(f"{tool}.")), key=len, default="")


def test_a_model_meets_onnx_s_compiled_code_behind_its_door_only() -> None:
    """``onnx.checker.check_model`` needs no import of its own; the file that the worker runs is not imported at all."""
    wrong = []
    for path in FILES:
        if "onnx_worker" in path.parts:
            continue
        for node in syntax(path):
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
    allowed = {"cli", "portable", "process", "runtime"}
    wrong = []
    for path in FILES:
        if room(path) in allowed:
            continue
        for node in syntax(path):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                wrong.append(f"{path}:{node.lineno}")
    assert wrong == []


def test_durations_are_of_a_clock_that_does_not_jump() -> None:
    """The clock on the wall is set back and forth. It may say which day it is."""
    days = {
        "runtime/linux/rootfs.py",  # which release files of Debian are today's
        "record/origin.py",  # when a run began
        "pipeline/verdict_cache.py",  # on which day a verdict was measured
        "parity/bench/device.py",  # on which day a device was measured
    }
    wrong = []
    for path in FILES:
        if path.relative_to(PACKAGE).as_posix() in days:
            continue
        for node in syntax(path):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "time.time_ns", "datetime.now"):
                wrong.append(f"{path}:{node.lineno}")
    assert wrong == []


def test_texts_leave_by_their_doors() -> None:
    """What is printed is made printable there, names of strangers included; elsewhere nothing prints."""
    doors = {
        "cli/streams.py",
        "cli/output.py",
        "cli/start.py",  # the help and the version, which have no name of a stranger
        "cli/bars.py",
        "cli/console.py",
        "report/console.py",
        "portable/runner.py",  # at the other machine
        "portable/sample.py",  # in somebody's app
        "runtime/catalog.py",  # a worker, which is read and not shown
        "cli/buildsys/__main__.py",  # a path, which must be as it is
        "process/die_with_parent.py",  # in the place of a worker, whose words are read and not shown
    }
    wrong = []
    for path in FILES:
        if path.relative_to(PACKAGE).as_posix() in doors:
            continue
        for node in syntax(path):
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
        "core/text/markdown.py",
        "core/text/markup.py",
        "core/text/build_files.py",
        "core/text/shell.py",  # words of a shell
        "core/text/documents.py",  # JSON and TOML
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
        for node in syntax(path):
            if isinstance(node, ast.Constant) and node.value in ("&lt;", "&quot;", "&amp;", "\\|"):
                wrong.append(f"{path}:{node.lineno}: {node.value}")
    assert wrong == []


def test_documents_are_decoded_by_one_function() -> None:
    """``parse_json`` and ``parse_toml`` bound depth and numbers; every error of theirs is ``Unfit``."""
    doors = {
        "core/files/bounded_read.py",  # the two functions
        "genai/document.py",  # as onnxruntime-genai reads its config: duplicate keys, places of errors; bounded itself
        "genai/dml_config.py",  # edits a document that genai/document.py has read, and keeps numbers as text
        "graph/model/pinned.py",  # a note in a model, of values that may be a million numbers
        "passes/frame.py",  # its own options, encoded in the same line
        "runtime/tools/reader_process.py",  # a worker: what the parent wrote
        "portable/integrity.py",  # at the other machine, with nothing of dmlprep
        "portable/app_files.py",  # in somebody's app
        "portable/runner.py",  # at the other machine
        "portable/work.py",  # at the other machine
        # Data of the package itself.
        "genai/schema.py",
        "directml/quirks/catalog.py",
        "record/findings.py",
        "runtime/linux/pins.py",
        "directml/targets/kernels.py",
        "directml/targets/precision.py",
        "directml/targets/target.py",
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
        for node in syntax(path):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in decoders:
                named.append(f"{node.lineno}: {ast.unparse(node)}")
        if named and inside in doors:
            used.add(inside)
        elif named:
            wrong += [f"{inside}: {name}" for name in named]
    assert wrong == []
    assert used == doors


def test_no_test_looks_into_private_names() -> None:
    """What is worth a test has a public name, or shows in what others do."""
    own = {"_replace", "_repr_html_", "_exit", "_attn_implementation"}  # public, for all their names
    attribute = r"(?<!\bself)(?<!\bcls)\._[A-Za-z]"
    imported = r"^\s*from (?:dmlprep|tests)\S* import (?:\([^)]*|.*)\b_[A-Za-z]"
    suspect = re.compile(f"{attribute}|{imported}", re.MULTILINE)
    wrong = []
    for path in sorted((PACKAGE.parent / "tests").rglob("*.py")):
        # To parse all tests takes seconds.
        for node in syntax(path) if suspect.search(path.read_text(encoding="utf-8")) else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("dmlprep", "tests")):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute) and re.match("_[A-Za-z]", node.attr):
                names = [] if ast.unparse(node.value).startswith(("self", "cls")) else [node.attr]
            else:
                continue
            private = {name for name in names if re.match("_[A-Za-z]", name)} - own
            wrong += [f"{path.relative_to(PACKAGE.parent).as_posix()}:{node.lineno}: {name}" for name in private]
    assert wrong == []
