"""Summarise DirectML runs in ``tests/directml/quirks/conformance.json``, and compare the quirks with them.

Maintainers run this for a new release, with its runtime installed::

    python tests/benchmarks/conformance.py --release 1.24.4 --out T/1.24.4.json
    python -m tests.benchmarks.quirks_by_release 1.24.4 --out T/quirks.json
    python scripts/make_conformance_data.py T

T is a folder with a table of conformance.py for each new release, and the table of quirks_by_release.py. Results of
other releases stay. Among ONNX's node tests, only faults of the provider are included. Their nodes run on DirectML in
that release, and the CPU provider gives the right results. Each entry has the outcome, the figure (max |d| / max
|reference|), and the quirk that explains it. If a fault has no quirk, ``UNEXPLAINED`` must name it; otherwise nothing
is written.

``dmlprep/directml/quirks/measured.json`` is written again: for each quirk, the releases in which one of its models or a
node test shows it. The line with the releases on its page is updated too.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from onnx.backend.test.case.node import collect_testcases

from dmlprep.directml.placement import place
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import Quirk, find_quirks, quirks
from dmlprep.directml.quirks.page import releases
from dmlprep.directml.targets import Target, find_target
from dmlprep.graph.model import Model

TOP = Path(__file__).resolve().parent.parent
DATA = TOP / "tests" / "directml" / "quirks" / "conformance.json"
PAGES = TOP / "docs" / "codes"

UNEXPLAINED = {
    "test_affine_grid_3d_": "a branch that does not run has a Split with more parts than elements (narrowing_error)",
    "test_clip_min_greater_than_max": "`min` and `max` are inputs: the file does not show that they cross",
    "test_rotary_embedding_": "the graph computes the sizes of a Split; a rule applies after simplify folds them",
}
"""For the beginning of a case's name, why no quirk covers it."""

TOO_YOUNG = ("Load model from", "Could not find an implementation", "Failed to find kernel")
"""Beginnings of messages by which a release reports that it does not know an operator's version."""

OUTCOMES = {
    "differs": "wrong numbers",
    "create_fail": "create fails",
    "run_fail": "run fails",
    "crash": "crash",
    "timeout": "no answer",
    "memory": "too much memory",
    "protocol": "no answer",
}

Row = dict[str, Any]


def faults(table: dict[str, Row | None], target: Target, models: dict[str, onnx.ModelProto]) -> dict[str, list[Any]]:
    """Return case -> [outcome, figure, quirk]; the quirk is empty if none explains the fault."""
    entries: dict[str, list[Any]] = {}
    for name, row in sorted(table.items()):
        if row is None or row["result"] not in OUTCOMES or row.get("cpu") != "match":
            continue
        if any(text in row.get("error", "") for text in TOO_YOUNG):
            continue
        model = Model(ir.from_proto(restamped(models[name.partition("@")[0]], name)))
        if not any(node.provider == "DmlExecutionProvider" for node in place(model, target).nodes):
            continue
        outcome = OUTCOMES[row["result"]]
        hits = find_quirks(read_facts(model, target.tables), target)
        # A refused session runs nothing, so its wrong results do not show.
        fitting = [h.quirk for h in hits if fits(h.quirk, outcome)]
        figure = float(f"{row['rel'][0]:.2g}") if row.get("rel") else None
        entries[name] = [outcome, figure, fitting[0].id if fitting else ""]
    return entries


def fits(quirk: Quirk, outcome: str) -> bool:
    """Return whether a quirk explains an outcome. An empty output counts as wrong numbers; a refusal may be late."""
    same = {"empty output": "wrong numbers", "run fails": "create fails"}
    return same.get(quirk.outcome, quirk.outcome) == same.get(outcome, outcome)


def restamped(model: onnx.ModelProto, key: str) -> onnx.ModelProto:
    """Return the model of a case, at the opset after the ``@`` of its key."""
    opset = key.partition("@")[2]
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:
        if opset and entry.domain in ("", "ai.onnx"):
            entry.version = int(opset)
    return copy


def reason(name: str) -> str:
    """Return why a case fails without a quirk; empty if that is unknown."""
    return next((why for start, why in UNEXPLAINED.items() if name.startswith(start)), "")


def minor(release: str) -> tuple[int, int]:
    """Return the major and minor version of a release."""
    numbers = release.split(".")
    return int(numbers[0]), int(numbers[1])


def contradictions(shown: dict[str, dict[str, list[str]]]) -> list[str]:
    """Return where the releases of a quirk disagree with the results of its models."""
    messages = []
    for release, cases in shown.items():
        by_quirk: dict[str, list[str]] = {}
        for case, (before, after) in cases.items():
            by_quirk.setdefault(case.split(".")[0], []).append(before)
            if after not in ("right", "none"):
                messages.append(f"{release}: {case} {after} after fix-quirks")
        for name, outcomes in by_quirk.items():
            results = [o for o in outcomes if o != "none"]
            claimed = any(q.id == name and q.concerns(minor(release)) for q in quirks())
            if results and claimed and all(o == "right" for o in results) and name not in NOT_BY_RESULT:
                messages.append(f"{release}: {name} is set for it, but no model shows it")
            if not claimed and any(o != "right" for o in results):
                messages.append(f"{release}: {name} is not said to concern it, and shows: {results}")
    return messages


NOT_BY_RESULT = {"gelu-decomposed", "squeeze-shared"}
"""Quirks that do not change a result: they change where a node runs, or only the log."""


def measured(quirk: Quirk, shown: dict[str, dict[str, list[str]]], cases: dict[str, dict[str, list[Any]]]) -> list[str]:
    """Return the releases in which a quirk was observed."""
    observed = set()
    for release in {*shown, *cases}:
        if not quirk.concerns(minor(release)):
            continue
        models = [o[0] for case, o in shown.get(release, {}).items() if case.split(".")[0] == quirk.id]
        tests = [fault for fault in cases.get(release, {}).values() if fault[2] == quirk.id]
        if tests or any(o not in ("right", "none") for o in models) or release in quirk.measured_on:
            observed.add(release)
    return sorted(observed | set(quirk.measured_on), key=lambda r: [int(n) for n in r.split(".")])


def main(folder: Path) -> int:
    """Write the data files and the pages from the results in a folder, and return the exit code."""
    models = {case.name: case.model for case in collect_testcases(None) if case.model is not None}
    shown: dict[str, dict[str, list[str]]] = json.loads((folder / "quirks.json").read_text())
    known = json.loads(DATA.read_text(encoding="utf-8"))
    heads: dict[str, dict[str, Any]] = known["releases"]
    cases: dict[str, dict[str, list[Any]]] = {
        release: {name: rows[release] for name, rows in known["faults"].items() if release in rows} for release in heads
    }
    for path in folder.glob("1.*.json"):
        release = path.stem
        record = json.loads(path.read_text())
        target = find_target("ort-" + ".".join(release.split(".")[:2]))
        real = {name: row for name, row in record["cases"].items() if row is not None}
        cases[release] = faults(record["cases"], target, models)
        ran = [r for r in real.values() if not any(t in r.get("error", "") for t in TOO_YOUNG)]
        heads[release] = {
            "device": record["device"],
            "cases": sum(r["result"] not in ("not_run", "cpu_does_not_load_either") for r in ran),
            "right": sum(r["result"] == "match" for r in ran),
            "faults": len(cases[release]),
        }
    heads = {release: heads[release] for release in sorted(heads, key=minor)}
    strange = [f"{r}: {n} {f}" for r, rows in cases.items() for n, f in rows.items() if not f[2] and not reason(n)]
    strange += contradictions(shown)
    if strange:
        print("\n".join(strange), file=sys.stderr)
        return 1
    write(heads, cases)
    measured_on = {quirk.key: tuple(measured(quirk, shown, cases)) for quirk in quirks()}
    rewrite(measured_on)
    pages(measured_on)
    return 0


def pages(measured_on: dict[str, tuple[str, ...]]) -> None:
    """Write the releases into the pages of the codes."""
    by_code: dict[str, list[Quirk]] = {}
    for quirk in quirks():
        new = replace(quirk, measured_on=measured_on[quirk.key])
        by_code.setdefault(quirk.code, []).append(new)
    for code, same_code in by_code.items():
        path = PAGES / f"{code}.md"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        before, marked, rest = text.partition("Releases: ")
        if marked:
            path.write_text(f"{before}{releases(same_code)}\n\n{rest.partition(chr(10) * 2)[2]}", encoding="utf-8")


def write(heads: dict[str, dict[str, Any]], cases: dict[str, dict[str, list[Any]]]) -> None:
    """Write one case a line, its fault by release: ``[outcome, figure, quirk]``."""
    names = sorted({name for rows in cases.values() for name in rows})
    lines = [
        f"{json.dumps(name)}: {json.dumps({r: cases[r][name] for r in heads if name in cases[r]})}" for name in names
    ]
    explained = {n: reason(n) for n in names if any(n in rows and not rows[n][2] for rows in cases.values())}
    text = [
        '{\n"format": 1',
        f'"suite": "ONNX {onnx.__version__}, node tests"',
        '"releases": {\n' + ",\n".join(f"{json.dumps(r)}: {json.dumps(h)}" for r, h in heads.items()) + "\n}",
        '"faults": {\n' + ",\n".join(lines) + "\n}",
        '"unexplained": {\n' + ",\n".join(f"{json.dumps(n)}: {json.dumps(w)}" for n, w in explained.items()) + "\n}\n}",
    ]
    DATA.write_text(",\n".join(text) + "\n", encoding="utf-8")


def rewrite(measured_on: dict[str, tuple[str, ...]]) -> None:
    """Write the releases in which quirks were observed, one quirk a line."""
    lines = [f"{json.dumps(key)}: {json.dumps(names)}" for key, names in sorted(measured_on.items()) if names]
    (TOP / "dmlprep" / "directml" / "quirks" / "measured.json").write_text(
        "{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
