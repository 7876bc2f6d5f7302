"""Which quirk shows on which release: ``python -m tests.benchmarks.quirks_by_release 1.24.4 --out FILE``.

Runs the models of tests/passes/fix_quirks on DirectML, before and after ``fix-quirks`` for that release, and writes
``{release: {case: [before, after]}}``: ``right``, ``wrong numbers``, ``create fails``, ``run fails``, ``crash``, or
``none`` where the release does not load the opset. scripts/make_conformance_data.py reads it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context
from dmlprep.passes.fix_quirks import FixQuirksOptions, FixQuirksPass
from dmlprep.passes.fusions import write_out
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, cpu_host, dml_host, dml_status, open_dml
from dmlprep.runtime.session import open_on
from tests.passes.fix_quirks.cases import CASES, Case

CLOSE = 1e-4
"""DirectML's FP32 against the CPU's, of values around 1."""

OUTCOMES = {"load": "create fails", "run": "run fails"}


def run(case: Case, model: onnx.ModelProto, host: SessionHost, folder: Path) -> str:
    """What a session does with the model, against the CPU provider and the model as it was.

    The CPU provider may fuse or not: quantized operators round otherwise when they are fused. Where its fusion is wrong
    too, it does not fuse.
    """
    path, plain = folder / "case.onnx", folder / "plain.onnx"
    path.write_bytes(model.SerializeToString())
    plain.write_bytes(ir.to_proto(write_out(Model(ir.from_proto(case.model))).model.ir).SerializeToString())
    options = SessionOptions(
        optimization="all" if case.optimized else "disabled", unfused=case.unfused, time_limit=120, threads=1
    )
    expected = []
    with cpu_host() as cpu:
        for level in ("all", "disabled") if case.cpu_level == "ENABLE_ALL" else ("disabled",):
            with open_on(cpu, cpu_host, plain, SessionOptions(threads=1, optimization=level)) as session:
                expected.append(session.run(case.feeds))
    try:
        with open_dml(path, options, host) as session:
            session.run(case.feeds)  # its memory is zeros; that of the second run is not
            found = session.run(case.feeds)
    except SessionFailure as error:
        if any(text in error.message for text in ("Load model from", "Could not find", "Failed to find kernel")):
            return "none"
        if "is empty" in error.message:
            return "wrong numbers"
        return OUTCOMES.get(error.kind, "crash")
    return "right" if any(close(found, wanted) for wanted in expected) else "wrong numbers"


def close(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> bool:
    return all(
        found[name].shape == array.shape
        and np.allclose(found[name].astype(np.float64), array.astype(np.float64), rtol=CLOSE, atol=CLOSE)
        for name, array in wanted.items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("releases", nargs="+", help="of onnxruntime-directml, all installed")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    table: dict[str, dict[str, list[str]]] = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    for release in arguments.releases:
        status = dml_status(release)
        if not status.available:
            print(f"NOT RUN: {status.reason}", file=sys.stderr)
            return 3
        rows = table.setdefault(release, {})
        target = find_target("ort-" + ".".join(release.split(".")[:2]))
        with tempfile.TemporaryDirectory() as folder, dml_host(release) as host:
            for case in CASES:
                if case.name in rows:
                    continue
                model = Model(ir.from_proto(case.model))
                FixQuirksPass(FixQuirksOptions()).run(model, Context(target))
                after = ir.to_proto(model.ir)
                rows[case.name] = [run(case, m, host, Path(folder)) for m in (case.model, after)]
        arguments.out.write_text(json.dumps(table, sort_keys=True, indent=1))
        print(release, sum(before != "right" for before, _ in rows.values()), "of", len(rows), "show", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
