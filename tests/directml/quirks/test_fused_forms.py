"""Which fused graphs DirectML cannot create: what is predicted of some thirty forms, and what the real one does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context
from dmlprep.passes.fix_quirks import FixQuirksOptions, FixQuirksPass
from dmlprep.runtime import SessionFailure, SessionOptions, cpu_host, dml_host, dml_status, open_dml
from dmlprep.runtime.session import open_on

Said = Literal["error", "warning", ""]


class Form(NamedTuple):
    """A graph, whether DirectML fails to create it, and the severity of what is said of it."""

    graph: str
    fails: bool
    said: Said


def chain(shape: list[int], steps: str, fails: bool, said: Said | None = None) -> Form:
    """Nodes one behind another: ``T1,0`` Transpose, ``S1,2`` Slice of axis 1 from 2, ``V8,2`` Reshape, ``Relu``."""
    nodes, constants, value = [], [], "x"
    for index, step in enumerate(steps.split()):
        numbers = [int(n) for n in step[1:].split(",")] if step[1:2].isdigit() else []
        made = f"v{index}"
        if step[0] == "T" and numbers:
            nodes.append(f"{made} = Transpose <perm = {numbers}> ({value})")
        elif step[0] == "S" and numbers:
            axis, start, end = (*numbers, 99)[:3]
            names = [f"s{index}", f"e{index}", f"a{index}"]
            constants += [f"int64[1] {n} = {{{v}}}" for n, v in zip(names, (start, end, axis), strict=True)]
            nodes.append(f"{made} = Slice ({value}, {', '.join(names)})")
        elif numbers:
            kind = {"V": "Reshape", "Q": "Squeeze", "U": "Unsqueeze"}[step[0]]
            constants.append(f"int64[{len(numbers)}] k{index} = {{{','.join(map(str, numbers))}}}")
            nodes.append(f"{made} = {kind} ({value}, k{index})")
        else:
            kind, _, rest = step.partition(":")
            nodes.append(f"{made} = {kind} {f'<{rest}>' if rest else ''} ({value})")
        value = made
    nodes.append(f"y = Identity ({value})")
    head = f"g (float{shape} x) => (float y) <{', '.join(constants)}>"
    return Form(f"{head} {{ {' '.join(nodes)} }}", fails, said if said is not None else "error" if fails else "")


def two_slices(second: str, fails: bool) -> Form:
    """Add of a part and of a part of another value, between Transposes; ``second`` makes ``o``'s data, ``d``."""
    return Form(
        f"""g (float[4,8] x, float[4,8] u, float[8,4] w) => (float[2,8] y)
        <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] four = {{4}}, int64[1] one = {{1}}> {{
            t = Transpose <perm = [1, 0]> (x) r = Relu (t) p = Slice (r, two, four, one)
            d = {second} o = Slice (d, zero, two, one) q = Add (p, o) y = Transpose <perm = [1, 0]> (q) }}""",
        fails,
        "error" if fails else "",
    )


def dead(nodes: str, fails: bool) -> Form:
    """A node that leads nowhere, and Det, which runs on the CPU."""
    return Form(f"g (float[2,4,4] x) => (float[2] y) {{ {nodes} }}", fails, "error" if fails else "")


FORMS = {
    "part": chain([4, 8], "Relu S0,2 Relu", True),
    "not-together": chain([4, 8], "Relu S1,2 Relu", False),
    "not-aligned": chain([4, 2], "Relu S0,1 Relu", False),
    "nothing-computed": chain([4, 8], "S0,2 Relu", False),
    "not-overwritten": chain([4, 8], "Relu S0,2 Softmax", False),
    "leading-ones": chain([1, 4, 8], "Relu S1,2 Relu", True),
    "view-between": chain([4, 8], "Relu S0,2 V1,2,8 Relu", True),
    "other-view-between": chain([4, 8], "Relu S0,2 V4,4 Relu", False),
    "transposed": chain([4, 8], "T1,0 Relu S1,2 Relu T1,0", True),
    "transposed-fast-axis": chain([4, 8], "T1,0 Relu S0,4 Relu T1,0", False),
    "transposed-and-left": chain([4, 8], "T1,0 Relu S1,2 Relu", False),
    "split-axes": chain([4, 8], "T1,0 V8,2,2 Relu S1,1 Relu T1,0,2", True),
    "split-axes-16": chain([4, 16], "T1,0 V16,2,2 Relu S1,1 Relu T0,2,1", True),
    "split-axes-4": chain([4, 16], "T1,0 V4,4,4 Relu S2,2 Relu T0,2,1", True),
    "split-axes-together": chain([4, 16], "T1,0 V4,4,4 Relu S1,2 Relu T0,2,1", False),
    "merged-axes": chain([4, 16], "T1,0 V8,8 Relu S1,4 Relu T1,0", False),
    "squeeze-behind": chain([4, 8, 1], "T1,0,2 Relu S1,2 Relu Q2 T1,0", True),
    "last-one-dropped": chain([4, 8, 1], "T1,0,2 Relu S1,2 Relu V8,2 T1,0", True, "warning"),
    "inner-one-dropped": chain([4, 1, 8], "T2,1,0 Relu S2,2 Relu V8,2 T1,0", True, "warning"),
    "first-and-last-one-dropped": chain([1, 4, 8, 1], "T0,2,1,3 Relu S2,2 Relu V8,2 T1,0", True, "warning"),
    "last-one-moved": chain([4, 8, 1], "T1,0,2 Relu S1,2 Relu V8,1,2 T2,1,0", True, "warning"),
    "flattened": chain([4, 8, 1], "T1,0,2 Relu S1,2 Relu Flatten:axis=1 T1,0", True, "warning"),
    "cut-to-one": chain([2, 4, 8], "T0,2,1 Relu S1,5,6 Relu V2,4 T1,0", True, "warning"),
    "cut-to-one-not-aligned": chain([3, 3, 8], "T0,2,1 Relu S1,1,2 Relu V3,3 T1,0", False),
    "one-dropped-and-computed": chain([4, 8, 1], "T1,0,2 Relu S1,2 Relu V8,2 Relu", False),
    "one-dropped-and-axes-split": chain([4, 8, 1], "T1,0,2 Relu S1,2 Relu V4,2,2 T2,0,1", False),
    "leading-one-dropped": chain([1, 4, 8], "T0,2,1 Relu S2,2 Relu V8,2 T1,0", False),
    "three-long-axes": chain([4, 3, 4, 1], "T1,2,0,3 Relu S2,2 Relu V3,4,2 T2,0,1", False, "warning"),
    "slice-of-the-same-transposed": two_slices("Identity (t)", True),
    "slice-of-another-transposed": two_slices("Transpose <perm = [1, 0]> (u)", True),
    "slice-of-another": two_slices("Identity (w)", False),
    "dead-behind-the-cpu": dead("a = Neg (x) d = Exp (a) b = Det (a) y = Neg (b)", True),
    "dead-before-the-cpu": dead("a = Neg (x) b = Det (a) y = Neg (b) d = Exp (a)", False),
    "dead-with-what-the-cpu-made": dead("a = Neg (x) b = Det (a) y = Neg (b) d = Mul (b, b) e = Exp (d)", True),
    "dead-beside-a-live-node": dead("b = Det (x) y = Neg (b) d = Exp (y)", False),
    "dead-chain": dead("b = Det (x) y = Neg (b) c = Exp (x) d = Neg (c)", True),
}

RUNS_ON = {"1.24.4": {"split-axes", "split-axes-16", "split-axes-4"}}
"""Forms that run on a release though they fail on the newest: false alarms there, since one matcher serves all."""


def model_of(form: Form) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]> {form.graph}'
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))


def said_of(form: Form) -> list[str]:
    target = find_target()
    facts = read_facts(Model(ir.from_proto(model_of(form))), target.tables)
    return [h.finding().severity for h in find_quirks(facts, target) if h.quirk.id in ("part-in-place", "dead-node")]


@pytest.mark.parametrize("name", FORMS)
def test_what_is_said_of_a_form(name: str) -> None:
    said = said_of(FORMS[name])
    assert set(said) == {FORMS[name].said} - {""}


def test_no_form_that_fails_goes_unnamed() -> None:
    assert all(form.said for form in FORMS.values() if form.fails)


def test_the_node_order_of_the_file_does_not_matter() -> None:
    form = FORMS["slice-of-the-same-transposed"]
    model = model_of(form)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    opened = Model(ir.from_proto(model))
    opened.ir.graph.sort()
    target = find_target()
    assert [h.quirk.id for h in find_quirks(read_facts(opened, target.tables), target)] == ["part-in-place"]


@pytest.mark.dml
@pytest.mark.slow
@pytest.mark.parametrize("release", ["1.30.0", "1.24.4"])
def test_the_real_one_fails_where_that_is_said(release: str, tmp_path: Path) -> None:
    """Each form fails as it is or runs, and runs once it is rewritten, with the numbers of the CPU."""
    status = dml_status(release)
    if not status.available:
        pytest.skip(f"no DirectML here: {status.reason}")
    context = Context(find_target("ort-" + release.rsplit(".", 1)[0]))
    path = tmp_path / "form.onnx"
    found: dict[str, tuple[str, bool]] = {}
    with dml_host(release) as host, cpu_host() as cpu:
        for name, form in FORMS.items():
            before, after = model_of(form), Model(ir.from_proto(model_of(form)))
            FixQuirksPass(FixQuirksOptions()).run(after, context)
            path.write_bytes(before.SerializeToString())
            with open_on(cpu, cpu_host, path, SessionOptions()) as session:
                feeds = {v.name: _values(v.shape) for v in session.inputs}
                wanted = session.run(feeds)
            failed = ""
            try:
                open_dml(path, SessionOptions(), host).close()
            except SessionFailure as failure:
                failed = f"{failure.kind} {failure.message.split()[0]}"
            path.write_bytes(ir.to_proto(after.ir).SerializeToString())
            with open_dml(path, SessionOptions(), host) as session:
                made = session.run(feeds)
            found[name] = failed, all(np.allclose(made[k], wanted[k], rtol=1e-4, atol=1e-5) for k in wanted)
    fail = {name for name, form in FORMS.items() if form.fails} - RUNS_ON.get(release, set())
    assert found == {name: ("load 80070057" if name in fail else "", True) for name in FORMS}


def _values(shape: Sequence[int | str | None]) -> np.ndarray[Any, Any]:
    sizes = [size for size in shape if isinstance(size, int)]
    return np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
