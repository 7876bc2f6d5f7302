"""Which lines and branches the tests run, by room, and which tests run a line.

    python -m tests.benchmarks.coverage_by_room [TESTS ...]      # default: the whole suite, without slow tests

Needs ``pip install coverage``. Code that runs in worker processes without site-packages is not counted: the worker of
onnx, parts of the sessions' workers, and kits. Leaves ``.coverage`` for ``tests.benchmarks.mutations``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.rooms import FILES, FLOOR, TOP, room

_SETTINGS = """[run]
branch = true
parallel = true
patch = subprocess
source = dmlprep
dynamic_context = test_function
data_file = {data}
disable_warnings = module-not-measured,no-data-collected
"""


def measure(data: Path, tests: list[str]) -> None:
    """Run the tests under coverage, and combine what all processes wrote to ``data``."""
    with tempfile.TemporaryDirectory() as name:
        settings = Path(name) / "settings.ini"
        settings.write_text(_SETTINGS.format(data=data))
        coverage = [sys.executable, "-m", "coverage"]
        line = ["run", f"--rcfile={settings}", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *tests]
        subprocess.run([*coverage, *line], cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP)}, check=False)
        subprocess.run([*coverage, "combine", "-q", f"--rcfile={settings}"], cwd=TOP, check=True)


def shares(data: Path) -> dict[str, tuple[int, int]]:
    """Lines and branches that ran, and all of them, by room."""
    import coverage

    found = coverage.Coverage(data_file=data, branch=True)
    found.load()
    with tempfile.TemporaryDirectory() as name:
        found.json_report(morfs=[str(path) for path in FILES], outfile=str(Path(name) / "report.json"))
        files = json.loads((Path(name) / "report.json").read_text())["files"]
    ran, there = Counter[str](), Counter[str]()
    for file, one in files.items():
        part, sums = room(TOP / file), one["summary"]
        ran[part] += sums["covered_lines"] + sums["covered_branches"]
        there[part] += sums["num_statements"] + sums["num_branches"]
    return {part: (ran[part], there[part]) for part in FLOOR}


def main() -> int:
    """Measure, and print the table."""
    data = TOP / ".coverage"
    measure(data, sys.argv[1:])
    for part, (ran, there) in shares(data).items():
        print(f"{part:<10}{100 * ran / there:6.1f} %  {ran} of {there} lines and branches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
