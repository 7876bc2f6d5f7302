"""Choose among the candidates of a kit by its result: the fastest with correct outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dmlprep.core.errors import InputError
from dmlprep.kit.forms import Result
from dmlprep.kit.verifying import Returned, returned
from dmlprep.metrics import UserMetric
from dmlprep.parity.bench import ratio_of_times, summary
from dmlprep.parity.candidate import software_device
from dmlprep.pipeline.tuning import choose
from dmlprep.record import Verdict
from dmlprep.record.speed import ON_CPU, SOFTWARE, Bench, Timed
from dmlprep.record.tuning import Candidate, Tuned


def choose_candidate(result: Path, kit: Path, metric: UserMetric | None = None, key: Path | None = None) -> Tuned:
    """Return the candidates with their verdicts and times on the other machine, and the choice among them.

    Raises:
        InputError: the kit has only one model, kit and result are damaged or do not belong together, or a seal does not
            match ``key``. Or ``metric`` fails.
    """
    with returned(result, kit, key) as answer:
        listed, tuned = answer.manifest.candidates, answer.manifest.tuned
        if not listed or tuned is None or len(answer.result.others) != len(listed) - 1:
            what = "this kit and its result have one model: nothing to choose from"
            fix = "dmlprep kit verify judges it; dmlprep tune --kit packs candidates"
            raise InputError(what, where=str(kit), code="DP811", fix=fix)
        answer.check_files()
        verdicts = {one.name: answer.judge(metric, number) for number, one in enumerate(listed)}
        bench = _bench(answer, verdicts)
    ratios = {row.name: row.ratio for row in bench.models}
    judged = [_judged(one, verdicts[one.name]) for one in tuned.candidates if one.name in verdicts]
    rest = [one for one in tuned.candidates if one.name not in verdicts]
    candidates = tuple(replace(one, time=ratios.get(one.name)) for one in (*judged, *rest))
    return choose(replace(tuned, candidates=candidates, bench=bench), proved=True)


def _judged(one: Candidate, verdict: Verdict) -> Candidate:
    by = (verdict.device.name,) if verdict.device is not None and verdict.outcome == "passed" else ()
    return replace(one, proof=verdict.outcome, reason=verdict.reason, devices=by)


def _bench(answer: Returned, verdicts: Mapping[str, Verdict]) -> Bench:
    """Return the times of the candidates in the form of ``bench``; those that did not pass get a reason instead."""
    result = answer.result
    names = list(verdicts)
    right = {name: _turns(result, number) for number, name in enumerate(names) if verdicts[name].outcome == "passed"}
    timed = {name: turns for name, turns in right.items() if turns}
    first = next(iter(timed), "")
    rows = []
    for name in names:
        if name not in timed:
            why = verdicts[name].reason or result.untimed or "it was not timed on that machine"
            rows.append(Timed(name, name, not_run=why))
            continue
        times = summary([seconds for turn in timed[name].values() for seconds in turn])
        ratio = ratio_of_times(first, timed[first], timed[name]) if name != first else None
        rows.append(Timed(name, name, times=times, ratio=ratio))
    device = next((v.device for v in verdicts.values() if v.device is not None), None)
    on_dml = result.provider == "DmlExecutionProvider"
    note = ON_CPU if not on_dml else SOFTWARE if software_device("dml", device) else ""
    rounds = max((len(turns) for turns in timed.values()), default=0)
    return Bench(str(device or ""), tuple(rows), inputs=answer.manifest.inputs, note=note, rounds=rounds)


def _turns(result: Result, number: int) -> dict[int, tuple[float, ...]]:
    """Return round -> times of single runs in seconds of candidate ``number``, without implausible values."""
    turns = result.turns.get(str(number), [])
    valid_turns = {at: tuple(seconds for seconds in turn if 0 < seconds < 1e6) for at, turn in enumerate(turns)}
    return {at: turn for at, turn in valid_turns.items() if turn}
