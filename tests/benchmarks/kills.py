"""Commands that are ended at random moments: by SIGKILL, SIGTERM, Ctrl-C and a closed terminal.

    python -m tests.benchmarks.kills                                 # 100, 50, 50 and 20 times
    python -m tests.benchmarks.kills --kill 10 --term 5 --int 5 --hup 0 --only endless --seed 3
    python -m tests.benchmarks.kills --no-dml                        # where the runtime is installed, without it

After each signal three things must hold: no process of the command lives two seconds later; no output is half a result;
and after the next start of any command nothing is left, neither in the folder for temporary files nor beside the
output. After a signal that can be answered nothing may be left even before that. Prints each failure with the seed and
the number of its trial, and ends with 1 where there is one. Linux only: orphans become children of this process.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.genai import decoders

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures" / "models"

LIMIT = 2.0
"""Seconds after the signal when nothing may live any more."""

_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT, "hup": signal.SIGHUP}
_PICTURES = 20
_ENDLESS, _ENDLESS_DML = 6.0, 15.0
"""Seconds within which a command that never ends is ended."""

_OPSET = [helper.make_opsetid("", 17)]

Complete = Callable[[Path], str]
"""What is wrong with the output that a stopped command left; empty where it is all of one result, or none."""


@dataclass(frozen=True)
class Job:
    """One command line; ``{out}`` stands for its output, ``{work}`` for the folder of the models.

    Attributes:
        complete: judges the output.
        old: the output that is there before, by its name in the folder of the models; replaced by the command.
        endless: whether it never ends by itself.
        again: where only the same command sweeps what it left, the name of the output of a second run.
        keeps: how the names of hidden files begin that stay beside the results of every run.
        seconds: how long it takes; measured before the trials.
    """

    name: str
    line: tuple[str, ...]
    complete: Complete
    old: str = ""
    endless: bool = False
    dml: bool = False
    again: str = ""
    keeps: str = ""
    program: tuple[str, ...] = (sys.executable, "-m", "dmlprep")
    seconds: float = _ENDLESS


@dataclass
class Outcome:
    """What one trial showed."""

    job: str
    signal: str
    after: float
    code: int = 0
    gone: float = 0.0
    wrong: list[str] = field(default_factory=list)


# ---- outputs -------------------------------------------------------------------------------------------------------


def _prepared(out: Path) -> str:
    """A folder of ``prepare``: model and record of one run."""
    model, record = out / "model.onnx", out / "run.json"
    if not model.exists():
        return ""  # without the model there is no result; what lies aside is judged after the next start
    if not record.exists():
        return "a model without its record"
    said = json.loads(record.read_bytes())["output_sha256"]
    return "" if hashlib.sha256(model.read_bytes()).hexdigest() == said else "model and record are of two runs"


def _zip(out: Path) -> str:
    if not out.exists():
        return ""
    with zipfile.ZipFile(out) as archive:
        return f"the zip's {bad} is broken" if (bad := archive.testzip()) else ""


def _feeds(out: Path) -> str:
    """A folder of feeds, of which the first is the head of the set."""
    found = sorted(out.glob("*.npz"))
    if len(found) not in (0, _PICTURES) and found[0].name == "000.npz":
        return f"{len(found)} of {_PICTURES} feeds"
    return "".join(_zip(path) for path in found)


def _html(out: Path) -> str:
    return "" if not out.exists() or out.read_bytes().rstrip().endswith(b"</html>") else "half an HTML file"


def _reproduction(out: Path) -> str:
    names = ("node.onnx", "inputs.npz", "expected.npz", "reproduce.py", "issue.md")
    there = [name for name in names if (out / name).exists()]
    return f"only {', '.join(there)}" if names[0] in there and len(there) < len(names) else ""


def _folder(out: Path) -> str:
    """A prepared language model: every file is that of the record."""
    record = out / "run.json"
    if not record.exists():
        return "a model without its record" if (out / "genai_config.json").exists() else ""
    written = json.loads(record.read_bytes())["facts"]["genai"]["written"]
    wrong = [name for name, digest in written.items() if _digest(out / name) != digest]
    return f"{', '.join(wrong)} not as the record says" if wrong else ""


def _package(out: Path) -> str:
    """A package: every file is that of the contract."""
    contract = out / "model.json"
    if not contract.exists():
        return ""  # without it there is no package
    files = json.loads(contract.read_bytes())["files"]
    wrong = [name for name, one in files.items() if _digest(out / name) != one["sha256"]]
    return f"{', '.join(wrong)} not as the contract says" if wrong else ""


def _fleet(out: Path) -> str:
    """Results of jobs, each whole, and reports of all or none."""
    there = {path.parent for path in out.rglob("model.onnx") if not path.parent.name.startswith(".")}
    wrong = [f"{folder.name}: {said}" for folder in there if (said := _prepared(folder))]
    if (out / "fleet.json").exists():
        json.loads((out / "fleet.json").read_bytes())
    return "; ".join(wrong)


def _recipe(out: Path) -> str:
    return "" if not out.exists() or tomllib.loads(out.read_text(encoding="utf-8")) else "an empty recipe"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"


def _nothing(out: Path) -> str:
    return ""


# ---- what is run -----------------------------------------------------------------------------------------------------


def _loop(rounds: int) -> onnx.ModelProto:
    one = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Mul", ["v", "half"], ["w"]),
            helper.make_node("Add", ["w", "half"], ["z"]),
        ],
        "body",
        [one("i", TensorProto.INT64, []), one("go", TensorProto.BOOL, []), one("v", TensorProto.FLOAT, [4])],
        [one("on", TensorProto.BOOL, []), one("z", TensorProto.FLOAT, [4])],
    )
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Loop", ["n", "true", "r"], ["y"], body=body)],
        "rounds",
        [one("x", TensorProto.FLOAT, [4])],
        [one("y", TensorProto.FLOAT, [4])],
        [
            numpy_helper.from_array(np.array(rounds, np.int64), "n"),
            numpy_helper.from_array(np.array(True), "true"),
            numpy_helper.from_array(np.array(0.5, np.float32), "half"),
        ],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=_OPSET)


_FLEET = """
device = "cpu"

[models."cnn.onnx"]
recipes = ["@static-fp32", "@vision-fp16"]
pins = { batch = 1 }

[models."unet.onnx"]
"""


def _models(work: Path) -> None:
    """The models: a Loop of 2^62 rounds and one of two, a network of 100 MB, and two small ones that differ."""
    onnx.save(_loop(2**62), work / "endless.onnx")
    onnx.save(_loop(2), work / "short.onnx")
    shutil.copy(FIXTURES / "residual_cnn.onnx", work / "cnn.onnx")
    shutil.copy(FIXTURES / "diffusion_unet.onnx", work / "unet.onnx")
    proto = onnx.load(work / "cnn.onnx")
    node = next(n for n in proto.graph.node if n.op_type == "Relu")
    node.op_type = "Sigmoid"
    onnx.save(proto, work / "other.onnx")
    decoders.folder(work / "genai")
    (work / "dmlprep.toml").write_text(_FLEET)
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((1024, 1024), np.float32) / 32, f"w{i}") for i in range(24)]
    nodes = [helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"]) for i in range(24)]
    one = helper.make_tensor_value_info
    inputs, outputs = [one("h0", TensorProto.FLOAT, [64, 1024])], [one("h24", TensorProto.FLOAT, [64, 1024])]
    chain = helper.make_graph(nodes, "chain", inputs, outputs, weights)
    onnx.save(helper.make_model(chain, ir_version=8, opset_imports=_OPSET), work / "chain.onnx")


def _jobs() -> list[Job]:
    fp16 = ("-r", "@vision-fp16", "-p", "batch=1")
    cpu = ("--device", "cpu")
    dml = ("--device", "dml")
    return [
        Job("prepare", ("prepare", "{work}/cnn.onnx", "-o", "{out}", *fp16, *cpu), _prepared),
        Job("prepare large", ("prepare", "{work}/chain.onnx", "-o", "{out}", "-r", "@vision-fp16", *cpu), _prepared),
        Job(
            "prepare over",
            ("prepare", "{work}/cnn.onnx", "-o", "{out}", "--force", *fp16, *cpu),
            _prepared,
            old="prepared",
        ),
        Job("prepare endless", ("prepare", "{work}/endless.onnx", "-o", "{out}", *cpu), _prepared, endless=True),
        Job("check", ("check", "{work}/unet.onnx"), _nothing),
        Job("plan", ("check", "--plan", "{work}/cnn.onnx", "-p", "batch=1"), _nothing),
        Job("compare", ("compare", "{work}/cnn.onnx", "{work}/prepared/model.onnx", *cpu), _nothing),
        Job("compare endless", ("compare", "{work}/short.onnx", "{work}/endless.onnx", *cpu), _nothing, endless=True),
        Job(
            "bisect",
            ("bisect", "{work}/cnn.onnx", "{work}/other.onnx", "-o", "{out}", "--size", "batch=1"),
            _reproduction,
        ),
        Job("feeds", ("feeds", "{work}/cnn.onnx", "{work}/pictures", "-o", "{out}"), _feeds),
        Job("kit", ("kit", "pack", "{work}/prepared/model.onnx", "-o", "{out}.zip"), _zip),
        Job(
            "kit run",
            ("{work}/kit/run.py", "--provider", "CPUExecutionProvider", "--runs", "400", "-o", "{out}.zip"),
            _zip,
            program=(sys.executable,),
            again="again",
        ),
        Job("kit verify", ("kit", "verify", "{work}/result.zip", "--kit", "{work}/kit.zip"), _nothing),
        Job("bench", ("bench", "{work}/cnn.onnx", "--size", "batch=1", "--seconds", "300"), _nothing, endless=True),
        Job("tune", ("tune", "{work}/cnn.onnx", "-p", "batch=1", "-o", "{out}.toml", "--top", "1", *cpu), _recipe),
        Job(
            "fleet",
            ("fleet", "{work}/dmlprep.toml", "-o", "{out}", "--jobs", "2"),
            _fleet,
            again="out",
            keeps=".dmlprep-fleet",
        ),
        Job(
            "package", ("package", "pack", "{work}/prepared", "-o", "{out}", "--for", "python", "--unproven"), _package
        ),
        Job("genai prepare", ("genai", "prepare", "{work}/genai", "-o", "{out}", *cpu), _folder),
        Job("genai compare", ("genai", "compare", "{work}/genai", "{work}/genai"), _nothing),
        Job("check-node", ("check", "{work}/unet.onnx", "--node", "Conv_88"), _nothing),
        Job("report", ("report", "{work}/prepared/run.json", "--html", "{out}.html"), _html),
        Job("doctor", ("doctor",), _nothing),
        Job("check on dml", ("check", "{work}/cnn.onnx", "--verify"), _nothing, dml=True),
        Job(
            "prepare on dml",
            ("prepare", "{work}/cnn.onnx", "-o", "{out}", *fp16, *dml, "--require-dml"),
            _prepared,
            dml=True,
        ),
        Job(
            "compare endless on dml",
            ("compare", "{work}/short.onnx", "{work}/endless.onnx", *dml),
            _nothing,
            endless=True,
            dml=True,
            seconds=_ENDLESS_DML,
        ),
        Job(
            "bisect on dml",
            ("bisect", "{work}/cnn.onnx", "{work}/other.onnx", *dml, "--size", "batch=1"),
            _nothing,
            dml=True,
        ),
    ]


class Bench:
    """The folder of the models, and what is done with a command."""

    def __init__(self, work: Path, dml: bool) -> None:
        self.work = work
        self.number = 0
        self.environment = {k: v for k, v in os.environ.items() if k not in ("TMPDIR", "TEMP", "TMP")}
        self.environment["PYTHONPATH"] = str(ROOT)
        if not dml:
            self.environment["XDG_CACHE_HOME"] = str(work / "no-runtime")

    def start(self, job: Job, out: Path, temporary: Path) -> subprocess.Popen[bytes]:
        line = [*job.program, *(part.format(out=out, work=self.work) for part in job.line)]
        with (temporary.parent / "said").open("wb") as said:
            return subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**self.environment, "TMPDIR": str(temporary)},
                start_new_session=True,
                cwd=temporary.parent,
            )

    def folders(self, job: Job) -> tuple[Path, Path]:
        """A fresh folder for the output, and one for temporary files."""
        self.number += 1
        home = self.work / "trials" / str(self.number)
        (home / "tmp").mkdir(parents=True)
        (home / "place").mkdir()
        out = home / "place" / "out"
        if job.old:
            shutil.copytree(self.work / job.old, out)
        return out, home / "tmp"

    def whole(self, job: Job) -> float:
        """Seconds that the command takes when nobody ends it."""
        out, temporary = self.folders(job)
        began = time.monotonic()
        code = self.start(job, out, temporary).wait(300)
        took = time.monotonic() - began
        said = (temporary.parent / "said").read_text(errors="replace")
        if code not in (0, 1):
            sys.exit(f"{job.name}: exit code {code} without a signal: {said}")
        if (left := [*temporary.iterdir()]) or (hidden := _hidden(job, out)):
            sys.exit(f"{job.name}: leaves {left or hidden} without a signal")
        return took

    def trial(self, job: Job, name: str, after: float) -> Outcome:
        """Run the command, end it after so many seconds, and look at what is left."""
        found = Outcome(job.name, name, after)
        out, temporary = self.folders(job)
        process = self.start(job, out, temporary)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after)
        sent = time.monotonic()
        if process.poll() is None:
            # A terminal tells the whole group.
            (os.killpg if name in ("int", "hup") else os.kill)(process.pid, _SIGNALS[name])
        self._watch(process, sent, found)
        found.code = process.returncode
        said = (temporary.parent / "said").read_text(errors="replace")
        if found.code not in _codes(name) and found.code not in (0, 1):
            found.wrong.append(f"exit code {found.code}: {said[-300:]}")
        if wrong := _judge(job, out):
            found.wrong.append(wrong)
        # Before its handlers stand a process ends without a word, but then nothing was begun.
        if name != "kill":
            found.wrong += self._left(job, out, temporary, "at once")
        self._next_start(job, out, temporary)
        found.wrong += self._left(job, out, temporary, "after the next start")
        if wrong := _judge(job, out):
            found.wrong.append(f"after the next start: {wrong}")
        if job.old and not (out / "model.onnx").exists():
            found.wrong.append("the old result is gone")
        if not found.wrong:
            shutil.rmtree(temporary.parent)
        return found

    def _watch(self, process: subprocess.Popen[bytes], sent: float, found: Outcome) -> None:
        while True:
            process.poll()
            living = _descendants(os.getpid(), process.pid)
            if not living:
                break
            if time.monotonic() - sent > LIMIT and not found.wrong:
                found.wrong.append(f"alive after {LIMIT:g} s: {'; '.join(living.values())}")
            if time.monotonic() - sent > 30:
                for pid in living:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        found.gone = time.monotonic() - sent
        process.wait(10)

    def _next_start(self, job: Job, out: Path, temporary: Path) -> None:
        if job.again:
            self.start(job, out.with_name(job.again), temporary).wait(300)
        line = [sys.executable, "-m", "dmlprep", "explain", "DP001"]
        environment = {**self.environment, "TMPDIR": str(temporary)}
        subprocess.run(line, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=120)

    def _left(self, job: Job, out: Path, temporary: Path, when: str) -> list[str]:
        left = [f"{p.name}: {sorted(q.name for q in p.rglob('*'))[:6]}" for p in temporary.iterdir()]
        wrong = [f"left {when} in the temporary folder: {left}"] if left else []
        if hidden := _hidden(job, out):
            wrong.append(f"left {when} beside the output: {hidden}")
        if out.is_dir() and not any(out.iterdir()):
            wrong.append(f"left {when}: an empty folder of the output")
        return wrong


def _judge(job: Job, out: Path) -> str:
    suffix = next((part[len("{out}") :] for part in job.line if part.startswith("{out}")), "")
    return job.complete(out.with_name(out.name + suffix))


def _hidden(job: Job, out: Path) -> list[str]:
    found = (p.name for p in out.parent.rglob("*") if p.name.startswith(".") or p.name.endswith(".part"))
    return sorted(name for name in found if not (job.keeps and name.startswith(job.keeps)))


def _codes(name: str) -> tuple[int, ...]:
    number = int(_SIGNALS[name])
    return (-number,) if name == "kill" else (-number, 128 + number)


def _descendants(root: int, known: int) -> dict[int, str]:
    """Living processes below one, with their command lines; orphans that are dead are waited for, ``known`` is not."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
                states[int(entry.name)] = fields[0]
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: dict[int, str] = {}
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            queue.append(pid)
            if states[pid] == "Z":
                if pid != known:
                    with contextlib.suppress(OSError):
                        os.waitpid(pid, os.WNOHANG)
                continue
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[pid] = f"{pid} {line[:120]}"
    return found


def _prepare_inputs(bench: Bench) -> None:
    """What some commands need of others: a prepared model, pictures, a kit and its result."""
    work = bench.work
    _models(work)
    (work / "pictures").mkdir()
    from PIL import Image

    for index in range(_PICTURES):
        pixels = np.random.default_rng(index).integers(0, 255, (480, 640, 3), np.uint8)
        Image.fromarray(pixels).save(work / "pictures" / f"{index}.png")

    def run(*line: str | Path) -> None:
        done = subprocess.run([*map(str, line)], env=bench.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{line}: {done.stdout}{done.stderr}")

    dmlprep = (sys.executable, "-m", "dmlprep")
    out = work / "prepared"
    run(*dmlprep, "prepare", work / "cnn.onnx", "-o", out, "-r", "@vision-fp16", "-p", "batch=1", "--device", "cpu")
    run(*dmlprep, "kit", "pack", out / "model.onnx", "-o", work / "kit.zip")
    with zipfile.ZipFile(work / "kit.zip") as archive:
        archive.extractall(work / "kit")
    run(sys.executable, work / "kit" / "run.py", "--provider", "CPUExecutionProvider", "-o", work / "result.zip")


def _plan(asked: argparse.Namespace, jobs: Sequence[Job]) -> list[tuple[Job, str, float]]:
    """The trials: each signal as often as asked, commands in turn, moments by the seed."""
    draw = random.Random(asked.seed)
    trials = []
    for name in _SIGNALS:
        for index in range(getattr(asked, name)):
            job = jobs[index % len(jobs)]
            trials.append((job, name, draw.uniform(0, job.seconds)))
    return trials


def main() -> int:
    """Run the trials; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in (("kill", 100), ("term", 50), ("int", 50), ("hup", 20)):
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N", help=f"trials with SIG{name.upper()}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="commands whose names have this")
    parser.add_argument("--no-dml", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every trial there")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # commands would inherit that it is ignored
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    from dmlprep.runtime import dml_status

    dml = not asked.no_dml and dml_status().available
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder), dml)
        _prepare_inputs(bench)
        jobs = []
        for job in _jobs():
            if asked.only in job.name and (dml or not job.dml):
                jobs.append(job if job.endless else Job(**{**job.__dict__, "seconds": bench.whole(job)}))
                print(f"{job.name}: {'endless' if job.endless else f'{jobs[-1].seconds:.1f} s'}", flush=True)
        found = []
        for number, (job, name, after) in enumerate(_plan(asked, jobs)):
            one = bench.trial(job, name, after)
            found.append(one)
            if one.wrong:
                print(f"trial {number} of seed {asked.seed}: {name} after {after:.2f} s of {job.name}:", flush=True)
                print("".join(f"    {text}\n" for text in one.wrong), end="", flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps([one.__dict__ for one in found], indent=1))
    for name in _SIGNALS:
        mine = [one for one in found if one.signal == name]
        if mine:
            gone = sorted(one.gone for one in mine)
            codes = ", ".join(f"{code}: {count}" for code, count in sorted(Counter(o.code for o in mine).items()))
            print(
                f"SIG{name.upper()}: {len(mine)} trials, {sum(bool(o.wrong) for o in mine)} wrong; all gone after "
                f"{gone[len(gone) // 2]:.2f} s (median), {gone[-1]:.2f} s (most); exit codes {codes}"
            )
    return 1 if any(one.wrong for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
