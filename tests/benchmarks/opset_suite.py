"""ONNX's own node test cases, lowered: how many give the suite's expected outputs, are refused, or are wrong.

    python tests/benchmarks/opset_suite.py                       the table for opsets 21, 20, 17 and 13
    python tests/benchmarks/opset_suite.py --targets 17 --list   with each case that is not equal
    python tests/benchmarks/opset_suite.py --converter           onnx's own converter beside it

A case counts when its opset is above the target. Out of scope are cases of the preview and training domains, and those
with an input or output of an element type that the target opset does not have. Each case runs in a child process, in
ONNX Runtime, or in onnx's reference evaluator where ONNX Runtime has no kernel; a crash is a failure of that case.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

# Element type -> the first opset whose operators take it (schemas of onnx 1.23.2).
SINCE = {
    "BFLOAT16": 13,
    "FLOAT8E4M3FN": 19,
    "FLOAT8E4M3FNUZ": 19,
    "FLOAT8E5M2": 19,
    "FLOAT8E5M2FNUZ": 19,
    "INT4": 21,
    "UINT4": 21,
    "FLOAT4E2M1": 23,
    "FLOAT8E8M0": 24,
    "INT2": 25,
    "UINT2": 25,
    "FLOAT6E2M3": 28,
    "FLOAT6E3M2": 28,
}
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


@lru_cache(maxsize=1)
def cases() -> list[Any]:
    """Every case of onnx.backend.test.case.node, in a fixed order."""
    from onnx.backend.test.case import base
    from onnx.backend.test.case.node import collect_testcases
    from onnx.reference.ops import op_pool_common

    with (
        warnings.catch_warnings(),
        patch.object(op_pool_common, "pool", partial(_pool, op_pool_common.pool)),
        patch.object(base, "process_snippet", lambda op, name, export: ("", "")),  # texts of onnx's documentation
    ):
        warnings.simplefilter("ignore")
        return sorted(collect_testcases(None), key=lambda c: str(c.name))


def _pool(
    slow: Callable[..., Any],
    padded: Any,
    x_shape: Any,
    kernel: Any,
    strides: Any,
    out: Any,
    kind: str,
    *more: Any,
    p: int = 1,
    **options: Any,
) -> Any:
    """Compute the expected output of a pool without padding by numpy: onnx's loop over all windows takes seconds."""
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, range(2, padded.ndim))
    windows = windows[:, :, *(slice(None, None, step) for step in strides)]
    if any(map(np.any, (*more, *options.values()))) or windows.shape[: padded.ndim] != (*x_shape[:2], *out):
        return slow(padded, x_shape, kernel, strides, out, kind, *more, p=p, **options)
    axes = tuple(range(padded.ndim, windows.ndim))
    if kind == "LPPOOL":
        return (np.sum(np.abs(windows) ** p, axes) ** (1.0 / p)).astype(padded.dtype)
    return (np.average if kind == "AVG" else np.max)(windows, axes).astype(padded.dtype)


def opset_of(model: onnx.ModelProto) -> int:
    """The model's opset of ai.onnx, 0 without one."""
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)


def element_types(proto: onnx.TypeProto) -> set[str]:
    """Names of the element types in a type."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return {onnx.TensorProto.DataType.Name(proto.tensor_type.elem_type)}
    return element_types(getattr(proto, kind).elem_type) if kind in ("sequence_type", "optional_type") else set()


def in_scope(model: onnx.ModelProto, target: int) -> bool:
    """Whether a case above the target can be said at the target's opset at all."""
    if any("preview" in o.domain or "training" in o.domain for o in model.opset_import):
        return False
    if opset_of(model) <= target:
        return False
    types = set().union(*(element_types(v.type) for v in (*model.graph.input, *model.graph.output)))
    return all(SINCE.get(t, 1) <= target for t in types)


def plain(value: Any) -> Any:
    """A value of the suite as numpy has it."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return onnx.numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return onnx.numpy_helper.to_optional(value)
    if value is None or isinstance(value, list):
        return value
    return np.asarray(value)


def _same(got: Any, expected: Any, rtol: float, atol: float) -> str:
    """What differs, empty where nothing does."""
    if expected is None or isinstance(expected, list) or isinstance(got, list):
        if got is None or expected is None:
            return "" if got is expected else "None on one side"
        if len(got) != len(expected):
            return f"{len(got)} elements for {len(expected)}"
        return next(filter(None, (_same(g, e, rtol, atol) for g, e in zip(got, expected, strict=True))), "")
    got, expected = np.asarray(got), np.asarray(expected)
    if expected.dtype.kind in "OUS":
        return "" if got.astype(str).tolist() == expected.astype(str).tolist() else "strings differ"
    if got.shape != expected.shape:
        return f"shape {got.shape} for {expected.shape}"
    if got.dtype != expected.dtype:
        return f"type {got.dtype} for {expected.dtype}"
    if expected.dtype.kind not in "fcbiu":  # ml_dtypes: compared as the numbers they stand for
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    if np.allclose(got, expected, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        worst = float(np.nanmax(np.abs(got.astype(np.float64) - expected.astype(np.float64))))
        largest = float(np.nanmax(np.abs(expected.astype(np.float64))))
    nans_agree = expected.dtype.kind != "f" or np.array_equal(np.isnan(got), np.isnan(expected))
    if not nans_agree:
        return "values differ: NaN on one side"
    if expected.dtype.kind == "f" and worst <= 1e-6 * largest:
        return f"rounding: by up to {worst:.3g}, where the largest value is {largest:.3g}"
    return f"values differ by up to {worst:.3g}"


def run_ort(model: onnx.ModelProto, feeds: dict[str, Any], level: str = "BASIC") -> list[Any]:
    """Run in ONNX Runtime on the CPU; ``level`` is the optimisation: DISABLE_ALL, BASIC, EXTENDED or ALL."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    named = level if level.startswith("DISABLE") else f"ENABLE_{level}"
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{named}")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, feeds)
    return found


def run_reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """Run in onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    found: list[Any] = ReferenceEvaluator(model).run(None, feeds)
    return found


def compare(model: onnx.ModelProto, case: Any, reference_only: bool) -> tuple[str, str]:
    """Run the lowered model.

    Returns:
        ``equal``, ``rounding`` (within 1e-6 of the largest value, but not within the case's own bounds), ``random`` (a
        random operator: shape and type are right), ``as before`` (the reference evaluator misses the suite's outputs on
        the case as it stands, in the same way), ``differs``, ``invalid`` or ``not run``; and the detail.
    """
    details = ""
    random = any(n.op_type in RANDOM for n in case.model.graph.node)
    for feeds, expected in case.data_sets:
        names = [i.name for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer}]
        values = {n: plain(v) for n, v in zip(names, feeds, strict=False)}
        wanted = [plain(v) for v in expected]
        runners = [run_reference] if reference_only else [run_ort, run_reference]
        for runner in runners:
            try:
                got = runner(model, values)
            except Exception as error:
                text = " ".join(str(error).split())[:300]
                details += f" [{runner.__name__.removeprefix('run_')}: {text}]"
                if runner is run_ort and "INVALID_GRAPH" in text:
                    return "invalid", details
                continue
            wrong = next(
                filter(None, (_same(g, e, case.rtol, case.atol) for g, e in zip(got, wanted, strict=False))), ""
            )
            if not wrong:
                details += f" [{runner.__name__.removeprefix('run_')}: equal]"
                break
            if random and wrong.startswith("values"):
                return "random", "shape and type are right"
            details += f" [{runner.__name__.removeprefix('run_')}: {wrong}]"
        else:
            if "rounding" in details and "values differ" not in details:
                return "rounding", details
            if _as_before(model, case):
                return "as before", details
            return ("differs" if "differ" in details or "shape" in details else "not run"), details
    return "equal", details


def _as_before(lowered: onnx.ModelProto, case: Any) -> bool:
    """Whether the reference evaluator gives the case as it stands the same answers, other than the suite's."""
    for feeds, _ in case.data_sets:
        values = {i.name: plain(v) for i, v in zip(case.model.graph.input, feeds, strict=False)}
        try:
            got, before = run_reference(lowered, values), run_reference(case.model, values)
        except Exception:
            return False
        if any(_same(g, w, case.rtol, case.atol) for g, w in zip(got, before, strict=True)):
            return False
    return True


def lower(model: onnx.ModelProto, target: int, contrib: bool) -> onnx.ModelProto:
    """dmlprep's lowering."""
    import onnx_ir as ir

    from dmlprep.directml.targets import find_target
    from dmlprep.graph.model import Model
    from dmlprep.passes.base import Context
    from dmlprep.passes.opset import OpsetOptions, OpsetPass

    opened = Model(ir.from_proto(model))
    OpsetPass(OpsetOptions(version=target, prefer_contrib=contrib)).run(opened, Context(find_target()))
    lowered: onnx.ModelProto = ir.to_proto(opened.ir)
    return lowered


def convert(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """onnx's converter."""
    import onnx.version_converter

    converted: onnx.ModelProto = onnx.version_converter.convert_version(model, target)
    converted.ir_version = min(converted.ir_version, 10)
    return converted


def judge(case: Any, target: int, engine: str) -> tuple[str, str]:
    """One case: ``equal``, ``refused``, ``differs``, ``invalid``, ``not run`` or ``error``, with the detail."""
    from dmlprep.core.errors import ModelRefused

    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    try:
        if engine == "onnx":
            lowered = convert(model, target)
        else:
            lowered = lower(model, target, engine == "contrib")
    except ModelRefused as refused:
        return "refused", refused.what
    except Exception as error:
        return (
            "refused" if engine == "onnx" else "error"
        ), f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if opset_of(lowered) != target:
        return "stale", f"stands at {opset_of(lowered)}"
    try:
        onnx.checker.check_model(lowered, full_check=True)
    except Exception as error:
        return "invalid", " ".join(str(error).split())[:300]
    kinds = set().union(*(element_types(v.type) for v in (*model.graph.input, *model.graph.output)))
    return compare(lowered, case, reference_only=bool(kinds & set(SINCE)))


def child(judged: Callable[[Any], tuple[str, str]], names: list[str]) -> None:
    """Judge the named cases, one line of JSON for each."""
    warnings.simplefilter("ignore")
    by_name = {c.name: c for c in cases()}
    for name in names:
        print(json.dumps({"begin": name}), flush=True)
        outcome, detail = judged(by_name[name])
        print(json.dumps({"name": name, "outcome": outcome, "detail": detail}), flush=True)


def run(target: int, engine: str, names: list[str]) -> dict[str, tuple[str, str]]:
    """Judge cases in child processes; a case that ends its process is ``crashed``."""
    return in_children([sys.executable, __file__, "--child", engine, "--targets", str(target)], names)


def in_children(command: list[str], names: list[str]) -> dict[str, tuple[str, str]]:
    """Have ``command`` judge the cases named on its input; where one ends the process, a new one takes the rest."""
    results: dict[str, tuple[str, str]] = {}
    left = list(names)
    while left:
        done = subprocess.run(command, input="\n".join(left), capture_output=True, text=True, check=False)
        begun = ""
        for line in done.stdout.splitlines():
            row = json.loads(line) if line.startswith("{") else {}
            if "begin" in row:
                begun = row["begin"]
            elif "name" in row:
                results[row["name"]] = (row["outcome"], row["detail"])
        if begun and begun not in results:
            results[begun] = ("crashed", f"the process ended with {done.returncode}")
        if not begun:
            raise RuntimeError(done.stderr[-2000:])
        left = [n for n in left if n not in results]
    return results


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", type=int, nargs="+", default=[21, 20, 17, 13])
    parser.add_argument("--converter", action="store_true")
    parser.add_argument("--contrib", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--child", default="")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    if options.child:
        target, engine = options.targets[0], options.child
        child(lambda case: judge(case, target, engine), [n for n in sys.stdin.read().split("\n") if n])
        return
    every = cases()
    engines = ["contrib" if options.contrib else "dmlprep", *(["onnx"] if options.converter else [])]
    saved = {}
    print("| to opset | engine | above | in scope | equal | share | of these in ONNX Runtime | refused | rest |")
    print("|---|---|---|---|---|---|---|---|---|")
    for target in options.targets:
        above = [c for c in every if opset_of(c.model) > target]
        names = [c.name for c in above if in_scope(c.model, target) and options.only in c.name]
        for engine in engines:
            results = run(target, engine, names)
            saved[f"{engine} {target}"] = results
            counts = Counter(outcome for outcome, _ in results.values())
            rest = ", ".join(f"{k} {v}" for k, v in counts.most_common() if k not in ("equal", "refused")) or "0"
            in_ort = sum(o == "equal" and "[ort: equal]" in d for o, d in results.values())
            share = counts["equal"] / max(1, len(names))
            print(
                f"| {target} | {engine} | {len(above)} | {len(names)} | {counts['equal']} | {share:.1%} "
                f"| {in_ort} | {counts['refused']} | {rest} |",
                flush=True,
            )
            if options.list:
                for name, (outcome, detail) in sorted(results.items(), key=lambda r: (r[1][0], r[0])):
                    if outcome != "equal" or "differ" in detail or options.only:
                        print(f"    {outcome:8} {name}: {detail}")
    if options.save:
        options.save.write_text(json.dumps(saved, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
