"""Small faults are put into the code one by one: how many do the tests notice?

    python -m tests.benchmarks.coverage_by_room                     # first: which tests run a line
    python -m tests.benchmarks.mutations --seed 1 --lines 20 metrics graph passes

Each fault changes one expression of a random line that a test runs: a comparison, a condition, a number, a sign, a
result. The tests that run the line are tried, those of the line's own room first. Prints the faults that no test
noticed, and the share that was noticed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from tests.rooms import FILES, FLOOR, TOP, room, tree

_LIMIT = 300
"""Seconds for the tests of one fault; a fault that lets them run longer is noticed."""

_FIRST, _MOST = 40, 140
"""Test functions of a line that are tried first, and those that are tried at most."""

_SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One changed expression of a file; columns count bytes."""

    path: Path
    line: int
    start: int
    end: int
    text: str

    def apply(self, target: Path) -> None:
        """Write the file with the fault to ``target``."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        row = lines[self.line - 1]
        lines[self.line - 1] = row[: self.start] + self.text.encode() + row[self.end :]
        target.write_bytes(b"".join(lines))

    def __str__(self) -> str:
        row = self.path.read_bytes().splitlines()[self.line - 1]
        return f"{self.path.relative_to(TOP)}:{self.line}: {row[self.start : self.end].decode()} -> {self.text}"


def _changed(node: ast.AST) -> ast.expr | None:
    """The node with a fault, None where none is known."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        return ast.Compare(node.left, [_SWAPS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and not isinstance(node.left, ast.JoinedStr):
        return ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ast.Constant(node.value + 1)
    return None


def faults(path: Path) -> Iterator[Fault]:
    """All faults of a file: in code of functions, outside annotations and texts."""
    for function in ast.walk(tree(path)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for statement in function.body:
            for node in ast.walk(statement):
                wrong = _changed(node)
                if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
                    node, wrong = node.value, ast.Constant(None)
                if wrong is None or not isinstance(node, ast.expr) or node.lineno != node.end_lineno:
                    continue
                text = f"({ast.unparse(wrong)})"
                yield Fault(path, node.lineno, node.col_offset, node.end_col_offset or 0, text)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


class Contexts:
    """Which test functions run a line."""

    def __init__(self, data: Path) -> None:
        import coverage

        self._data = coverage.CoverageData(str(data))
        self._data.read()

    def of(self, path: Path, line: int) -> list[str]:
        """The test functions of a line as pytest names them, those of the file's own room first."""
        names = [one for one in self._data.contexts_by_lineno(str(path)).get(line, ()) if one.startswith("tests.")]
        own = f"tests.{room(path)}."
        result = []
        for name in sorted(names, key=lambda one: (not one.startswith(own), one)):
            parts = name.split(".")
            at = next((i for i, part in enumerate(parts) if part.startswith("test_")), 0)
            file = TOP.joinpath(*parts[: at + 1]).with_suffix(".py")
            if at and file.is_file() and len(parts) == at + 2 and parts[-1].startswith("test_"):
                result.append(f"{file.relative_to(TOP).as_posix()}::{parts[-1]}")
        return result


def _passes(copy: Path, tests: list[str]) -> bool:
    """Whether all these tests pass in the copy."""
    line = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of modules would be compiled in each process
    process = subprocess.Popen(
        line, cwd=copy, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(_LIMIT) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return False


def _noticed(fault: Fault, copy: Path, contexts: Contexts) -> bool:
    """Whether a test fails with the fault."""
    target = copy / fault.path.relative_to(TOP)
    fault.apply(target)
    _forget_bytecode(target)
    try:
        tests = contexts.of(fault.path, fault.line)
        return any(part and not _passes(copy, part) for part in (tests[:_FIRST], tests[_FIRST:_MOST]))
    finally:
        shutil.copyfile(fault.path, target)
        _forget_bytecode(target)


def _forget_bytecode(path: Path) -> None:
    """Remove the bytecode of a file, which could be taken for that of a change within the same second."""
    for one in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        one.unlink(missing_ok=True)


def main() -> int:
    """Try the faults of some rooms, and print what was not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.mutations", description=__doc__)
    parser.add_argument("rooms", nargs="+", choices=sorted(FLOOR), metavar="ROOM")
    parser.add_argument("--lines", type=int, default=20, help="faults of each room")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    contexts = Contexts(TOP / ".coverage")
    everything = noticed = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies: Queue[Path] = Queue()
        for number in range(2):
            copies.put(_copy(Path(folder) / str(number)))
        for name in asked.rooms:
            pick = random.Random(f"{asked.seed} {name}")
            ran = [one for path in FILES if room(path) == name for one in faults(path) if contexts.of(path, one.line)]
            some = pick.sample(ran, min(asked.lines, len(ran)))

            def try_one(fault: Fault) -> bool:
                copy = copies.get()
                try:
                    return _noticed(fault, copy, contexts)
                finally:
                    copies.put(copy)

            good = _tried(some, try_one)
            everything, noticed = everything + len(some), noticed + good
            print(f"{name}: {good} of {len(some)} noticed", flush=True)
    print(f"in all: {noticed} of {everything}, {100 * noticed / max(everything, 1):.1f} %")
    return 0


def _copy(folder: Path) -> Path:
    names = subprocess.run(["git", "-C", str(TOP), "ls-files", "-z"], capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (TOP / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(TOP / name, folder / name)
    return folder


def _tried(some: list[Fault], try_one: Callable[[Fault], bool]) -> int:
    good = 0
    with ThreadPoolExecutor(2) as pool:
        for fault, noticed in zip(some, pool.map(try_one, some), strict=True):
            good += noticed
            if not noticed:
                print(f"  not noticed: {fault}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
