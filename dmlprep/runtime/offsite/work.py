"""The half of the runner that may die: loads the model, runs the feeds, keeps the outputs, notes each stage first."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dmlprep.files.replacing import replace
from dmlprep.processes import process
from dmlprep.runtime import memory
from dmlprep.runtime.hresult import diagnose, error_text, plain_text
from dmlprep.runtime.offsite import device
from dmlprep.runtime.ortoptions import adapter_number

__all__ = ["DML", "STATE", "main"]

STATE = "state.json"
DML = "DmlExecutionProvider"


class Work:
    """One run of a kit, noted in ``state.json`` before and after each stage, so that a crash leaves the last word.

    Args:
        kit: folder of the kit.
        folder: where state, profile and outputs go.
        asked: provider, runs, warm_up and session options.
    """

    def __init__(self, kit: Path, folder: Path, asked: Mapping[str, Any]) -> None:
        self.kit = kit
        self.folder = folder
        self.asked = asked
        self.manifest: dict[str, Any] = json.loads((kit / "kit.json").read_text(encoding="utf-8"))
        self.state: dict[str, Any] = {
            "stage": "start",
            "outcome": "",
            "system": device.machine_facts(),
            "device": {},
            "session": {},
            "feeds": [],
        }

    def note(self, stage: str, **facts: Any) -> None:
        """Write the state, whole or not at all."""
        self.state.update(facts, stage=stage)
        part = self.folder / (STATE + ".part")
        part.write_text(json.dumps(self.state), encoding="utf-8")
        replace(part, self.folder / STATE)

    def run(self) -> None:
        """All stages. What ONNX Runtime refuses is noted with its HRESULT; it does not raise."""
        self.note("import onnxruntime")
        try:
            import numpy
            import onnxruntime
        except Exception as error:
            self._not_run(f"{error_text(error)}: pip install numpy onnxruntime-directml")
            return
        self.state["system"].update(numpy=numpy.__version__, onnxruntime=onnxruntime.__version__)
        available = onnxruntime.get_available_providers()
        self.state["session"]["available"] = available
        provider = self.asked["provider"]
        if provider not in available:
            self._not_run(
                f"onnxruntime {onnxruntime.__version__} has no {provider} (it has {', '.join(available)}): "
                "pip uninstall onnxruntime, pip install onnxruntime-directml"
            )
            return
        options = dict(self.asked["session"])
        if provider == DML:
            try:
                options = device.with_number(options)
            except (ValueError, OSError) as error:
                self._not_run(f"the kit asks for the adapter {options['adapter']!r}: {error}")
                return
            wrong, fix = device.session_problem(options)
            if wrong:
                self._not_run(f"{wrong}; {fix}")
                return
            # Before the session: where the driver crashes, the result still names the adapter.
            number = adapter_number(options)
            preferred = {"adapter": f"the {options.get('performance_preference')} adapter"}
            self.state["device"].update(preferred if number is None else device.adapter_facts(number))
        self.note("load the model")
        try:
            session = self._open(onnxruntime, options)
        except Exception as error:
            self._failed(error)
            return
        if provider not in session.get_providers():
            self._not_run(f"ONNX Runtime left {provider} out of the session; it has {session.get_providers()}")
            return
        kind = "dml" if provider == DML else "cpu"
        for index, feed in enumerate(self.manifest["feeds"]):
            self.note(f"run feed {index + 1}")
            try:
                self._feed(session, index, feed, kind)
            except Exception as error:
                self._failed(error)
                return
        self._judge()

    def _judge(self) -> None:
        session = self.state["session"]
        placed = session.get("kernels") or session.get("nodes", {})
        if self.asked["provider"] == DML and not placed.get(DML):
            self._not_run("DirectML took none of the nodes: this run says nothing about it")
            return
        wrong = [m["output"] for feed in self.state["feeds"] for m in feed["metrics"] if not m["passed"]]
        missing = [name for feed in self.state["feeds"] for name in feed["missing"]]
        if missing:
            self.note("done", outcome="failed", reason=f"the session has no output {missing[0]!r}")
        elif wrong:
            self.note("done", outcome="failed", reason=f"{wrong[0]} is not as expected")
        else:
            self.note("done", outcome="passed", reason="")

    def _not_run(self, reason: str) -> None:
        self.note("done", outcome="not-run", reason=reason)

    def _failed(self, error: BaseException) -> None:
        text = plain_text(error_text(error))
        stage = self.state["stage"]
        found = diagnose(text)
        failure = {"stage": stage, "message": text, "hresult": "", "causes": [], "next_step": ""}
        if found is not None:
            failure.update(hresult=str(found), causes=list(found.causes), next_step=found.next_step)
        reason = f"{stage}: {text.splitlines()[0] if text else type(error).__name__}"
        self.note("done", outcome="failed", reason=reason, failure=failure)

    def _open(self, ort: Any, chosen: Mapping[str, str]) -> Any:
        """A session with the option lines ``chosen``."""
        from dmlprep.runtime.ortoptions import providers, session_settings

        options = {**chosen, "cpu_fallback": "1", "profile": "1"}
        recorded = hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")
        if recorded:
            options["record_placement"] = "1"
        kind = "dml" if self.asked["provider"] == DML else "cpu"
        settings = ort.SessionOptions()
        session_settings(settings, options, kind, str(self.folder / "profile"), ort.GraphOptimizationLevel)
        model = str(self.kit / self.manifest["model"]["file"])
        began = time.perf_counter()
        # Else the package opens the session anew on the CPU, and replaces the provider's error by one of its own.
        session = ort.InferenceSession(model, settings, providers=providers(options, kind), enable_fallback=False)
        self.state["session"].update(
            options=dict(self.asked["session"]),
            providers=session.get_providers(),
            load_seconds=round(time.perf_counter() - began, 4),
        )
        if kind == "dml":
            # After the session: now the libraries that it uses are loaded.
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

    def _feed(self, session: Any, index: int, feed: Mapping[str, Any], kind: str) -> None:
        import numpy as np

        from dmlprep.metrics.comparison import OutputGroup, compare_outputs
        from dmlprep.metrics.measure import Tolerance

        inputs = {name: _load(self.kit / file) for name, file in feed["inputs"].items()}
        names = [value.name for value in session.get_outputs()]
        seconds = []
        warm = max(1, int(self.asked["warm_up"]))
        answers: list[Any] = []
        for number in range(warm + max(1, int(self.asked["runs"]))):
            began = time.perf_counter()
            answers = session.run(names, inputs)
            seconds.append(round(time.perf_counter() - began, 6))
            if index == 0 and number == 0:
                # The profile of one run says who computed what; the timed runs go without.
                self._read_profile(session.end_profiling())
        outputs = _flat(dict(zip(names, answers)))  # noqa: B905 - Python 3.9
        expected = {name: _load(self.kit / file) for name, file in feed["outputs"].items()}
        kept = {}
        for number, name in enumerate(expected):
            if name in outputs:
                file = f"outputs/{index}-{number}.npy"
                (self.folder / file).parent.mkdir(exist_ok=True)
                array = np.asarray(outputs[name])
                array = array.astype(str) if array.dtype.kind == "O" else array
                np.save(self.folder / file, array, allow_pickle=False)
                kept[name] = file
        groups = [OutputGroup(**{**group, "names": tuple(group["names"])}) for group in self.manifest["groups"]]
        tolerance = Tolerance(**self.manifest["tolerances"][kind])
        measured = compare_outputs(groups, expected, outputs, tolerance, self.manifest.get("noise"))
        self.state["feeds"].append(
            {
                "outputs": kept,
                "missing": [n for n in expected if n not in outputs],
                "first_seconds": seconds[0],
                "seconds": seconds[warm:],
                "metrics": [asdict(one) for one in measured],
            }
        )

    def _read_profile(self, path: str) -> None:
        """Kernels by provider, and the slowest of them. A fused DirectML partition is one kernel."""
        try:
            events = json.loads(Path(path).read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError):  # a profile cut short; the record of nodes, where there is one, says it too
            return
        kernels = [e for e in events if e.get("cat") == "Node" and e.get("name", "").endswith("_kernel_time")]
        counted = Counter(str(e.get("args", {}).get("provider", "?")) for e in kernels)
        slowest = sorted(kernels, key=lambda e: -int(e.get("dur", 0)))[:10]
        self.state["session"]["kernels"] = dict(counted)
        self.state["session"]["slowest"] = [
            f"{e['name'][: -len('_kernel_time')]} ({e.get('args', {}).get('provider', '?')}): {e.get('dur', 0)} us"
            for e in slowest
        ]


def _load(path: Path) -> Any:
    import numpy as np

    array = np.load(path, allow_pickle=False)
    return array.astype(object) if array.dtype.kind == "U" else array


def _flat(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs as arrays: items of a sequence are ``name[0]`` ..., an empty optional is empty."""
    import numpy as np

    flat: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            flat[f"{name} (length)"] = np.array(len(value))
            flat.update({f"{name}[{i}]": item for i, item in enumerate(value)})
        else:
            flat[name] = np.empty(0) if value is None else np.asarray(value)
    return flat


def main(kit: Path, folder: Path) -> int:
    """Run a kit; ``request.json`` in ``folder`` says how. The standard input is a pipe that closes with the parent."""
    process.no_crash_dialog()
    process.watch_parent()
    memory.die_with_parent(os.getppid())  # on Linux, also while a library does not let the watch run
    Work(kit, folder, json.loads((folder / "request.json").read_text(encoding="utf-8"))).run()
    return 0
