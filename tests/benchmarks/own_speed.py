"""dmlprep's own time: ``prepare`` without the proof, or ``check``, compared with onnx's load and save; ``check``, or
``prepare`` with the proof on the CPU, compared with another checkout's.

    python -m tests.benchmarks.own_speed minilm.onnx:batch=2,sequence=64 resnet50.onnx:batch=1 ...
    python -m tests.benchmarks.own_speed --check --against ../old fixtures/models/bert_encoder.onnx ...
    python -m tests.benchmarks.own_speed --proof --against ../old fixtures/models/residual_cnn.onnx:N=1 ...
    python -m tests.benchmarks.own_speed --large 5

Whole processes are timed, Python's start and all imports included, in turn with the other: one pair after the other,
so that both meet the same machine. The ratio is the median of the pairs'. Processor seconds are of the process and all
that it started, and stand on a busy machine, where wall seconds do not. Python's compiled files are kept, as they are
where a package was installed by pip.

``--large`` makes an FP32 model of so many GB with its weights in a data file (random numbers, seeded), prepares it, and
removes all of it. Memory is what the process and all that it started hold at once, looked at every 50 ms: their private
memory, and with it their share of mapped files, which the system takes back when it needs room. Linux only.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]

_NO_PROOF = ("--device", "cpu", "--set", "parity.cpu=false", "--set", "parity.fp16_emulation=off")
_LOAD_SAVE = "import onnx, sys; onnx.save(onnx.load(sys.argv[1]), sys.argv[2])"

_WIDTH, _INNER = 2048, 8192
"""Sizes of the large model's layers; two matrices of 64 MiB each."""


@dataclass(frozen=True)
class Cost:
    """What a process and all that it started took: seconds by the clock and of processors."""

    wall: float
    cpu: float


@dataclass
class Peak:
    """The most that a process and all that it started held at once, in MiB: privately, and with mapped files."""

    private: float = 0.0
    mapped: float = 0.0


def run(command: Sequence[str], folder: Path, root: Path = ROOT, peak: Peak | None = None) -> Cost:
    """Run a command to its end.

    Args:
        folder: where Python keeps its compiled files.
        root: the checkout whose dmlprep it imports.
        peak: filled in where it is given.

    Raises:
        subprocess.CalledProcessError: it ends with another exit code than 0.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": str(folder / "compiled" / root.name)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if peak is not None:
        threading.Thread(target=_watch, args=(process, peak), daemon=True).start()
    said, _ = process.communicate()
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        print(said, file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, command, said)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _watch(process: subprocess.Popen[str], peak: Peak) -> None:
    while process.poll() is None:
        held = [_held(pid) for pid in _family(process.pid)]
        peak.private = max(peak.private, sum(private for private, _ in held) / 1024)
        peak.mapped = max(peak.mapped, sum(mapped for _, mapped in held) / 1024)
        time.sleep(0.05)


def _family(leader: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
        except (OSError, ValueError, IndexError):
            continue  # it has ended
    found, waiting = [], [leader]
    while waiting:
        found.append(pid := waiting.pop())
        waiting += children.get(pid, [])
    return found


def _held(pid: int) -> tuple[int, int]:
    """KiB of private memory, and of that with the process's share of mapped files (proc(5), smaps_rollup)."""
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {name: int(rest.split()[0]) for name, _, rest in (row.partition(":") for row in rows)}
        return sizes["Pss_Anon"] + sizes["Pss_Shmem"], sizes["Pss"]
    except (OSError, KeyError, ValueError):
        return 0, 0


def prepare_command(model: Path, out: Path, sizes: Sequence[str], recipe: str) -> list[str]:
    """``prepare`` with all steps and without the proof."""
    pins = [word for size in sizes for word in ("--pin", size)]
    line = [sys.executable, "-m", "dmlprep", "prepare", str(model), "-o", str(out), "-r", recipe]
    return [*line, *pins, "--force", *_NO_PROOF]


def paired(one: Callable[[], Cost], other: Callable[[], Cost], rounds: int) -> list[tuple[Cost, Cost]]:
    """Both in turn, the first run of each not counted."""
    one()
    other()
    return [(one(), other()) for _ in range(rounds)]


def row(name: str, pairs: Sequence[tuple[Cost, Cost]]) -> str:
    """A line of the table: medians, and the median of the ratios of the pairs."""
    cells = [
        statistics.median(getattr(pair[side], kind) for pair in pairs) for kind in ("wall", "cpu") for side in (0, 1)
    ]
    ratios = [statistics.median(getattr(b, kind) / getattr(a, kind) for a, b in pairs) for kind in ("wall", "cpu")]
    wall, cpu = (
        f"{cells[0]:.2f} | {cells[1]:.2f} | {ratios[0]:.2f}",
        f"{cells[2]:.2f} | {cells[3]:.2f} | {ratios[1]:.2f}",
    )
    return f"| {name} | {wall} | {cpu} |"


def _head(one: str, other: str) -> str:
    cells = [f"{name}, {kind}" for kind in ("s", "processor s") for name in (one, other, "ratio")]
    return f"| model | {' | '.join(cells)} |\n|{'---|' * 7}"


def prepares(models: Sequence[str], folder: Path, rounds: int, recipe: str) -> None:
    """Print the table of ``prepare`` beside load and save."""
    print(_head("load + save", "prepare"))
    for text in models:
        path, _, sizes = text.partition(":")
        model = Path(path).resolve()
        line = prepare_command(model, folder / "out", sizes.split(",") if sizes else [], recipe)
        copy = [sys.executable, "-c", _LOAD_SAVE, str(model), str(folder / "copy.onnx")]
        pairs = paired(lambda copy=copy: run(copy, folder), lambda line=line: run(line, folder), rounds)  # type: ignore[misc]
        print(row(model.stem, pairs), flush=True)


def checks(models: Sequence[str], folder: Path, rounds: int, other: Path | None) -> None:
    """Print the table of ``check`` compared with another checkout's, or with load and save."""
    print(_head("there" if other else "load + save", "here" if other else "check"))
    for text in models:
        model = Path(text.partition(":")[0]).resolve()
        line = [sys.executable, "-m", "dmlprep", "check", str(model)]
        copy = [sys.executable, "-c", _LOAD_SAVE, str(model), str(folder / "copy.onnx")]
        pairs = paired(
            lambda line=line, copy=copy: run(line, folder, other.resolve()) if other else run(copy, folder),  # type: ignore[misc]
            lambda line=line: run(line, folder),  # type: ignore[misc]
            rounds,
        )
        print(row(model.stem, pairs), flush=True)


def proofs(models: Sequence[str], folder: Path, rounds: int, other: Path, recipe: str) -> None:
    """Print the table of ``prepare`` with the proof on the CPU, in this checkout beside another's."""
    print(_head("there", "here"))
    for text in models:
        path, _, sizes = text.partition(":")
        line = prepare_command(Path(path).resolve(), folder / "out", sizes.split(",") if sizes else [], recipe)
        whole = [*line[: -len(_NO_PROOF)], "--device", "cpu"]
        pairs = paired(
            lambda whole=whole: run(whole, folder, other.resolve()),  # type: ignore[misc]
            lambda whole=whole: run(whole, folder),  # type: ignore[misc]
            rounds,
        )
        print(row(Path(path).stem, pairs), flush=True)


def make_large(path: Path, nbytes: int) -> int:
    """Write a network of matrix products, sums and Relu with a free batch; its weights go to ``path`` + ``.data``.

    Returns:
        bytes of its weights.
    """
    rng = np.random.default_rng(0)
    block = (rng.standard_normal((_WIDTH, _INNER), np.float32) * 0.02).astype(np.float32)
    layers = max(1, round(nbytes / (2 * block.nbytes)))
    nodes, weights, value = [], [], "x"
    with open(path.with_name(path.name + ".data"), "wb") as data:
        for layer in range(layers):
            for part, shape in (("up", (_WIDTH, _INNER)), ("down", (_INNER, _WIDTH))):
                name = f"layer.{layer}.{part}"
                tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
                tensor.data_location = TensorProto.EXTERNAL
                facts = {"location": path.name + ".data", "offset": data.tell(), "length": block.nbytes}
                for key, fact in facts.items():
                    tensor.external_data.add(key=key, value=str(fact))
                weights.append(tensor)
                np.roll(block, layer * 7 + len(part), axis=1).tofile(data)
            up, active, down, total = (f"{layer}.{word}" for word in ("up", "active", "down", "sum"))
            nodes += [
                helper.make_node("MatMul", [value, f"layer.{layer}.up"], [up], name=f"up{layer}"),
                helper.make_node("Relu", [up], [active], name=f"relu{layer}"),
                helper.make_node("MatMul", [active, f"layer.{layer}.down"], [down], name=f"down{layer}"),
                helper.make_node("Add", [value, down], [total], name=f"add{layer}"),
            ]
            value = total
    nodes.append(helper.make_node("Identity", [value], ["y"], name="end"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", _WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "large", [ends[0]], [ends[1]], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return 2 * layers * block.nbytes


def large(gigabytes: float, folder: Path, recipe: str, *, proof: bool) -> None:
    """Print time and memory of ``prepare`` of a large model, and with ``proof`` of the whole run."""
    model = folder / "large.onnx"
    nbytes = make_large(model, int(gigabytes * 1e9))
    print(f"{nbytes / 1e9:.2f} GB of weights, {recipe}")
    print("| what | s | processor s | MiB, private | MiB, with mapped files |\n|---|---|---|---|---|")
    line = prepare_command(model, folder / "out", ["batch=1"], recipe)
    whole = [*line[: -len(_NO_PROOF)], "--device", "cpu"]
    for name, command in (("all steps", line), *([("with the proof", whole)] if proof else [])):
        peak = Peak()
        cost = run(command, folder, peak=peak)
        print(f"| {name} | {cost.wall:.1f} | {cost.cpu:.1f} | {peak.private:.0f} | {peak.mapped:.0f} |", flush=True)
        shutil.rmtree(folder / "out")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="*", help="MODEL.onnx, or MODEL.onnx:name=size,... for sizes to pin")
    parser.add_argument("--rounds", type=int, default=5, help="pairs that are counted")
    parser.add_argument("--recipe", default="@static-fp32")
    parser.add_argument("--check", action="store_true", help="time check, not prepare")
    parser.add_argument("--against", type=Path, help="a checkout whose check, or prepare with --proof, is the other")
    parser.add_argument("--large", type=float, help="GB of a model to be made, prepared and removed")
    parser.add_argument("--proof", action="store_true", help="with the proof on the CPU: --large, --against")
    parser.add_argument("--folder", type=Path, help="where files are made; on the disk that is to be measured")
    asked = parser.parse_args()
    if asked.proof and not asked.large and asked.against is None:
        parser.error("--proof needs --against")
    print(
        f"dmlprep of {ROOT.name}, onnx {onnx.__version__}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        if asked.large:
            large(asked.large, folder, asked.recipe, proof=asked.proof)
        elif asked.proof:
            proofs(asked.models, folder, asked.rounds, asked.against, asked.recipe)
        elif asked.check:
            checks(asked.models, folder, asked.rounds, asked.against)
        else:
            prepares(asked.models, folder, asked.rounds, asked.recipe)


if __name__ == "__main__":
    main()
