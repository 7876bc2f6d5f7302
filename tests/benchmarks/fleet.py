"""A fleet of 30 jobs of real models: how long it takes, what a second run takes, and what a kill leaves.

python -m tests.benchmarks.fleet             30 jobs, again, killed with -9 in the middle, one refused
python -m tests.benchmarks.fleet --memory    peak of private memory of a job, by the size of its model
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from dmlprep.core.text.documents import toml_key
from dmlprep.fleet.needs import memory_needed, model_bytes
from dmlprep.portable.memory import Family
from dmlprep.runtime import dml_status
from tests.fixtures_index import FOLDER, fixture

GOOD = (
    "residual_cnn", "half_cnn", "super_resolution", "unet_resize", "detector_raw", "depthwise_cnn", "residual_mlp_deep",
    "unnamed_nodes", "opset22_cnn",
)  # fmt: skip
LAST = "mlp_anonymous"
"""Nine models with three jobs each; a tenth has two, and one that is refused has one."""

TEXT = """
out = "build"
device = "cpu"
targets = ["ort-1.20", "ort-1.24", "ort-1.30"]
[models."models/wrong_type.onnx"]
target = "ort-1.30"
"""


def text() -> str:
    """The file: each model with the sizes that its index has."""
    tables = [TEXT]
    for name in (*GOOD, LAST):
        pins = ", ".join(f"{toml_key(dim)} = {size}" for dim, size in fixture(name).pins.items())
        tables.append(f'[models."models/{name}.onnx"]\npins = {{ {pins} }}\n')
    return "".join([*tables, 'targets = ["ort-1.24", "ort-1.30"]\n'])


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        place = Path(name)
        (place / "models").mkdir()
        for model in (*GOOD, LAST):
            shutil.copy(FOLDER / f"models/{model}.onnx", place / "models")
        shutil.copy(FOLDER / "broken/wrong_type.onnx", place / "models")
        (place / "dmlprep.toml").write_text(text())
        yield place


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dmlprep", "fleet", *arguments]


def run(place: Path, *arguments: str) -> tuple[float, int, dict[str, int]]:
    """Seconds, exit code, and how many jobs of each outcome."""
    began = time.perf_counter()
    done = subprocess.run(command("-q", *arguments), cwd=place, stdout=subprocess.DEVNULL, check=False)
    seconds = time.perf_counter() - began
    jobs = json.loads((place / "build/fleet.json").read_text())["jobs"]
    words = [job["outcome"] + (" reused" if job.get("reused") else "") for job in jobs]
    return seconds, done.returncode, {word: words.count(word) for word in dict.fromkeys(words)}


def tell(what: str, seconds: float, code: int, words: dict[str, int]) -> None:
    print(f"{what:12} {seconds:6.2f} s, exit {code}, {words}")


def thirty() -> None:
    with folder() as place:
        tell("30 jobs", *run(place))
        tell("again", *run(place))
        tell("once more", *run(place))
        before = _results(place)
        shutil.rmtree(place / "build")
        with subprocess.Popen(command(), cwd=place, stderr=subprocess.PIPE, text=True) as killed:
            assert killed.stderr is not None
            for line in killed.stderr:
                if line.startswith("12/"):
                    killed.kill()
                    break
        done = len(_results(place))
        print(f"killed with -9 after 12 jobs: {done} results")
        tell("it goes on", *run(place))
        left = [str(path) for path in (place / "build").rglob(".dmlprep-*") if path.name != ".dmlprep-fleet"]
        same = _results(place) == before
        print(f"the same bytes as without the kill: {same}; half-written files: {left or 'none'}")


def _results(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.glob("build/**/model.onnx")}


def _model(path: Path, layers: int, width: int) -> None:
    """Linear layers with weights of 4 * width**2 bytes each, in one file or, from 2 GB on, beside it."""
    generator = np.random.default_rng(0)
    names = [f"w{layer}" for layer in range(layers)]
    weights = [
        numpy_helper.from_array(generator.standard_normal((width, width), dtype=np.float32) / width**0.5, name)
        for name in names
    ]
    values = ["x", *(f"h{layer}" for layer in range(layers - 1)), "y"]
    nodes = [helper.make_node("MatMul", [values[i], names[i]], [values[i + 1]]) for i in range(layers)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    save(made, path, save_as_external_data=True, location=f"{path.name}.data")


def memory() -> None:
    devices = ["cpu", *(["dml"] if dml_status().available else [])]
    print("model      device  taken to need  peak of @static-fp32, @vision-fp16")
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        for layers, width in ((2, 64), (4, 2048), (8, 4096), (16, 4096)):
            model = Path(name) / f"{layers}x{width}.onnx"
            _model(model, layers, width)
            size = model_bytes(model)
            for device in devices:
                recipes = ("@static-fp32", "@vision-fp16")
                peaks = [_peak(model, Path(name) / "out", recipe, device) for recipe in recipes]
                said = ", ".join(f"{peak / 2**20:7.0f} MiB" for peak in peaks)
                taken = memory_needed(size, dml=device == "dml") / 2**20
                print(f"{size / 2**20:6.0f} MiB {device:7} {taken:9.0f} MiB {said}", flush=True)


def _peak(model: Path, out: Path, recipe: str, device: str) -> int:
    words = [sys.executable, "-m", "dmlprep", "prepare", str(model), "-o", str(out), "-q", "--force", "--no-project"]
    with subprocess.Popen([*words, "--device", device, "--fresh", "-r", recipe], stdout=subprocess.DEVNULL) as job:
        family, peak = Family(job.pid), 0
        while job.poll() is None:
            peak = max(peak, family.private_bytes())
            time.sleep(0.02)
    assert job.returncode == 0, job.returncode
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true")
    if parser.parse_args().memory:
        memory()
    else:
        thirty()


if __name__ == "__main__":
    main()
