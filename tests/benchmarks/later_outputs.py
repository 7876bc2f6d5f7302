"""Operators that read a later output of another node: ``python -m tests.benchmarks.later_outputs [--release 1.24.4]``.

In a graph that DirectML fuses, a kernel that is a graph of its own may read the first output in place of the one it
names. Every case of ONNX's node suite (at opset 21 at most) and of ``fused_kernels`` runs as it is and with each fed
tensor as the second part of a Split, on DirectML; the second must give what the first gives. Names what does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, dml_host, dml_status, open_dml
from tests.benchmarks import fused_kernels
from tests.benchmarks.conformance import RESTAMP, bits, opset_of, restamped

Array = np.ndarray[Any, Any]

CLOSE = 1e-2
"""max|difference| / max|what the case gives|: the same arithmetic, or numbers of another tensor."""


def behind_splits(
    model: onnx.ModelProto, feeds: dict[str, Array], which: set[str]
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with the inputs ``which`` as the second part of a Split of its own, and what to feed it.

    The parts are as large as each other; the first one holds the same numbers in reverse order.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, splits, fed = made.graph, [], dict(feeds)
    for value in graph.input:
        if value.name not in which:
            continue
        name, array = value.name, feeds[value.name]
        axis = array.ndim - 1
        value.name = f"{name}_whole"
        value.type.tensor_type.shape.dim[axis].Clear()
        value.type.tensor_type.shape.dim[axis].dim_value = 2 * array.shape[axis]
        del fed[name]
        fed[value.name] = np.concatenate([np.flip(array), array], axis)
        sizes = numpy_helper.from_array(np.array([array.shape[axis]] * 2, np.int64), f"{name}_sizes")
        graph.initializer.append(sizes)
        splits.append(helper.make_node("Split", [value.name, sizes.name], [f"{name}_first", name], axis=axis))
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*splits, *nodes])
    return made, fed


def _can_be_part(value: onnx.ValueInfoProto, array: Array) -> bool:
    return bool(array.size) and 0 < array.ndim == len(value.type.tensor_type.shape.dim)


def suite() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    for case in collect_testcases(None):
        if case.model is None or not case.data_sets or len(case.model.graph.node) != 1:
            continue
        model = restamped(case.model, RESTAMP) if opset_of(case.model) > RESTAMP else case.model
        names = [v.name for v in model.graph.input]
        arrays = [bits(v) for v in case.data_sets[0][0]]
        if opset_of(model) >= 13 and all(isinstance(a, np.ndarray) and a.dtype.kind in "fiub" for a in arrays):
            yield case.name, model, dict(zip(names, arrays, strict=False))


def kernels() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    kinds = fused_kernels.KINDS | fused_kernels.ALSO
    for case in chain.from_iterable(islice(kinds[kind](), 0, 400, 7) for kind in kinds):
        yield case.name, fused_kernels.together([case]), {f"{k}_0": v for k, v in case.feeds.items()}


def ran(model: onnx.ModelProto, feeds: dict[str, Array], host: SessionHost, path: Path) -> dict[str, Array] | str:
    path.write_bytes(model.SerializeToString())
    try:
        with open_dml(path, SessionOptions(time_limit=60), host) as session:
            return {k: v for k, v in session.run(feeds).items() if v.dtype.kind in "fiub"}
    except SessionFailure as failure:
        return f"{failure.kind} fails: {' '.join(failure.message.split())[:120]}"


def off(found: dict[str, Array], wanted: dict[str, Array]) -> float:
    worst = 0.0
    for name, good in wanted.items():
        if found[name].shape != good.shape:
            return float("inf")
        with np.errstate(all="ignore"):
            apart = np.abs(np.nan_to_num(found[name].astype(np.float64)) - np.nan_to_num(good.astype(np.float64)))
            scale = float(np.abs(np.nan_to_num(good.astype(np.float64))).max(initial=1e-30))
            worst = max(worst, float(apart.max(initial=0.0)) / scale)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--release", default="", help="of onnxruntime-directml; empty for the newest installed")
    parser.add_argument("--only", default="", help="part of a case's name")
    arguments = parser.parse_args()
    status = dml_status(arguments.release)
    if not status.available:
        print(f"NOT RUN: {status.reason}", file=sys.stderr)
        return 3
    print(status.device)
    count = wrong = 0
    with tempfile.TemporaryDirectory() as folder, dml_host(arguments.release) as host:
        path = Path(folder) / "model.onnx"
        for name, model, feeds in chain(kernels(), suite()):
            able = {v.name for v in model.graph.input if v.name in feeds and _can_be_part(v, feeds[v.name])}
            if arguments.only not in name or not able:
                continue
            wanted = ran(model, feeds, host, path)
            if isinstance(wanted, str):
                continue
            count += 1
            found = ran(*behind_splits(model, feeds, able), host, path)
            if not isinstance(found, str) and off(found, wanted) <= CLOSE:
                continue
            wrong += 1
            for one in sorted(able):
                found = ran(*behind_splits(model, feeds, {one}), host, path)
                said = found if isinstance(found, str) else f"{off(found, wanted):.2g}"
                if isinstance(found, str) or off(found, wanted) > CLOSE:
                    print(f"{name}: {model.graph.node[0].op_type} {one}: {said}", flush=True)
    print(f"{count - wrong} of {count} cases give the same behind a Split")
    return 0


if __name__ == "__main__":
    sys.exit(main())
