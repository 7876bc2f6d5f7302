"""The report in a Chromium: ``python -m tests.benchmarks.report_page [--nodes N ...] [--runs N]``.

For each number of nodes, before and after, the size of the page and the time until it is loaded and drawn, each run in
a page of its own, the least and the median. The exit code is 1 where 5,000 nodes have more than 1.5 MB or take more
than 2 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from dmlprep.report.html import write_html
from tests.report.browser import browser, missing
from tests.report.test_browser import full_record

_BYTES, _SECONDS, _NODES = 1_500_000, 2.0, 5000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[40, _NODES, 10_000])
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    if reason := missing():
        print(f"not run: {reason}")
        return 3
    good = True
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder) / "profile") as one:
        for count in given.nodes:
            path = Path(folder) / f"{count}.html"
            write_html(full_record(count), path)
            times = [one.open(path) for _ in range(given.runs)]
            size = path.stat().st_size
            print(f"{count:6,} nodes: {size / 1e6:.2f} MB, {min(times):.2f} s (median {median(times):.2f} s)")
            if count == _NODES:
                good = size < _BYTES and median(times) < _SECONDS
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
