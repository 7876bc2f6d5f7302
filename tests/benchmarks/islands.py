"""One overflow planted in a model, and how the island search finds it.

Usage: python tests/benchmarks/islands.py [bert|convnext|FILE.onnx ...] [--plant NAME ...] [--policy fast|balanced|safe]
           [--tolerance 0.01] [--size NAME=N ...] [--depth 0.5]

``bert`` (12 layers, hidden size 768) and ``convnext`` (18 blocks) are built in code with seeded weights. Plants, put at
the place that is ``--depth`` of the way through the model:

square      an activation times 1e3 is squared, its root taken, and divided by 1e3
scores      one operand of the MatMul before a Softmax times a large number, undone behind it
softmax     4e4 is added twice to what a Softmax reads
residual    the sum that a normalisation reads is scaled (the normalisation undoes it)
variance    the same, but only its squares leave the range
weights     the weights of a MatMul, Gemm or Conv are scaled, undone behind it
cancel      30000 is added and taken away: in range everywhere, and wrong all the same

Each row: plain FP16's error, trials, nodes kept, nodes that compute in FP32 beyond the policy's, error, seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

sys.path.insert(0, str(Path(__file__).resolve().parent))

import shapes

from dmlprep.model import Model
from dmlprep.passes import Context, make_pass
from dmlprep.pipeline.runner import CpuRunner
from dmlprep.target import find_target


def _constant(graph: ir.Graph, name: str, number: float) -> ir.Value:
    tensor = ir.Tensor(np.asarray(number, np.float32), name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape([]), const_value=tensor)
    graph.register_initializer(value)
    return value


def _then(value: ir.Value, name: str, op_type: str, number: float | None = None) -> ir.Value:
    """Put an operator behind a value, between it and all that reads it."""
    graph, producer = value.graph, value.producer()
    assert graph is not None
    assert producer is not None
    out = ir.Value(name=f"{name}_out", type=value.type)
    uses = list(value.uses())
    inputs = [value] if number is None else [value, _constant(graph, f"{name}_number", number)]
    graph.insert_after(producer, ir.Node("", op_type, inputs, outputs=[out], name=name))
    for use in uses:
        use.node.replace_input_with(use.idx, out)
    return out


def _before(node: ir.Node, index: int, name: str, op_type: str, number: float) -> None:
    graph, value = node.graph, node.inputs[index]
    assert isinstance(graph, ir.Graph)
    assert value is not None
    out = ir.Value(name=f"{name}_out", type=value.type)
    graph.insert_before(
        node, ir.Node("", op_type, [value, _constant(graph, f"{name}_number", number)], outputs=[out], name=name)
    )
    node.replace_input_with(index, out)


def _pick(found: list[ir.Node], depth: float, what: str) -> ir.Node:
    if not found:
        raise LookupError(f"the model has no {what}")
    return found[min(len(found) - 1, int(depth * len(found)))]


def _is_weight(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and value.const_value.size > 4096


def _layers(model: Model) -> list[ir.Node]:
    return [n for n in model.ir.graph if n.op_type in ("MatMul", "Gemm", "Conv") and _is_weight(n.inputs[1])]


def _towards_softmax(model: Model) -> list[ir.Node]:
    found = []
    for node in model.ir.graph:
        if node.op_type == "Softmax":
            value = node.inputs[0]
            while value is not None and (maker := value.producer()) is not None and maker.op_type != "MatMul":
                value = maker.inputs[0]
            if value is not None and (maker := value.producer()) is not None:
                found.append(maker)
    return found


def _square(model: Model, depth: float) -> None:
    value = _pick(_layers(model), depth, "layer with weights").outputs[0]
    for name, op_type, number in (
        ("grow", "Mul", 1e3),
        ("plant_square", "Pow", 2.0),
        ("root", "Sqrt", None),
        ("undo", "Mul", 1e-3),
    ):
        value = _then(value, name, op_type, number)


def _scores(model: Model, depth: float) -> None:
    node = _pick(_towards_softmax(model), depth, "MatMul before a Softmax")
    _before(node, 0, "grow", "Mul", 3e4)
    _then(node.outputs[0], "undo", "Mul", 1 / 3e4)


def _softmax(model: Model, depth: float) -> None:
    node = _pick([n for n in model.ir.graph if n.op_type == "Softmax"], depth, "Softmax")
    _before(node, 0, "half_shift", "Add", 4e4)
    _before(node, 0, "shift", "Add", 4e4)


def _norms(model: Model) -> list[ir.Value]:
    return [
        n.inputs[0]
        for n in model.ir.graph
        if n.op_type in ("ReduceMean", "LayerNormalization")
        and n.inputs[0] is not None
        and (n.op_type != "ReduceMean" or any(r.op_type == "Sub" for r in n.outputs[0].consumers()))
    ]


def _residual(model: Model, depth: float, factor: float = 3e4) -> None:
    values = _norms(model)
    if not values:
        raise LookupError("the model has no normalisation")
    value = values[min(len(values) - 1, int(depth * len(values)))]
    keeps = [n for n in value.consumers() if n.op_type not in ("ReduceMean", "Sub", "LayerNormalization")]
    grown = _then(value, "grow", "Mul", factor)
    for node in keeps:
        for index, one in enumerate(node.inputs):
            if one is grown:
                node.replace_input_with(index, value)


def _variance(model: Model, depth: float) -> None:
    _residual(model, depth, 500.0)


def _weights(model: Model, depth: float) -> None:
    node = _pick(_layers(model), depth, "layer with weights")
    weight = node.inputs[1]
    assert weight is not None
    assert weight.const_value is not None
    array = weight.const_value.numpy()
    factor = float(np.float32(3e4 / np.abs(array).max()))
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    tensor = ir.Tensor((array * factor).astype(np.float32), name="grown_weights")
    value = ir.Value(
        name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
    )
    graph.register_initializer(value)
    node.replace_input_with(1, value)
    _then(node.outputs[0], "undo", "Mul", 1 / factor)


def _cancel(model: Model, depth: float) -> None:
    value = _pick(_layers(model), depth, "layer with weights").outputs[0]
    _then(_then(value, "up", "Add", 3e4), "down", "Sub", 3e4)


PLANTS: dict[str, Callable[[Model, float], None]] = {
    "square": _square,
    "scores": _scores,
    "softmax": _softmax,
    "residual": _residual,
    "variance": _variance,
    "weights": _weights,
    "cancel": _cancel,
}


def _open(source: str) -> Model:
    if source == "bert":
        return shapes.bert()
    if source == "convnext":
        return shapes.convnext()
    return Model.open(source)


def _saved(model: Model, folder: Path) -> Model:
    """Weights in a file, as a user's are."""
    path = folder / "planted.onnx"
    model.save(path, force=True)
    return Model.open(path)


def measure(source: str, plant: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    model = _open(source)
    PLANTS[plant](model, args.depth)
    model = _saved(model, folder)
    sizes = {name: int(number) for name, _, number in (s.partition("=") for s in args.size)}
    target = find_target()
    plain = Context(target)
    make_pass("fp16", {"policy": args.policy}).run(model.copy(), plain)
    context = Context(target, progress=_say if args.verbose else lambda share, text: None)
    started = time.monotonic()
    with CpuRunner(sizes=sizes) as runner:
        context.runner = runner
        make_pass(
            "fp16", {"policy": args.policy, "islands": "auto", "tolerance": args.tolerance, "feeds": args.feeds}
        ).run(model, context)
    seconds = time.monotonic() - started
    before, after = plain.facts.get("kept_fp32", {}), context.facts.get("kept_fp32", {})
    return {
        "first": context.facts["trials"][0]["error"],
        "trials": len(context.facts["trials"]),
        "kept": len(context.facts["islands"]),
        "fp32": len(set(after) - set(before)),
        "error": context.facts["reference_error"],
        "seconds": seconds,
        "slowest": max(t["seconds"] for t in context.facts["trials"]),
        "names": list(context.facts["islands"]),
    }


def _say(share: float, text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {share:4.0%} {text}", file=sys.stderr)


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["bert", "convnext"])
    parser.add_argument("--plant", nargs="*", default=list(PLANTS), choices=list(PLANTS))
    parser.add_argument("--policy", default="balanced")
    parser.add_argument("--tolerance", type=float, default=0.01)
    parser.add_argument("--size", nargs="*", default=[])
    parser.add_argument("--feeds", type=int, default=2)
    parser.add_argument("--depth", type=float, default=0.5)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    print(
        f"{'model':<14}{'plant':<10}{'plain':>9}{'trials':>8}{'kept':>6}{'fp32':>6}{'error':>10}{'seconds':>9}"
        f"{'slowest':>9}  names"
    )
    for source in args.models:
        for plant in args.plant:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    row = measure(source, plant, args, Path(folder))
                except LookupError as error:
                    print(f"{Path(source).stem:<14}{plant:<10} not planted: {error}")
                    continue
                except Exception as error:  # a table goes on
                    print(f"{Path(source).stem:<14}{plant:<10} {type(error).__name__}: {str(error).splitlines()[0]}")
                    continue
            names = ", ".join(row["names"][:6]) + (" ..." if len(row["names"]) > 6 else "")
            print(
                f"{Path(source).stem:<14}{plant:<10}{row['first']:>9.2g}{row['trials']:>8}{row['kept']:>6}"
                f"{row['fp32']:>6}{row['error']:>10.2g}{row['seconds']:>9.1f}{row['slowest']:>9.1f}  {names}",
                flush=True,
            )


if __name__ == "__main__":
    main()
