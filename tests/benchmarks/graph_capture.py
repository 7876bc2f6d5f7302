"""Graph capture on DirectML: the time of the models of ``device_shares`` in FP16, with and without it.

    python -m tests.benchmarks.graph_capture FOLDER [--gpu auto] [--only NAME,...] [--seconds 3]

FOLDER has the models of ``device_shares``; missing ones are written. One worker has both sessions. They run in turns,
with inputs and outputs on the device. A ratio is the time without capture, divided by the time with it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dmlprep.graph.model import Model
from dmlprep.parity.bench.statistics import ratio_of_times
from dmlprep.parity.feeds.graph_feeds import Feed, make_feeds
from dmlprep.report.speed import ratio_text
from dmlprep.runtime import Session, SessionFailure, SessionOptions, dml_host, dml_status
from tests.benchmarks.device_shares import MODELS, files

CAPTURE = {"ep.dml.enable_graph_capture": "1"}
ROUNDS = 14

Rounds = dict[int, tuple[float, ...]]


def in_turns(sessions: Mapping[str, Session], feed: Feed, seconds: float) -> dict[str, Rounds]:
    """Return the seconds of single runs by session and round, with inputs and outputs on the device."""
    for session in sessions.values():
        session.bind(feed)
        session.time(5, 2.0, on_device=True)
    times: dict[str, Rounds] = {name: {} for name in sessions}
    for number in range(ROUNDS):
        order = list(sessions)
        random.Random(number // 2).shuffle(order)
        for name in order if number % 2 else reversed(order):
            times[name][number] = sessions[name].time(2000, seconds / ROUNDS, on_device=True)
    return times


def feeds(path: Path, count: int = 1, seed: int = 0) -> list[Feed]:
    """Return synthetic feeds of a model."""
    return make_feeds(Model.open(path), count=count, seed=seed)


def milliseconds(rounds: Rounds) -> str:
    """Return the median of all runs."""
    return f"{np.median([run for one in rounds.values() for run in one]) * 1e3:.3g}"


def arguments(doc: str | None, names: Mapping[str, object]) -> argparse.Namespace:
    """Return the command line's folder, gpu, names (``only``) and seconds; print the device."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", default="", help="a GPU on Linux")
    parser.add_argument("--only", default=",".join(names))
    parser.add_argument("--seconds", type=float, default=3.0, help="time for the runs of each session")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    print(dml_status(session=SessionOptions(gpu=chosen.gpu)).device, flush=True)
    return chosen


def main() -> None:
    """Run the command line."""
    chosen = arguments(__doc__, MODELS)
    print("| model | without, ms | with, ms | ratio |\n|---|---|---|---|", flush=True)
    plain, capture = SessionOptions(gpu=chosen.gpu), SessionOptions(gpu=chosen.gpu, config=CAPTURE)
    for name in chosen.only.split(","):
        path = dict(files(chosen.folder, name, half=True))["FP16"]
        try:
            with dml_host(session=plain) as host:
                sessions = {"without": host.open(path, plain), "with": host.open(path, capture)}
                times = in_turns(sessions, feeds(path)[0], chosen.seconds)
        except SessionFailure as error:
            print(f"| {name} | {error} |", flush=True)
            continue
        ratio = ratio_text(ratio_of_times("with", times["with"], times["without"]))
        print(f"| {name} | {milliseconds(times['without'])} | {milliseconds(times['with'])} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
