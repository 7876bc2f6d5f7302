"""Every place that removes, renames or replaces a file or folder, and why it cannot meet one of the user's.

A new place fails the test until its reason stands in the table; a reason without a place fails as well. A reason is one
of these: the place is inside a folder that this process made; the name has a part that this run made up; a digest, a
mark or a lock shows who wrote the file; or the user named the file, and ``--force`` allows to replace it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.rooms import FILES, PACKAGE, tree

_OWN_CACHE = "the folder of the runtime below dmlprep's cache, which no other program writes"
_OWN_PART = "a half-made piece with a fixed name in the folder of the runtime below dmlprep's cache"
_RUN = "inside the temporary folder of this run, which hold_new made under a random name"
_BY_EXCHANGE = "FileSet: it marks what it brings, and refuses folders that the caller does not list"

REASONS = {
    # files: the house's own way to remove and to rename. Their callers are in this table too.
    "core/files/clearing.py:remove_tree": "removes what its callers name",
    "core/files/clearing.py:_clear": (
        "removes what the callers of remove_tree name; steps by descriptors, and follows no link"
    ),
    "core/files/clearing.py:_gone_as_file": "as _clear; a link goes itself, and not what it leads to",
    "portable/replacing.py:replace": "replaces what its callers name",
    "portable/replacing.py:rename_new": (
        "replaces nothing: a hard link and, on Windows, a rename fail where a file is; the source is the "
        "caller's new file"
    ),
    "portable/replacing.py:remove": "removes what its callers name",
    "portable/replacing.py:remove_tree": "removes what its callers name",
    "portable/replacing.py:check_free": "renames a file to its own name, which changes nothing",
    "core/files/exchange.py:FileSet.exchange": "recover, below",
    "core/files/exchange.py:FileSet._forget": "the list in the hidden folder, which is this user's and no link",
    "core/files/exchange.py:FileSet._discard": (
        "the hidden folder: it holds what exchange moved there, and has no list any more"
    ),
    "core/files/exchange.py:FileSet._put_back": (
        "removes only what has the mark of a new file (size and time, or inode) that this exchange brought; "
        "moves old files to places where nothing is, or a marked file"
    ),
    "core/files/exchange.py:FileSet._move": (
        "old files go into the hidden folder that this exchange made; a new file goes where the old one was "
        "moved away, or, without force, where nothing is"
    ),
    "core/files/exchange.py:_recover": "recover, for a set that a killed run of this user noted",
    "portable/locks.py:Held.remove": "a folder that hold_new made under a random name",
    "portable/locks.py:_empty": "a folder of hold_new, or of clear_left, which this process holds",
    "portable/locks.py:hold_new": (
        "a folder that this call made under a random name; before that is known, only an empty one"
    ),
    "portable/locks.py:clear_left": (
        "folders of this user whose names begin as dmlprep's hidden and temporary folders do, and that no "
        "living run holds"
    ),
    "core/files/writing.py:write_private": "a file that this call made (O_EXCL)",
    "core/files/run_folder.py:_forget": _RUN,
    "core/files/run_folder.py:end_run": _RUN,
    "core/files/run_folder.py:sweep": "clear_left with the prefix of temporary folders of runs",
    "core/files/staging.py:staging_folder": (
        "the staging folder that hold_new made; folders on the way to it that were not there before, where "
        "they are empty"
    ),
    "core/files/staging.py:clear_staging": "clear_left with the prefix of staging folders",
    "core/files/staging.py:_clear": (
        "names that hold the eight random characters of the killed run; empty folders that were not there "
        "before that run"
    ),
    # what commands write
    "core/files/writing.py:Writer.__exit__": "the temporary file that open made (mode x) under a random name",
    "core/files/writing.py:Writer.commit": (
        f"the user named the file, and force allows to replace it; several files: {_BY_EXCHANGE}"
    ),
    "package/packing.py:_check_out": "recover: puts back only where nothing is",
    "pipeline/prepare.py:check_out": "recover puts back only where nothing is; clear_staging removes what no run holds",
    "pipeline/prepare.py:_appear": f"the names that prepare writes, which the user allows with --force; {_BY_EXCHANGE}",
    "pipeline/buckets/preparing.py:_check_out": "as prepare.check_out",
    "pipeline/buckets/preparing.py:prepare_buckets": "as prepare; of an earlier list only files that have its digests",
    "parity/bisection/repro.py:write_reproduction": (
        f"the names that bisect writes, which the user allows with --force; {_BY_EXCHANGE}"
    ),
    "parity/feeds/sources/__init__.py:feeds_from": (
        "plain files with the names of feeds, in the folder whose feeds the user allows to replace with --force"
    ),
    "genai/output.py:FolderOut.check": (
        "recover puts back only where nothing is; clear_staging removes what no run holds"
    ),
    "genai/output.py:FolderOut.exchange": (
        "plain files that the user allows to replace with --force; folders, and what is not made again, only "
        f"as an earlier run wrote them, by digest; {_BY_EXCHANGE}"
    ),
    "genai/preparing.py:_make": "FolderOut.exchange",
    "kit/keyfiles.py:write_run_key": "the run key beside the kit, which the user allows to replace with --force",
    "fleet/places.py:Place.settle": (
        "results in a folder that a job.json makes a job's, where changed results are made again "
        "(docs/fleet.md); without one, begin refuses files that are there, unless the user says --force"
    ),
    "fleet/places.py:remove_empty": "folders of a job, only where they are empty",
    "fleet/places.py:Place.restore": "the job.json that begin wrote, in the folder of a job; remove_empty",
    "fleet/pruning.py:_pruned": "plain files with the digest that job.json says; remove_empty",
    "fleet/run.py:_Run._settled": "a record with a name from a digest, in the fleet's own hidden folder",
    "fleet/run.py:_Run._abandon": "as _Run._settled",
    # workers and caches
    "runtime/tools/onnxsim.py:_run": _RUN,
    "runtime/tools/reading.py:Reading.ask": _RUN,
    "pipeline/verdict_cache.py:KeptVerdicts._read": "a file of dmlprep's cache of verdicts, under a name from a digest",
    "pipeline/verdict_cache.py:KeptVerdicts._sweep": "dmlprep's cache of verdicts, a folder of this user alone (0700)",
    "process/child.py:Child.__init__": _RUN,
    "process/child.py:_end": _RUN,
    "runtime/dml.py:_status_on_linux": f"kept shaders: {_OWN_CACHE}",
    "runtime/served.py:_discard": "a file of the exchange folder of a worker, which this run made",
    "runtime/linux/safe_fs.py:Beneath.clear": "below a folder of the runtime, by descriptors; no link leads out of it",
    "runtime/linux/host.py:LinuxHost._staged": "a copy of a model in the exchange folder, which this run made",
    "runtime/linux/install.py:install_into": _OWN_CACHE,
    "runtime/linux/install.py:broken_pieces": f"a file that was added to a piece of the runtime: {_OWN_CACHE}",
    "runtime/linux/install.py:compile_programs": _OWN_CACHE,
    "runtime/linux/install.py:make_prefix": _OWN_CACHE,
    "runtime/linux/install.py:remove": (
        f"the user asks for it, of a release by a name without a folder in it: {_OWN_CACHE}"
    ),
    "runtime/linux/inventory.py:forget": _OWN_CACHE,
    "runtime/linux/layout.py:write_json": _OWN_PART,
    "runtime/linux/shared_folders.py:fresh": _OWN_PART,
    "runtime/linux/libraries.py:unpack_libraries": f"{_OWN_CACHE}; the version is numbers and dots, by a pattern",
    "runtime/linux/mirror.py:Mirror.fetch": f"packages by names from the signed list, in the downloads: {_OWN_CACHE}",
    "runtime/linux/rootfs.py:unpack_all": _OWN_CACHE,
    "runtime/linux/shaders.py:of_device": _OWN_CACHE,
    "runtime/linux/shaders.py:forget": _OWN_CACHE,
    "runtime/linux/shaders.py:_trim": _OWN_CACHE,
    "runtime/linux/wheel.py:_check_digest": f"a package that was fetched into the downloads just now: {_OWN_CACHE}",
    "runtime/linux/wheel.py:_fetch": f"packages of an earlier time in the downloads: {_OWN_CACHE}",
    # what travels in a kit
    "portable/runner.py:_main": "clear_left, and the folder that hold_new made",
    "portable/runner.py:_work": "the worker's state in the folder that hold_new made",
    "portable/runner.py:_write": (
        "the result that the user named, which --force allows to replace; otherwise rename_new"
    ),
    "portable/work.py:Work.note": "the worker's state in the folder that hold_new made",
}

_ALWAYS = {
    "clear_left", "clear_staging", "exchange", "move", "recover", "remove_tree", "removedirs", "rename", "rename_new",
    "renames", "rmdir", "rmtree", "unlink",
}  # fmt: skip
"""Words that only removals have here; but for ``rename`` as the name of a function of the module itself."""


def _is_removal(call: ast.expr, arguments: list[ast.expr], keywords: int, files: set[str], own: set[str]) -> bool:
    """Whether a call, or a function that is handed on, removes, renames or replaces files."""
    if isinstance(call, ast.IfExp):
        return any(_is_removal(one, arguments, keywords, files, own) for one in (call.body, call.orelse))
    if isinstance(call, ast.Name):
        return call.id in files | (_ALWAYS - own)
    if not isinstance(call, ast.Attribute):
        return False
    module = call.value.id if isinstance(call.value, ast.Name) else ""
    if call.attr == "remove":  # a list has it too, with an argument
        return module == "os" or (not arguments and module != "edit" and ast.unparse(call) != "self.remove")
    if call.attr == "replace":  # a text has it with two arguments, a date and a struct with keywords
        return module == "os" or (len(arguments) == 1 and not keywords and not isinstance(arguments[0], ast.Starred))
    return call.attr in _ALWAYS


def _removals(module: ast.Module) -> Iterator[str]:
    """The functions and methods of a module that remove, rename or replace files."""
    nodes = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom | ast.FunctionDef)]
    files = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        if (node.module or "").startswith(("dmlprep.core.files", "dmlprep.portable.replacing", "replacing"))
        for alias in node.names
        if alias.name in {*_ALWAYS, "remove", "replace"}
    }
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)} - files

    def found(node: ast.AST, name: str, depth: int) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner, below = name, depth
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and depth < 2:
                in_function = not isinstance(node, ast.ClassDef | ast.Module)
                inner, below = (name, depth) if in_function else (f"{name}.{child.name}".lstrip("."), depth + 1)
            if isinstance(child, ast.Call) and _is_removal(child.func, child.args, len(child.keywords), files, own):
                yield inner
            yield from found(child, inner, below)

    yield from found(module, "", 0)


def test_every_removal_has_its_reason() -> None:
    found = {f"{path.relative_to(PACKAGE).as_posix()}:{name}" for path in FILES for name in _removals(tree(path))}
    assert sorted(found - set(REASONS)) == [], "new: write down why it cannot meet a file of the user's"
    assert sorted(set(REASONS) - found) == [], "gone: take it out of the table"
    assert [place for place, reason in REASONS.items() if not reason] == []


def test_removals_are_seen() -> None:
    source = """
import os, shutil
from pathlib import Path
from dmlprep.core.files import remove, replace as put
from dmlprep.portable.replacing import rename_new
class A:
    def b(self): os.unlink("x")
    def c(self):
        def inner(): shutil.rmtree("x")
        inner()
def d(): Path("x").replace("y")
def e(): remove("x")
def f(): put("x", "y")
def g(new): (rename_new if new else put)("x", "y")
def h(held): held.remove()
def i(): "text".replace("a", "b"); [1].remove(1)
"""
    assert list(_removals(ast.parse(source))) == ["A.b", "A.c", "d", "e", "f", "g", "h"]
