"""Write files that reproduce a fault: a model of the nodes, inputs, expected outputs, a script, a draft of an issue."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from dmlprep.core.errors import OutputError
from dmlprep.core.files import FileSet, check_path, unwritable
from dmlprep.core.files.outputs import check_replaceable
from dmlprep.core.files.staging import staging_folder
from dmlprep.core.text.markdown import Markdown, code, table, text
from dmlprep.graph.model.walk import label
from dmlprep.parity.bisection.finding import Bisection, bisect_record
from dmlprep.passes.fusions import write_out
from dmlprep.portable.arrays import Array

FILES = ("node.onnx", "inputs.npz", "expected.npz", "reproduce.py", "issue.md", "run.json")
"""Names of the files that ``write_reproduction`` writes; a large model also has ``node.onnx.data``."""
_DATA = "node.onnx.data"
_LEVELS = {"disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}

_SCRIPT = '''"""Shows the fault with numpy and onnxruntime alone: python reproduce.py [PROVIDER]. Exit code 0: no
fault."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
PROVIDER = sys.argv[1] if len(sys.argv) > 1 else "{provider}"
PROVIDERS = list(dict.fromkeys([PROVIDER, "CPUExecutionProvider"]))
BOUND = {bound!r}  # of max|d| / max|expected|

options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.{level}
options.enable_mem_pattern = False
if PROVIDER not in onnxruntime.get_available_providers():
    sys.exit(f"onnxruntime {{onnxruntime.__version__}} has no {{PROVIDER}}: {{onnxruntime.get_available_providers()}}")
session = onnxruntime.InferenceSession(str(HERE / "node.onnx"), options, providers=PROVIDERS)
if PROVIDER not in session.get_providers():
    sys.exit(f"onnxruntime left {{PROVIDER}} out of the session: {{session.get_providers()}}")
print(f"onnxruntime {{onnxruntime.__version__}}, {{PROVIDER}}")
stored = np.load(HERE / "inputs.npz", allow_pickle=False)
feeds = {{value.name: stored[f"input_{{i}}"] for i, value in enumerate(session.get_inputs())}}
answers = session.run(None, feeds)
expected = np.load(HERE / "expected.npz", allow_pickle=False)
faulty = False
for i, (value, answer) in enumerate(zip(session.get_outputs(), answers)):
    if f"output_{{i}}" not in expected:
        continue
    want, got = expected[f"output_{{i}}"].astype(np.float64), np.asarray(answer).astype(np.float64)
    if want.shape != got.shape:
        print(f"{{value.name!r}}: shape {{got.shape}}, expected {{want.shape}}")
        faulty = True
        continue
    fine = np.isfinite(want)
    scale = max(np.abs(want[fine]).max(initial=0.0), 1e-6)
    lost = int(np.count_nonzero(fine & ~np.isfinite(got)))
    both = fine & np.isfinite(got)
    rel = np.abs(want - got)[both].max(initial=0.0) / scale
    print(f"{{value.name!r}}: max|d|/max|expected| {{rel:.3g}}, not finite {{lost}}")
    faulty = faulty or rel > BOUND or lost > 0
print("the fault shows" if faulty else "no fault here")
sys.exit(1 if faulty else 0)
'''


def write_reproduction(
    bisection: Bisection,
    folder: Path,
    *,
    level: str = "all",
    force: bool = False,
    last_look: Callable[[], None] = lambda: None,
) -> None:
    """Write a model of the nodes and the files that show the fault; set ``bisection.files`` to the paths of ``FILES``.

    Args:
        level: graph optimisation level with which the fault was found.
        force: True to replace existing files.
        last_look: called before the finished files move into place; if it raises an error, no file appears.

    Raises:
        OutputError: the folder contains such files and ``force`` is False, or cannot be written.
    """
    check_folder(folder, force)
    bisection.files = [folder / name for name in FILES]
    try:
        with staging_folder(folder) as staging:
            _write(bisection, staging, bisection.bound, level)
            last_look()
            files = {path.name: path for path in staging.iterdir() if path.name in (*FILES, _DATA)}
            FileSet(folder, FILES[0], (*FILES[1:], _DATA)).exchange(files, force=force)
    except OSError as error:
        where = Path(error.filename) if error.filename is not None else folder
        bisection.files = []
        raise unwritable(error, where, "choose another -o") from error


def _write(bisection: Bisection, folder: Path, bound: float, level: str) -> None:
    assert bisection.part is not None
    on_dml = bisection.device is not None and bisection.device.provider != "cpu"
    # The script runs where the candidate ran: the CPU has no kernel for some fused operators.
    (bisection.part if on_dml else write_out(bisection.part).model).save(folder / FILES[0])
    inputs = [v.name or "" for v in bisection.part.ir.graph.inputs]
    outputs = [v.name or "" for v in bisection.part.ir.graph.outputs]
    _savez(folder / "inputs.npz", {f"input_{i}": bisection.inputs[n] for i, n in enumerate(inputs)})
    expected = {f"output_{i}": bisection.expected[n] for i, n in enumerate(outputs) if n in bisection.expected}
    _savez(folder / "expected.npz", expected)
    provider = "DmlExecutionProvider" if on_dml else "CPUExecutionProvider"
    script = _SCRIPT.format(provider=provider, bound=bound, level=_LEVELS.get(level, "ORT_ENABLE_ALL"))
    (folder / "reproduce.py").write_text(script, encoding="utf-8", newline="\n")
    (folder / "issue.md").write_text(issue_text(bisection, bound, level), encoding="utf-8", newline="\n")
    (folder / "run.json").write_bytes(bisect_record(bisection).to_json())


def check_folder(folder: Path, force: bool) -> None:
    """Check, before the work begins, that the files of a reproduction can be written to a folder.

    Raises:
        OutputError: such a file exists and ``force`` is False or it cannot be replaced, or ``folder`` is not a folder.
    """
    check_path(folder / FILES[0])
    if folder.exists() and not folder.is_dir():
        raise OutputError("a file of this name exists", where=str(folder), fix="pass a folder with -o")
    there = [folder / name for name in (*FILES, _DATA) if os.path.lexists(folder / name)]
    if there and not force:
        raise OutputError("the file exists", where=str(there[0]), fix="pass --force to replace it, or another -o")
    for path in there:
        check_replaceable(path)


def _savez(path: Path, arrays: Mapping[str, Array]) -> None:
    # A numpy file cannot hold bfloat16: such an array is stored as FP32, which represents its values exactly.
    plain = {k: a.astype(np.float32) if a.dtype.kind == "V" else a for k, a in arrays.items()}
    plain = {k: a.astype(str) if a.dtype.kind == "O" else a for k, a in plain.items()}
    np.savez_compressed(path, allow_pickle=False, **plain)


def issue_text(bisection: Bisection, bound: float, level: str) -> str:
    """Return the text of a bug report about a result, as Markdown without paths of this machine.

    Args:
        bound: the error that the tolerance allows.
        level: graph optimisation level with which the fault was found.
    """
    kinds = list(dict.fromkeys(bisection.op_types))
    fault = "wrong result" if bisection.reproduced else "differences grow here"
    if bisection.kind == "failure" or bisection.fused_by:
        fault = "the session fails" if bisection.kind == "failure" else "wrong result when fused"
    title = f"{', '.join(kinds[:4]) or 'Model'}{' ...' if len(kinds) > 4 else ''}: {fault}"
    lines = [f"# {text(title)}", "", f"{text(bisection.reason[:1].upper() + bisection.reason[1:].rstrip('.'))}.", ""]
    lines += [
        "## Where",
        "",
        f"- device: {text(bisection.device or 'unknown')}",
        f"- graph optimisation: {text(level)}",
    ]
    lines += [f"- bound: {text(bisection.tolerance or bound)}"]
    lines += [f"- found in {bisection.runs} runs, of {bisection.total_nodes} nodes", ""]
    assert bisection.part is not None
    nodes = [node for node in bisection.part.ir.graph if node.op_type != "Constant"][:40]
    lines += ["## Nodes", "", *(f"- {_describe(node)}" for node in nodes), ""]
    off = {m.output: f"{m.max_rel:.3g}" for m in bisection.before}
    fed = [[code(n), *map(text, [*_row(a), *([off.get(n, "")] if off else [])])] for n, a in bisection.inputs.items()]
    head = ["input", "type", "shape", "min", "max", *(["max rel off already"] if off else [])]
    lines += ["## Inputs", "", *table(head, fed)]
    if bisection.values:
        rows = [
            [code(m.output), *map(text, (f"{m.max_abs:.4g}", f"{m.max_rel:.4g}", f"{m.cosine:.6f}", m.non_finite))]
            for m in bisection.values
        ]
        lines += ["", "## What differs", "", *table(["value", "max abs", "max rel", "cosine", "not finite"], rows)]
    if bisection.settings:
        lines += ["", "## The whole model under other settings", ""]
        lines += table(["setting", "result"], [[text(s.name), text(s.text)] for s in bisection.settings])
    lines += ["", "## To reproduce", "", "Needs numpy and onnxruntime (on Windows onnxruntime-directml):", ""]
    lines += ["    python reproduce.py", ""]
    if not bisection.reproduced:
        lines += ["These nodes alone show no fault, as the script reports. Only the whole model shows it.", ""]
    lines += ["`node.onnx` contains the nodes above with their weights, `inputs.npz` the inputs, `expected.npz` what"]
    lines += ["the CPU provider computed for the reference model (empty if the session fails).", ""]
    return "\n".join(lines)


def _describe(node: ir.Node) -> Markdown:
    attributes = ", ".join(
        text(f"{name}={attr.value}")
        for name, attr in node.attributes.items()
        if not attr.is_ref() and attr.type not in (ir.AttributeType.GRAPH, ir.AttributeType.TENSOR)
    )
    domain = f"{node.domain}::" if node.domain else ""
    operator = code(f"{domain}{node.op_type}")
    return Markdown(f"{operator} {code(label(node))}" + (f" ({attributes})" if attributes else ""))


def _row(array: Array) -> list[str]:
    shape = str(list(array.shape))
    if array.size == 0 or array.dtype.kind in "OUS":
        return [array.dtype.name, shape, "", ""]
    real = np.asarray(array, dtype=np.float64)
    return [array.dtype.name, shape, f"{real.min():.4g}", f"{real.max():.4g}"]
