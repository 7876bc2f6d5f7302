"""How right and how fast placement is.

    python -m tests.benchmarks.placement                    # the rule against what the provider did (node suite)
    python -m tests.benchmarks.placement --speed            # seconds and memory by number of nodes
    python -m tests.benchmarks.placement --real MODEL...    # against a DirectML session on this machine
    python -m tests.benchmarks.placement --sessions --target ort-1.30   # the node suite, on sessions of that release

Prints every miss. The bar is 99.9 % of nodes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from dmlprep.core.errors import CheckNotRun
from dmlprep.directml.placement import place
from dmlprep.directml.targets import Target, find_target
from dmlprep.graph.model import Model
from dmlprep.runtime import SessionFailure, SessionOptions, dml_host, open_dml
from dmlprep.runtime.dml import release_for

MEASURED = Path(__file__).resolve().parents[2] / "fixtures" / "measured" / "node_suite_1.24.4.json"
_PROVIDERS = {"D": "DmlExecutionProvider", "C": "CPUExecutionProvider"}


@dataclass(frozen=True)
class Miss:
    """A node that stands elsewhere than predicted, or that the prediction does not have."""

    case: str
    node: str
    measured: str
    predicted: str
    reason: str


def node_suite() -> dict[str, onnx.ModelProto]:
    """ONNX's node test suite: name -> model."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case.model for case in collect_testcases(None) if case.model is not None}


def measured() -> dict[str, dict[str, str]]:
    """Case -> node path (``0/body/3``, or ``*`` for every node) -> provider."""
    found: dict[str, dict[str, str]] = {}
    for case, (_, text) in json.loads(MEASURED.read_text(encoding="utf-8"))["cases"].items():
        nodes = found[case] = {}
        letter = ""
        for word in text.split():
            if word[0] in _PROVIDERS:
                letter, word = word[0], word[1:]
            nodes[word] = _PROVIDERS[letter]
    return found


def number(graph: onnx.GraphProto, path: str = "") -> None:
    """Name every node by where it stands."""
    for index, node in enumerate(graph.node):
        node.name = f"{path}{index}"
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                number(attribute.g, f"{node.name}/{attribute.name}/")


def restamp(model: onnx.ModelProto, opset: int) -> None:
    """Give the model another opset, its nodes unchanged."""
    for imported in model.opset_import:
        if imported.domain in ("", "ai.onnx"):
            imported.version = opset


def compare_suite() -> tuple[int, list[Miss]]:
    """How many nodes were compared, and the misses."""
    target = find_target("ort-1.24")
    suite = node_suite()
    compared = 0
    misses: list[Miss] = []
    for case, nodes in measured().items():
        name, _, opset = case.partition("@")
        if name not in suite:
            continue  # another onnx has other cases
        model = onnx.ModelProto()
        model.CopyFrom(suite[name])
        if opset:
            restamp(model, int(opset))
        number(model.graph)
        predicted = {n.name: n for n in place(Model(ir.from_proto(model)), target).nodes}
        if "*" in nodes:
            nodes = dict.fromkeys(predicted, nodes["*"])
        for path, provider in nodes.items():
            compared += 1
            node = predicted.get(path)
            if node is None:
                misses.append(Miss(case, path, provider, "no such node", ""))
            elif node.provider != provider:
                misses.append(Miss(case, path, provider, node.provider, f"{node.code} {node.reason}"))
    return compared, misses


def compare_sessions(target: Target, cases: str = "") -> tuple[int, list[Miss]]:
    """As ``compare_suite``, but every case is loaded in a session of the target's release on this machine.

    Cases at an opset above 21 are asked for at 21 too, as in the measured file. Cases that do not load are left out.

    Args:
        cases: a regular expression; only the cases in whose names it is found.

    Raises:
        CheckNotRun: this release is not installed here.
    """
    release = release_for(target.ort_version)
    if release != target.ort_version:
        raise CheckNotRun(
            f"ONNX Runtime {target.ort_version} is not installed", fix="dmlprep runtime install --release"
        )
    options = SessionOptions(optimization="disabled", unfused=True, record_placement=True)
    compared, loaded = 0, 0
    misses: list[Miss] = []
    with tempfile.TemporaryDirectory() as folder, dml_host(release) as host:
        path = Path(folder) / "model.onnx"
        for case, model in _forms({k: v for k, v in node_suite().items() if re.search(cases, k)}):
            number(model.graph)
            predicted = {n.name: n for n in place(Model(ir.from_proto(model)), target).nodes}
            path.write_bytes(model.SerializeToString())
            try:
                with open_dml(path, options, host) as session:
                    nodes = {n.name: n.provider for n in session.placement()}
            except SessionFailure:
                continue
            loaded += 1
            for name, provider in nodes.items():
                if name in predicted:  # nodes of inlined functions have names of ONNX Runtime's
                    compared += 1
                    if predicted[name].provider != provider:
                        node = predicted[name]
                        misses.append(Miss(case, name, provider, node.provider, f"{node.code} {node.reason}"))
    print(f"{loaded} cases loaded")
    return compared, misses


def _forms(suite: dict[str, onnx.ModelProto]) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Every case as it is, and those above opset 21 at 21 as well."""
    for name, model in suite.items():
        yield name, model
        if any(o.domain in ("", "ai.onnx") and o.version > 21 for o in model.opset_import):
            older = onnx.ModelProto()
            older.CopyFrom(model)
            restamp(older, 21)
            yield f"{name}@21", older


def chain(nodes: int) -> onnx.ModelProto:
    """Blocks of MatMul, Add, Relu, Reshape and shape arithmetic, ``nodes`` nodes in all; one shared weight."""
    made = []
    last = "x"
    for i in range(nodes // 9):
        made += [
            helper.make_node("MatMul", [last, "w"], [f"m{i}"], name=f"matmul{i}"),
            helper.make_node("Add", [f"m{i}", last], [f"a{i}"], name=f"add{i}"),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"], name=f"relu{i}"),
            helper.make_node("Shape", [f"r{i}"], [f"s{i}"], name=f"shape{i}"),
            helper.make_node("Gather", [f"s{i}", "zero"], [f"g{i}"], name=f"gather{i}"),
            helper.make_node("Unsqueeze", [f"g{i}", "axis"], [f"u{i}"], name=f"unsqueeze{i}"),
            helper.make_node("Concat", [f"u{i}", "tail"], [f"c{i}"], name=f"concat{i}", axis=0),
            helper.make_node("Reshape", [f"r{i}", f"c{i}"], [f"v{i}"], name=f"reshape{i}"),
            helper.make_node("Sigmoid", [f"v{i}"], [f"y{i}"], name=f"sigmoid{i}"),
        ]
        last = f"y{i}"
    graph = helper.make_graph(
        made,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["rows", 8])],
        [
            numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"),
            numpy_helper.from_array(np.array(0), "zero"),
            numpy_helper.from_array(np.array([0]), "axis"),
            numpy_helper.from_array(np.array([8]), "tail"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _speed() -> Iterator[str]:
    import resource  # not on Windows

    from dmlprep.directml.placement.report import examine

    target = find_target("ort-1.24")
    with tempfile.TemporaryDirectory() as folder:
        for nodes in (900, 4500, 20_000, 100_000):
            path = Path(folder) / f"{nodes}.onnx"
            path.write_bytes(chain(nodes).SerializeToString())
            began = time.process_time()
            model = Model.open(path)
            opened = time.process_time()
            placed = place(model, target)
            done = time.process_time()
            examine(model, target)
            checked = time.process_time()
            yield (
                f"{len(placed.nodes):>7} nodes, CPU time: open {opened - began:6.2f} s, place {done - opened:6.2f} s, "
                f"check {checked - done:6.2f} s, {1e6 * (done - opened) / nodes:6.1f} us a node placed"
            )
    yield f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"


def _real(paths: list[Path]) -> Iterator[str]:
    from dmlprep.runtime.verify_placement import verify_placement

    target = find_target("ort-1.24")
    for path in paths:
        verdict = verify_placement(Model.open(path), target)
        yield f"{path.name}: {verdict.outcome}, {verdict.reason or verdict.tolerance}"
        yield from (f"  {f.node}: {f.message}" for f in verdict.findings[:20])


def main() -> int:
    """Run one of the benches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--real", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--sessions", action="store_true")
    parser.add_argument("--target", default="ort-1.24", metavar="NAME", help="of --sessions")
    parser.add_argument("--cases", default="", metavar="REGEX", help="only these cases of --sessions")
    options = parser.parse_args()
    if options.speed or options.real:
        for line in _real(options.real) if options.real else _speed():
            print(line, flush=True)
        return 0
    compared, misses = (
        compare_sessions(find_target(options.target), options.cases) if options.sessions else compare_suite()
    )
    for miss in misses:
        print(f"{miss.case} {miss.node}: measured {miss.measured}, predicted {miss.predicted} {miss.reason}")
    share = 1 - len(misses) / compared
    print(f"{compared - len(misses)} of {compared} nodes as the provider placed them ({100 * share:.3f} %)")
    return int(share < 0.999)


if __name__ == "__main__":
    sys.exit(main())
