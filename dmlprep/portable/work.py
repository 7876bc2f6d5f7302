"""The worker of the kit's runner, which may crash: load the model, run the feeds, save the outputs.

It records each stage before it begins.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import device, memory, process
from .hresult import diagnose, error_text, plain_text
from .ortoptions import adapter_number
from .replacing import replace

STATE = "state.json"

_TURN = 0.02
"""Shortest turn of a model in seconds, when several models are timed."""

_ROUNDS, _MOST_ROUNDS = 8, 10_000
"""Smallest and largest number of rounds. Fewer than six rounds give no interval."""

DML = "DmlExecutionProvider"


class _NotRun(Exception):
    """The model cannot run here; the text is the reason."""


class Work:
    """One run of a kit. It writes ``state.json`` before and after each stage, so that a crash leaves the last state.

    Args:
        kit: the folder of the kit.
        folder: the folder for state, profile and outputs.
        asked: the request: provider, runs, warm_up and session options. ``candidate`` is the number of the model, if
            there are several. ``race`` has the numbers of the models to time in turn, and ``race_seconds`` the time for
            all of them.
    """

    def __init__(self, kit: Path, folder: Path, asked: Mapping[str, Any]) -> None:
        self.kit, self.folder, self.asked = kit, folder, asked
        self.manifest: dict[str, Any] = json.loads((kit / "kit.json").read_text(encoding="utf-8"))
        self.number = int(asked.get("candidate", 0))
        self.state: dict[str, Any] = {"stage": "start", "outcome": "", "device": {}, "session": {}, "feeds": []}
        self.state["system"] = device.machine_facts()

    def note(self, stage: str, **facts: object) -> None:
        """Set the stage and further facts of the state, and write ``state.json`` atomically."""
        self.state.update(facts, stage=stage)
        part = self.folder / (STATE + ".part")
        part.write_text(json.dumps(self.state), encoding="utf-8")
        replace(part, self.folder / STATE)

    def run(self) -> None:
        """Run all stages, and record the outcome. An error of ONNX Runtime is recorded with its HRESULT, not raised."""
        self.note("import onnxruntime")
        try:
            ort, options = self._imported(), self._usable_options()
            if "race" in self.asked:
                self._race(ort, options)
            else:
                self._run_feeds(ort, options)
                self._judge()
        except _NotRun as why:
            self.note("done", outcome="not-run", reason=str(why))
        except Exception as error:
            self._failed(error)

    def _imported(self) -> Any:
        """Import ONNX Runtime, record its version, and return it.

        Raises:
            _NotRun: it cannot be imported, or lacks the requested provider.
        """
        try:
            import numpy
            import onnxruntime
        except Exception as error:
            raise _NotRun(f"{error_text(error)}: pip install numpy {self.manifest['package']}") from error
        self.state["system"].update(numpy=numpy.__version__, onnxruntime=onnxruntime.__version__)
        available = onnxruntime.get_available_providers()
        self.state["session"]["available"] = available
        if self.asked["provider"] not in available:
            what = f"onnxruntime {onnxruntime.__version__} has no {self.asked['provider']} (it has "
            fix = f"pip uninstall onnxruntime, pip install {self.manifest['package']}"
            raise _NotRun(f"{what}{', '.join(available)}): {fix}")
        return onnxruntime

    def _usable_options(self) -> Mapping[str, str]:
        """Return the session's options, with the adapter as a number, and record the adapter.

        For a provider other than DirectML, the options stay unchanged, and no adapter is recorded.

        Raises:
            _NotRun: this machine lacks the adapter that the options name, or it is not usable.
        """
        options = dict(self.asked["session"])
        if self.asked["provider"] != DML:
            return options
        try:
            options = device.with_number(options)
        except (ValueError, OSError) as error:
            raise _NotRun(f"the kit asks for the adapter {options['adapter']!r}: {error}") from error
        wrong, fix = device.session_problem(options)
        if wrong:
            raise _NotRun(f"{wrong}; {fix}")
        # Record the adapter before the session opens: if the driver crashes, the result still names it.
        number = adapter_number(options)
        preferred = {"adapter": f"the {options.get('performance_preference')} adapter"}
        self.state["device"].update(preferred if number is None else device.adapter_facts(number))
        return options

    def _run_feeds(self, ort: object, options: Mapping[str, str]) -> None:
        provider = self.asked["provider"]
        self.note("load the model")
        session = self._open(ort, options)
        if provider not in session.get_providers():
            raise _NotRun(f"ONNX Runtime did not add {provider} to the session, which has {session.get_providers()}")
        kind = "dml" if provider == DML else "cpu"
        for index, feed in enumerate(self.manifest["feeds"]):
            self.note(f"run feed {index + 1}")
            self._feed(session, index, feed, kind)

    def _of(self, number: int) -> dict[str, Any]:
        """Return the entry of ``kit.json`` for the model with this number: its file and its tolerances."""
        return dict(self.manifest["candidates"][number] if number else self.manifest)

    def _race(self, ort: object, options: Mapping[str, str]) -> None:
        """Time several models in turn, and record the seconds of their runs.

        Each round gives each model a turn, in random order; the next round reverses the order.
        """
        kind = "dml" if self.asked["provider"] == DML else "cpu"
        turns: dict[str, list[list[float]]] = {}
        runners = []
        for number in self.asked["race"]:
            self.note(f"load candidate {number + 1} to time it")
            session = self._session(ort, {**options, "cpu_fallback": "1"}, kind, number)
            runners.append(_Runner(session, _feeds(self.kit, self.manifest["feeds"][0], session)))
            turns[str(number)] = []
        self.note("time the candidates")
        slowest = max(runner.warmed_up() for runner in runners)
        length = max(_TURN, min(6 * slowest, 10 * _TURN))
        order: list[int] = []
        ends = time.perf_counter() + float(self.asked["race_seconds"])
        draw = random.Random(0)
        rounds = 0
        while rounds < _ROUNDS or (time.perf_counter() < ends and rounds < _MOST_ROUNDS):
            order = order[::-1] if rounds % 2 else draw.sample(range(len(runners)), len(runners))
            for place in order:
                turns[str(self.asked["race"][place])].append(runners[place].turn(length))
            rounds += 1
        self.note("done", outcome="passed", reason="", turns=turns)

    def _judge(self) -> None:
        session = self.state["session"]
        placed = session.get("kernels") or session.get("nodes", {})
        if self.asked["provider"] == DML and not placed.get(DML):
            raise _NotRun("no node ran on DirectML: this run proves nothing about it")
        feeds = self.state["feeds"]
        reasons = [f"the session has no output {name!r}" for feed in feeds for name in feed["missing"]]
        reasons += [f"{m['output']} is not as expected" for feed in feeds for m in feed["metrics"] if not m["passed"]]
        self.note("done", outcome="failed" if reasons else "passed", reason=reasons[0] if reasons else "")

    def _failed(self, error: BaseException) -> None:
        text = plain_text(error_text(error))
        stage = self.state["stage"]
        hresult = diagnose(text)
        failure = {"stage": stage, "message": text, "hresult": "", "causes": [], "next_step": ""}
        if hresult is not None:
            failure.update(hresult=str(hresult), causes=list(hresult.causes), next_step=hresult.next_step)
        reason = f"{stage}: {text.splitlines()[0] if text else type(error).__name__}"
        self.note("done", outcome="failed", reason=reason, failure=failure)

    def _open(self, ort: Any, chosen: Mapping[str, str]) -> Any:
        """Open the session of the kit's model with the options ``chosen``, and return it.

        Its providers and load time are recorded in the state; the placement only if this ONNX Runtime can report it.
        """
        options = {**chosen, "cpu_fallback": "1", "profile": "1"}
        recorded = hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")
        if recorded:
            options["record_placement"] = "1"
        kind = "dml" if self.asked["provider"] == DML else "cpu"
        began = time.perf_counter()
        session = self._session(ort, options, kind, self.number)
        self.state["session"].update(
            options=dict(self.asked["session"]),
            providers=session.get_providers(),
            load_seconds=round(time.perf_counter() - began, 4),
        )
        if kind == "dml":
            # The libraries are loaded only after the session was opened.
            self.state["device"].update(device.library_facts())
        if recorded:
            nodes = [
                (part.ep_name, f"{node.op_type} {node.name}")
                for part in session.get_provider_graph_assignment_info()
                for node in part.get_nodes()
            ]
            self.state["session"]["nodes"] = dict(Counter(ep for ep, _ in nodes))
            if kind == "dml":
                self.state["session"]["nodes_elsewhere"] = [node for ep, node in nodes if ep != DML][:500]
        return session

    def _session(self, ort: Any, options: Mapping[str, str], kind: str, number: int) -> Any:
        """Return a session for one of the kit's models."""
        from .ortoptions import providers, session_settings

        settings = ort.SessionOptions()
        session_settings(settings, options, kind, str(self.folder / "profile"), ort.GraphOptimizationLevel)
        model = str(self.kit / self._of(number)["model"]["file"])
        # Without this, onnxruntime would retry on the CPU and replace the provider's error with its own.
        return ort.InferenceSession(model, settings, providers=providers(options, kind), enable_fallback=False)

    def _feed(self, session: Any, index: int, feed: Mapping[str, Any], kind: str) -> None:
        import numpy as np

        from .comparison import OutputGroup, compare_outputs
        from .measure import Tolerance

        inputs = _feeds(self.kit, feed, session)
        names = [value.name for value in session.get_outputs()]
        seconds = []
        warm = max(1, int(self.asked["warm_up"]))
        answers: list[Any] = []
        for number in range(warm + max(1, int(self.asked["runs"]))):
            began = time.perf_counter()
            answers = session.run(names, inputs)
            seconds.append(round(time.perf_counter() - began, 6))
            if index == 0 and number == 0:
                # The profile of one run shows the provider of each kernel. The timed runs have no profile.
                self._read_profile(session.end_profiling())
        outputs = _flat(dict(zip(names, answers)))  # noqa: B905 - Python 3.9
        expected = {name: _load(self.kit / file) for name, file in feed["outputs"].items()}
        files = {}
        of = f"candidate-{self.number}-" if self.number else ""
        for number, name in enumerate(expected):
            if name in outputs:
                file = f"outputs/{of}{index}-{number}.npy"
                (self.folder / file).parent.mkdir(exist_ok=True)
                array = np.asarray(outputs[name])
                array = array.astype(str) if array.dtype.kind == "O" else array
                np.save(self.folder / file, array, allow_pickle=False)
                files[name] = file
        groups = [OutputGroup(**{**group, "names": tuple(group["names"])}) for group in self.manifest["groups"]]
        tolerance = Tolerance(**self._of(self.number)["tolerances"][kind])
        measured = compare_outputs(groups, expected, outputs, tolerance, self.manifest.get("noise"))
        facts = {"outputs": files, "missing": [n for n in expected if n not in outputs]}
        times = {"first_seconds": seconds[0], "seconds": seconds[warm:]}
        self.state["feeds"].append({**facts, **times, "metrics": [asdict(one) for one in measured]})

    def _read_profile(self, path: str) -> None:
        """Record the number of kernels by provider, and the slowest kernels.

        A fused DirectML partition is one kernel.
        """
        try:
            events = json.loads(Path(path).read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError, RecursionError):  # truncated; the record of nodes, if any, has the same facts
            return
        kernels = [e for e in events if e.get("cat") == "Node" and e.get("name", "").endswith("_kernel_time")]
        counted = Counter(str(e.get("args", {}).get("provider", "?")) for e in kernels)
        slowest = sorted(kernels, key=lambda e: -int(e.get("dur", 0)))[:10]
        self.state["session"]["kernels"] = dict(counted)
        self.state["session"]["slowest"] = [
            f"{e['name'][: -len('_kernel_time')]} ({e.get('args', {}).get('provider', '?')}): {e.get('dur', 0)} us"
            for e in slowest
        ]


class _Runner:
    """One model that is timed, with its session and its inputs."""

    def __init__(self, session: Any, inputs: Mapping[str, object]) -> None:
        self._session, self._inputs = session, inputs
        self._names = [value.name for value in session.get_outputs()]

    def _run(self) -> float:
        began = time.perf_counter()
        self._session.run(self._names, self._inputs)
        return time.perf_counter() - began

    def warmed_up(self) -> float:
        """Run the model a few times to warm it up, and return the seconds of the fastest run."""
        return min([self._run() for _ in range(4)][1:])

    def turn(self, length: float) -> list[float]:
        """Run the model for ``length`` seconds, at most 256 times, and return the seconds of each run.

        The first run, which refills the caches, is not included.
        """
        self._run()
        ends, durations = time.perf_counter() + length, [self._run()]
        while time.perf_counter() < ends and len(durations) < 256:
            durations.append(self._run())
        return [round(seconds, 7) for seconds in durations]


def _feeds(kit: Path, feed: Mapping[str, Any], session: Any) -> dict[str, object]:
    """Return the inputs of one feed as arrays by name, in the floating-point types of the session.

    Models of one kit differ in these types.
    """
    kinds = {"tensor(float16)": "float16", "tensor(float)": "float32"}
    wanted = {value.name: kinds.get(value.type, "") for value in session.get_inputs()}
    arrays = {}
    for name, file in feed["inputs"].items():
        array = _load(kit / file)
        kind = wanted.get(name, "")
        arrays[name] = array.astype(kind) if kind and array.dtype.kind == "f" else array
    return arrays


def _load(path: Path) -> Any:
    import numpy as np

    array = np.load(path, allow_pickle=False)
    return array.astype(object) if array.dtype.kind == "U" else array


def _flat(outputs: Mapping[str, object]) -> dict[str, Any]:
    """Return a copy of the outputs in which every value is an array.

    Items of a sequence become ``name[0]`` ..., its length ``name (length)``. An empty optional becomes an empty array.
    """
    import numpy as np

    flat: dict[str, object] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            flat[f"{name} (length)"] = np.array(len(value))
            flat.update({f"{name}[{i}]": item for i, item in enumerate(value)})
        else:
            flat[name] = np.empty(0) if value is None else np.asarray(value)
    return flat


def main(kit: Path, folder: Path) -> int:
    """Run a kit as ``request.json`` in ``folder`` describes it; return 0, even if the model fails.

    Standard input is a pipe that closes when the parent ends.
    """
    process.no_crash_dialog()
    process.watch_parent()
    memory.die_with_parent(os.getppid())  # on Linux, also while a library blocks the watching thread
    Work(kit, folder, json.loads((folder / "request.json").read_text(encoding="utf-8"))).run()
    return 0
