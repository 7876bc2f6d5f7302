"""A model of 5,000 nodes with the modules of torch's exporter: ``python -m tests.benchmarks.modules [--runs N]``.

Prints the processor time of ``check`` with and without the metadata, whole processes in turn, with the median of the
ratios of pairs; then the size of the report, and the seconds until Chromium has drawn its graph. The exit code is 1
where the report has more than 1.5 MB or takes 1 s or more, and 3 where no Chromium is here.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import onnx

import dmlprep
from dmlprep.report.html import write_html
from tests.graph.model.sourced import write_transformer
from tests.report.browser import browser, missing

_BYTES, _SECONDS = 1_500_000, 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sourced, bare = write_transformer(folder / "sourced.onnx"), folder / "bare.onnx"
        model = onnx.load(sourced)
        for node in model.graph.node:
            del node.metadata_props[:]
        onnx.save(model, bare)
        print(f"{len(model.graph.node):,} nodes; {_megabytes(sourced)} with the metadata, {_megabytes(bare)} without")
        pairs = [(_check(sourced), _check(bare)) for _ in range(given.runs)]
        rich, plain = (median(times) for times in zip(*pairs, strict=True))
        ratio = median(one / other for one, other in pairs)
        print(f"check: {rich:.2f} s of processor time with it, {plain:.2f} s without, ratio {ratio:.2f}")
        if reason := missing():
            print(f"report not run: {reason}")
            return 3
        write_html(dmlprep.check(sourced), folder / "report.html")
        with browser(folder / "profile") as one:
            times = [one.open(folder / "report.html") for _ in range(given.runs)]
        page = folder / "report.html"
        print(f"report: {_megabytes(page)}, drawn in {median(times):.2f} s (least {min(times):.2f} s)")
        return int(page.stat().st_size > _BYTES or median(times) >= _SECONDS)


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


def _check(path: Path) -> float:
    """Run ``check`` in a process, and return the processor seconds of it and of all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "dmlprep", "check", path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "stages.3" in done.stdout or path.stem == "bare", done.stdout + done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
