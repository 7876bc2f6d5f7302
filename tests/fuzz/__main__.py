"""``python -m tests.fuzz --seed 1 --inputs 50000``: many inputs; exit code 1 where one found a fault."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.cases import KINDS, make
from tests.fuzz.corpus import Corpus, standard
from tests.fuzz.running import MEMORY, SECONDS, Outcome, found, run_all, runners, save

_ROUND = 500
"""Cases between two looks at what was new: parents are added in the order of the cases, so that a seed reproduces."""

_REFUSED = 10
"""Of so many refused cases that say something new, one becomes a parent."""

_KEPT = 64 << 10
"""Bytes of a case that may become a parent."""


def main() -> int:
    """Run, and print what was found."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
        if options.replay:
            return _replay(options.replay, Path(work))
        corpus = standard(Path(work) / "corpus", onnx_models=options.onnx_models)
        if options.corpus:
            corpus.add(options.corpus)
        return _run(options, corpus, Path(work))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same cases")
    parser.add_argument("--only", action="append", choices=KINDS, help="cases of this kind; may be given several times")
    parser.add_argument("--inputs", type=int, default=2000, help="how many cases")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--corpus", type=Path, help="a folder that grows: cases that said something new are kept there")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="where findings are written")
    parser.add_argument("--onnx-models", type=int, default=1000, help="how many of ONNX's backend models are parents")
    parser.add_argument("--replay", type=Path, help="run one finding again, from the folder that was written")
    return parser.parse_args()


def _run(options: argparse.Namespace, corpus: Corpus, work: Path) -> int:
    began, known = time.monotonic(), set[str]()
    faults: dict[str, list[Outcome]] = {}
    codes: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    slowest, largest = 0.0, 0

    def told(outcome: Outcome) -> None:
        if outcome.seconds > SECONDS / 2 and not outcome.fault:
            place = save(outcome, options.findings)
            print(f"{outcome.case.number} {outcome.case.kind}: slow, {outcome.seconds:.1f} s: {place}", flush=True)
        if outcome.fault:
            if outcome.fault not in faults:
                place = save(outcome, options.findings)
                print(f"{outcome.case.number} {outcome.case.kind}: {outcome.fault}: {place}", flush=True)
            faults.setdefault(outcome.fault, []).append(outcome)

    with runners(work, options.jobs) as ready:
        for first in range(0, options.inputs, _ROUND):
            numbers = range(first, min(first + _ROUND, options.inputs))
            outcomes = run_all((make(options.seed, n, corpus, options.only or ()) for n in numbers), ready, told)
            for outcome in outcomes:
                codes[f"{outcome.case.kind} exit {outcome.code}"] += 1
                spent[outcome.case.kind] += round(1000 * outcome.seconds)
                slowest, largest = max(slowest, outcome.seconds), max(largest, outcome.memory)
                if outcome.seen not in known and not outcome.fault:
                    known.add(outcome.seen)
                    _keep(outcome, corpus, options.corpus)
            bad = sum(map(len, faults.values()))
            print(
                f"{numbers.stop} inputs, {bad} faults of {len(faults)} kinds, {len(known)} outcomes seen, "
                f"slowest {slowest:.1f} s, most memory {largest >> 20} MiB, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    for name, count in sorted(codes.items()):
        print(f"  {name}: {count}")
    print("  seconds: " + ", ".join(f"{kind} {spent[kind] / 1000:.0f}" for kind in sorted(spent)))
    for fault, cases in sorted(faults.items(), key=lambda item: -len(item[1])):
        print(f"FAULT {len(cases)} x {fault}: cases {[o.case.number for o in cases[:5]]}")
    print(
        f"seed {options.seed}: {options.inputs} inputs, {sum(map(len, faults.values()))} faults "
        f"(a traceback, exit code 70, more than {SECONDS:g} s or {MEMORY >> 30} GiB, a changed or left file)"
    )
    return 1 if faults else 0


def _keep(outcome: Outcome, corpus: Corpus, folder: Path | None) -> None:
    name, content = next(iter(outcome.case.files.items()))
    parents = corpus.of(name)
    if parents is None or (name.endswith(".json") and parents is not corpus.configs) or len(content) > _KEPT:
        return
    # What is refused at the door leads no deeper: too many such parents, and the steps see few models.
    if outcome.code == 2 and outcome.case.number % _REFUSED:
        return
    # Its children mostly come to no end either: they took half of all time.
    if "DP013" in outcome.seen:
        return
    parents.append(content)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        known = f"-{Path(name).name}" if parents is corpus.configs else Path(name).suffix
        (folder / f"{outcome.case.number:06}{known}").write_bytes(content)


def _replay(folder: Path, work: Path) -> int:
    with runners(work, 1) as ready:
        outcome = ready[0].run(found(folder))
    print(
        f"exit code {outcome.code}, {outcome.seconds:.1f} s, {outcome.memory >> 20} MiB: {outcome.fault or 'no fault'}"
    )
    print(outcome.detail)
    return 1 if outcome.fault else 0


if __name__ == "__main__":
    sys.exit(main())
