"""Case files: a pass, its options, a graph before, and the graph after or the refusal. See fixtures/cases/README.md.

``python -m tests.cases FILE...`` writes the part after ``--- before`` anew from what the pass does now: read it before
you commit it.
"""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from dmlprep.core.errors import DmlprepError
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.graph.model.pinned import pinned_array, pinned_values
from dmlprep.parity.feeds.framed import inside, outside
from dmlprep.passes import Context, make_pass
from dmlprep.passes.framing import frame_of
from dmlprep.passes.fusions import write_out
from dmlprep.pipeline.transaction import Transactions

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "cases"

_KEYS = {"pass", "options", "again", "findings", "run", "denotations", "denotations_after", "directml"}
_ENDS = ("after", "same", "refused")


@dataclass(frozen=True)
class Case:
    """One case file."""

    path: Path
    head: dict[str, Any]
    before: str
    end: str
    expected: str

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"


def read_case(path: Path) -> Case:
    """Read a case file.

    Raises:
        ValueError: it is not of the format.
    """
    parts = path.read_text(encoding="utf-8").split("\n--- ")
    head = tomllib.loads(parts[0])
    sections = [part.partition("\n")[::2] for part in parts[1:]]
    names = [name.strip() for name, _ in sections]
    unknown = set(head) - _KEYS
    if unknown or "pass" not in head or names[:1] != ["before"] or len(names) != 2 or names[1] not in _ENDS:
        raise ValueError(f"{path}: not a case file ({sorted(unknown) or names})")
    if path.parent.name != head["pass"].replace("-", "_"):
        raise ValueError(f"{path}: stands in the folder of another pass")
    return Case(path, head, sections[0][1], names[1], sections[1][1].strip())


def case_files() -> list[Path]:
    """All case files, in order."""
    return sorted(FOLDER.glob("*/*.case"))


def _proto(text: str, denotations: dict[str, str]) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(text)
    for key, denotation in denotations.items():
        name, _, axis = key.rpartition(":")
        value = next(v for v in [*proto.graph.input, *proto.graph.output] if v.name == name)
        value.type.tensor_type.shape.dim[int(axis)].denotation = denotation
    return proto


def _text(proto: onnx.ModelProto) -> str:
    """The model as text, values in the order of their names; denotations follow, which ONNX text does not hold."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    infos = sorted(copy.graph.value_info, key=lambda v: v.name)
    del copy.graph.value_info[:]
    copy.graph.value_info.extend(infos)
    found = [
        f'"{v.name}:{axis}" = "{dim.denotation}"'
        for v in [*proto.graph.input, *proto.graph.output]
        for axis, dim in enumerate(v.type.tensor_type.shape.dim)
        if dim.denotation
    ]
    lines = [line.rstrip() for line in onnx.printer.to_text(copy).strip().splitlines()]
    return "\n".join([*lines, *found])


@dataclass
class Outcome:
    """What a run of a case gave."""

    end: str
    text: str
    findings: list[str]
    model: Model
    error: DmlprepError | None = None


def run_case(case: Case) -> Outcome:
    """Run the pass on the graph before."""
    model = Model(ir.from_proto(_proto(case.before, case.head.get("denotations", {}))))
    return _step(case, model, case.head.get("options", {}))


def run_again(case: Case, model: Model) -> Outcome:
    """Run the pass on its own result, with the options of ``again`` where the case has them."""
    return _step(case, model, case.head.get("again", case.head.get("options", {})))


def _step(case: Case, model: Model, options: dict[str, Any]) -> Outcome:
    before = model.snapshot()
    context = Context(find_target(case.head.get("directml", {}).get("target", "latest")))
    try:
        record = Transactions(model).run(case.head["pass"], make_pass(case.head["pass"], options), context, options)
    except DmlprepError as error:
        assert before.same_as(model.snapshot()), "a refusal leaves the model as it was"
        lines = [f'error = "{type(error).__name__}"', f'code = "{error.code}"', f"says = [{json.dumps(error.what)}]"]
        return Outcome("refused", "\n".join(lines), [f.code for f in context.findings], model, error)
    end = "after" if record.outcome == "changed" else "same"
    text = _text(ir.to_proto(model.ir)) if end == "after" else ""
    return Outcome(end, text, sorted({f.code for f in context.findings}), model)


def expected_text(case: Case) -> str:
    """The expected graph, printed as the result is printed."""
    proto = _proto(case.expected, case.head.get("denotations_after", case.head.get("denotations", {})))
    return _text(ir.to_proto(ir.from_proto(proto)))


def check_refusal(case: Case, outcome: Outcome) -> None:
    """Hold the refusal against the section: class, code, and words that it must say (also in where and fix)."""
    wanted = tomllib.loads(case.expected)
    error = outcome.error
    assert error is not None, f"not refused: {outcome.end}"
    assert type(error).__name__ == wanted["error"]
    assert error.code == wanted.get("code", "")
    said = f"{error.where}: {error.what} ({error.fix})"
    for words in wanted.get("says", []):
        assert words in said
    assert error.fix, "an error says how to fix it"


def seeded_feeds(model: onnx.ModelProto) -> dict[str, Any]:
    """Normal numbers, and zeros and ones for what is no floating-point number; free dimensions are 2."""
    rng = np.random.default_rng(0)
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name not in weights:
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            dims = value.type.tensor_type.shape.dim
            shape = [d.dim_value if d.HasField("dim_value") else 2 for d in dims]
            made = rng.standard_normal(shape) if kind.kind == "f" else rng.integers(0, 2, shape)
            feeds[value.name] = np.asarray(made).astype(kind)
    return feeds


def run_on_cpu(before: Case, after: Model) -> tuple[list[Any], list[Any]]:
    """Outputs of the graph before and after, on one feed of zeros and ones (so that integers are valid indices).

    Inputs whose values were pinned are fed these values; a framed model is held against the graph before behind the
    reference pipeline. Operators that the CPU has no kernel for are written out. Neither graph is optimized: the
    optimizers of some releases change what a graph computes (ONNX Runtime 1.24.4 fuses Pad into MaxPool wrongly), and a
    case is about what the graphs mean.
    """
    proto = ir.to_proto(write_out(after).model.ir)
    first = onnx.parser.parse_model(before.before)
    written = ir.to_proto(write_out(Model(ir.from_proto(first))).model.ir)
    sessions = [
        ort.InferenceSession(p.SerializeToString(), _quiet(), providers=["CPUExecutionProvider"])
        for p in (written, proto)
    ]
    pinned = pinned_values(after.ir)
    original = ir.from_proto(first).graph.inputs
    feeds = seeded_feeds(proto) | {v.name: pinned_array(v, pinned[v.name]) for v in original if v.name in pinned}
    frame = frame_of(after.ir)
    bare = inside(frame, feeds, ir.from_proto(first))  # what a frame makes of the app's data
    reference, result = (
        dict(
            zip(
                [o.name for o in s.get_outputs()], s.run(None, {i.name: f[i.name] for i in s.get_inputs()}), strict=True
            )
        )
        for s, f in zip(sessions, (bare, feeds), strict=True)
    )
    expected = outside(frame, reference)
    return [expected[name] for name in result], list(result.values())


def _quiet() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def rewrite(path: Path) -> None:
    """Write what the pass does now into a case file."""
    text = path.read_text(encoding="utf-8")
    if text.count("\n--- ") == 1:
        path.write_text(text + "\n--- same\n", encoding="utf-8")
    outcome = run_case(read_case(path))
    body = "\n".join(line for line in outcome.text.splitlines() if not line.startswith('"'))
    head, _, rest = text.partition("\n--- before\n")
    before = rest.split("\n--- ")[0].strip()
    path.write_text(f"{head}\n--- before\n{before}\n\n--- {outcome.end}\n{body}\n", encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        rewrite(Path(argument))
