"""ONNX's own node test cases in FP16: how many are clean, are refused, or are wrong.

    python tests/benchmarks/fp16_suite.py                  inputs and outputs kept, and in FP16
    python tests/benchmarks/fp16_suite.py --list           with each case that is not clean
    python tests/benchmarks/fp16_suite.py --policy fast    as little FP32 as there can be

A case counts when it has a floating input, output or constant above 16 bits. It goes through the fp16 step, as a
transaction, and through a file; above ONNX Runtime 1.24's opset or IR version through the opset step first. Then it
must pass onnx's checker with ``full_check`` and strict inference, load and run in ONNX Runtime at its default
optimisation, give the suite's outputs within ``fp16-cpu`` (there, and in the FP16 emulation), and stay as it is
when the step runs again. What ONNX Runtime has no kernel for at FP32 either is run by onnx's reference evaluator. Each
case runs in a child process; a crash is a failure of that case.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.opset_suite import (
    RANDOM,
    cases,
    child,
    element_types,
    in_children,
    opset_of,
    plain,
    run_ort,
    run_reference,
)

_WIDE = {"FLOAT", "DOUBLE", "BFLOAT16"}
_BOUND, _COSINE = 0.02, 0.999
"""dmlprep.parity.TOLERANCES["fp16-cpu"]."""
_LOWERED_TO = 21
"""The newest opset at which most operators have a DirectML kernel."""
CLEAN = ("clean", "lower level", "random")
EXPLAINED = ("islands", "input rounding", "range", "evaluator")


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.name.startswith("value_float"):
                yield TensorProto(data_type=TensorProto.FLOAT)
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


def in_scope(model: onnx.ModelProto) -> bool:
    """Whether a case has floating inputs, outputs or constants that FP16 could replace."""
    kinds = set().union(*(element_types(v.type) for v in (*model.graph.input, *model.graph.output)))
    return bool((kinds | {TensorProto.DataType.Name(t.data_type) for t in _tensors(model.graph)}) & _WIDE)


@dataclass
class Prepared:
    """A case on its way: the model that the step was given, the result, and the FP16 emulation of the result."""

    before: onnx.ModelProto
    after: onnx.ModelProto
    reference: onnx.ModelProto
    half: int


def prepare(case: Any, options: dict[str, Any], folder: Path, runner: Any = None) -> Prepared:
    """The opset step where it is needed, then the fp16 step, by way of files.

    Raises:
        ModelRefused: a step refuses.
        AssertionError: a second run changes something.
    """
    import onnx_ir as ir

    from dmlprep.core.errors import ModelRefused
    from dmlprep.directml.targets import find_target
    from dmlprep.graph.model import Model
    from dmlprep.passes import Context, make_pass
    from dmlprep.passes.precision import emulate
    from dmlprep.pipeline.transaction import Transactions

    options = {"allow": ["little-gain"], **options}  # most cases are one node, some of an operator that stays in FP32
    target, model = find_target(), case.model
    source, result = folder / "source.onnx", folder / "result.onnx"
    onnx.save(model, source)
    opened = Model.open(source)
    if opset_of(model) > target.max_opset or model.ir_version > target.max_ir:
        with contextlib.suppress(ModelRefused):  # then it is converted as it stands
            Transactions(opened).run("opset", make_pass("opset", {"version": _LOWERED_TO}), Context(target))
    before = ir.to_proto(opened.ir)
    Transactions(opened).run("fp16", make_pass("fp16", options), Context(target, runner=runner))
    opened.save(result, force=True)
    again = Model.open(result)
    if runner is None:
        second = Transactions(again).run("fp16", make_pass("fp16", options), Context(target))
        assert second.outcome == "unchanged", "the second run changes something"
    shadow = ir.to_proto(emulate(again).ir)
    half = sum(v.dtype == ir.DataType.FLOAT16 for node in again.ir.graph for v in node.outputs)
    return Prepared(before, onnx.load(result), shadow, half)


def _fault(model: onnx.ModelProto) -> str:
    try:
        onnx.checker.check_model(model, full_check=True)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:
        return " ".join(str(error).split())[:300]
    return ""


def _fed(model: onnx.ModelProto, values: dict[str, Any]) -> dict[str, Any]:
    """Feeds in the types that a model's inputs have."""
    given = {}
    for value in model.graph.input:
        if value.name not in values:
            continue
        fed = values[value.name]
        kinds = element_types(value.type)
        if isinstance(fed, np.ndarray) and kinds in ({"FLOAT16"}, {"FLOAT"}, {"DOUBLE"}):
            with np.errstate(over="ignore"):
                fed = fed.astype({"FLOAT16": np.float16, "FLOAT": np.float32, "DOUBLE": np.float64}[kinds.pop()])
        given[value.name] = fed
    return given


def _wide(array: Any) -> Any:
    return array.astype(np.float64)


def off(got: Any, expected: Any, random: bool = False) -> str:
    """What is out of bounds, empty where nothing is."""
    if expected is None or isinstance(expected, list) or isinstance(got, list):
        if got is None or expected is None:
            return "" if got is expected else "None on one side"
        if len(got) != len(expected):
            return f"{len(got)} elements for {len(expected)}"
        return next(filter(None, (off(g, e, random) for g, e in zip(got, expected, strict=True))), "")
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        return f"shape {got.shape} for {expected.shape}"
    if random:
        return ""
    if expected.dtype.kind in "OUS":
        return "" if got.astype(str).tolist() == expected.astype(str).tolist() else "strings differ"
    if expected.dtype.kind in "iub" and expected.dtype.name.startswith(("int", "uint", "bool")):
        return "" if np.array_equal(got, expected) else "integers differ"
    got, expected = _wide(got), _wide(expected)
    if not np.array_equal(np.isnan(got), np.isnan(expected)):
        return "NaN on one side"
    infinite = np.isinf(got) | np.isinf(expected)
    if not np.array_equal(got[infinite], expected[infinite]):
        return "infinite on one side"
    usual = np.isfinite(expected)
    a, b = got[usual], expected[usual]
    worst, top = np.abs(a - b).max(initial=0.0), np.abs(b).max(initial=0.0)
    if worst > _BOUND * top:
        return f"{worst:.3g} off, where the largest value is {top:.3g}"
    a, b = a / (top or 1.0), b / (top or 1.0)
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return "" if not norms or float((a * b).sum() / norms) >= _COSINE else "cosine"


def _all_off(got: list[Any], wanted: list[Any], random: bool) -> str:
    if len(got) != len(wanted):
        return f"{len(got)} outputs for {len(wanted)}"
    return next(filter(None, (off(g, w, random) for g, w in zip(got, wanted, strict=True))), "")


def _types(before: onnx.ModelProto, after: onnx.ModelProto, keep_io: bool) -> str:
    weights = {t.name for t in (*before.graph.initializer, *after.graph.initializer)}
    for kind in ("input", "output"):
        olds = [v for v in getattr(before.graph, kind) if kind == "output" or v.name not in weights]
        news = [v for v in getattr(after.graph, kind) if kind == "output" or v.name not in weights]
        if [v.name for v in olds] != [v.name for v in news]:
            return f"the {kind}s are others"
        for old, new in zip(olds, news, strict=True):
            was, now = element_types(old.type), element_types(new.type)
            if was != now and (keep_io or not (was <= _WIDE and now == {"FLOAT16"})):
                return f"{kind} {old.name!r}: {was} became {now}"
            if not keep_io and old.type.HasField("tensor_type") and now & _WIDE:
                return f"{kind} {old.name!r} stayed {was}"
    return ""


def judge(case: Any, keep_io: bool, policy: str) -> tuple[str, str]:
    """One case.

    Returns:
        ``clean``, ``lower level`` (clean, but loads below the default optimisation only), ``islands`` (clean with the
        search for what must stay in FP32; without it, the numbers of the case are beyond FP16), ``random`` (shape and
        type are right), ``refused``, ``input rounding`` (right for the inputs as FP16 has them), ``range``
        (inputs or outputs that were asked for in FP16 are beyond 65504), ``evaluator`` (right there, wrong in ONNX
        Runtime), or what is wrong: ``error``, ``invalid``, ``types``, ``not stable``, ``not run``, ``differs``,
        ``reference``; and the detail.
    """
    from dmlprep.core.errors import DmlprepError, ModelRefused
    from dmlprep.pipeline.runner import CpuRunner

    options: dict[str, Any] = {"keep_io": keep_io, "policy": policy}
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome = _verdict(case, prepare(case, options, Path(folder)), keep_io)
            if outcome[0] not in ("differs", "reference") or not keep_io:
                return outcome
            names = [i.name for i in case.model.graph.input]
            feeds = [dict(zip(names, map(plain, f), strict=False)) for f, _ in case.data_sets]
            more = {**options, "islands": "auto"}
            searched = _verdict(
                case, prepare(case, more, Path(folder), CpuRunner(lambda _, count: feeds[:count])), keep_io
            )
            return ("islands", outcome[1]) if searched[0] in CLEAN else outcome
    except ModelRefused as refused:
        return "refused", f"{refused.code} {refused.what}"
    except AssertionError as error:
        return "not stable", str(error)
    except DmlprepError as error:
        return "error", f"{type(error).__name__}: {error.what}"
    except Exception as error:
        return "error", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _verdict(case: Any, done: Prepared, keep_io: bool) -> tuple[str, str]:
    if (fault := _fault(done.after)) and not _fault(done.before):
        return "invalid", fault
    if fault := _types(done.before, done.after, keep_io):
        return "types", fault
    stays = "" if done.half else "stays FP32"
    random = any(n.op_type in RANDOM for n in done.before.graph.node)
    outcome = "random" if random else "clean"
    weights = {t.name for t in done.before.graph.initializer}
    names = [i.name for i in done.before.graph.input if i.name not in weights]
    for feeds, expected in case.data_sets:
        values = {n: plain(v) for n, v in zip(names, feeds, strict=False)}
        trial = Trial(done, values, [plain(v) for v in expected], random)
        found, detail = trial.run()
        if found != "clean":
            return found, f"{detail} {stays}"
        stays = f"{detail} {stays}" if detail not in stays else stays
    return outcome, stays.strip()


@dataclass
class Trial:
    """One set of inputs and outputs of a case."""

    done: Prepared
    values: dict[str, Any]
    expected: list[Any]
    random: bool

    def run(self) -> tuple[str, str]:
        """The outcome and the detail, as ``judge`` has them."""
        with np.errstate(all="ignore"):
            for name, run in (("ONNX Runtime", lambda m, v: run_ort(m, v, "ALL")), ("evaluator", run_reference)):
                try:
                    own = run(self.done.before, self.values)
                except Exception:  # no kernel
                    continue
                return self._in(name, run, own)
        return "clean", "nothing runs the FP32 model"

    def _in(self, name: str, run: Callable[..., list[Any]], own: list[Any]) -> tuple[str, str]:
        done, outcome = self.done, "clean"
        try:
            got = run(done.after, _fed(done.after, self.values))
        except Exception as error:
            fault = f"{name}: {' '.join(str(error).split())[:300]}"
            try:
                got = run_ort(done.after, _fed(done.after, self.values), "DISABLE_ALL")
            except Exception:
                return "not run", fault
            outcome = "lower level"
        if wrong := self._off(got, own):
            return self._explained(run, got, ("differs", f"{name}: {wrong}"))
        try:
            real = run(done.reference, _fed(done.reference, self.values))
        except Exception as error:
            return "reference", f"does not run: {' '.join(str(error).split())[:300]}"
        if wrong := self._off(real, own):
            return self._explained(run, real, ("reference", wrong))
        return outcome, "" if name == "ONNX Runtime" else name

    def _off(self, got: list[Any], own: list[Any]) -> str:
        """Out of the suite's outputs, and of what the FP32 model itself gives."""
        wrong = _all_off(got, self.expected, self.random)
        return wrong if wrong and _all_off(got, own, self.random) else ""

    def _explained(self, run: Callable[..., list[Any]], got: list[Any], outcome: tuple[str, str]) -> tuple[str, str]:
        """Why FP16 cannot be in bounds here, where it is not the model's fault."""
        done, values = self.done, self.values
        if outcome[0] == "differs" and run is not run_reference:
            with contextlib.suppress(Exception):
                if not _all_off(run_reference(done.after, _fed(done.after, values)), self.expected, False):
                    return "evaluator", outcome[1]
        halves = {
            v.name for v in (*done.after.graph.input, *done.after.graph.output) if element_types(v.type) == {"FLOAT16"}
        }
        outputs = dict(zip((o.name for o in done.after.graph.output), self.expected, strict=False))
        asked = [v for k, v in {**values, **outputs}.items() if k in halves and isinstance(v, np.ndarray)]
        if any((np.isfinite(v) & (np.abs(v) > 65504)).any() for v in asked):
            return "range", outcome[1]
        if not halves & values.keys():
            return outcome
        with contextlib.suppress(Exception):
            wanted = run(done.before, _fed(done.before, _fed(done.after, values)))
            if not _all_off(got, wanted, self.random):
                return "input rounding", outcome[1]
        return outcome


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", default="balanced", choices=("fast", "balanced", "safe"))
    parser.add_argument("--io", nargs="+", default=["keep", "half"], choices=("keep", "half"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--child", default="")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    if options.child:
        keep_io = options.child == "keep"
        child(lambda case: judge(case, keep_io, options.policy), [n for n in sys.stdin.read().split("\n") if n])
        return
    every = cases()
    names = [c.name for c in every if in_scope(c.model) and options.only in c.name]
    saved = {}
    print(f"{len(every)} cases, {len(names)} with floats above 16 bits; policy {options.policy}")
    print("| inputs and outputs | cases | clean | of these all FP32 | refused | beyond FP16, named | wrong |")
    print("|---|---|---|---|---|---|---|")
    for io in options.io:
        command = [sys.executable, __file__, "--child", io, "--policy", options.policy]
        results = saved[io] = in_children(command, names)
        counts = Counter(outcome for outcome, _ in results.values())
        clean = sum(counts[o] for o in CLEAN)
        stays = sum(o in CLEAN and "stays FP32" in d for o, d in results.values())
        named = ", ".join(f"{k} {counts[k]}" for k in EXPLAINED if counts[k]) or "0"
        wrong = ", ".join(f"{k} {v}" for k, v in counts.items() if k not in (*CLEAN, *EXPLAINED, "refused")) or "0"
        print(f"| {io} | {len(results)} | {clean} | {stays} | {counts['refused']} | {named} | {wrong} |", flush=True)
        for name, (outcome, detail) in sorted(results.items(), key=lambda r: (r[1][0], r[0])):
            if outcome not in CLEAN or options.list:
                print(f"    {outcome:8} {name}: {detail}")
    if options.save:
        options.save.write_text(json.dumps(saved, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
