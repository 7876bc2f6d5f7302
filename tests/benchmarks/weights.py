"""A decoder of 1.2 billion weights to 4 bits: memory, time beside ``cp``, and the size of the file.

``python -m tests.benchmarks.weights [--folder DIR] [--layers 25] [--rounds 3]``: needs 6 GB of disk. The step
``weights`` and the saving run in a process of their own; ``cp`` copies the model's data file in turn.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

WIDTH, INNER, VOCABULARY, SMALL = 2048, 5632, 32_000, 256

_STEP = """
import resource, sys, time
from pathlib import Path
from dmlprep.graph.model import Model
from dmlprep.passes import Context, make_pass
from dmlprep.directml.targets import find_target
began = time.perf_counter()
model = Model.open(Path(sys.argv[1]))
make_pass("weights", {"embeddings": sys.argv[3], "block_size": int(sys.argv[4])}).run(model, Context(find_target()))
model.save(Path(sys.argv[2]))
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def shapes(layers: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Names and sizes of the weights."""
    yield "table", (VOCABULARY, WIDTH)
    for layer in range(layers):
        for name, shape in (
            ("q", (WIDTH, WIDTH)),
            ("k", (WIDTH, SMALL)),
            ("v", (WIDTH, SMALL)),
            ("o", (WIDTH, WIDTH)),
            ("gate", (WIDTH, INNER)),
            ("up", (WIDTH, INNER)),
            ("down", (INNER, WIDTH)),
        ):
            yield f"{name}{layer}", shape
    yield "head", (WIDTH, VOCABULARY)


def write_decoder(folder: Path, layers: int) -> Path:
    """A graph with the products of a decoder, in FP16, and its weights in one data file."""
    rng, tensors, at = np.random.default_rng(1), [], 0
    noise = (rng.standard_normal(1 << 24) * 0.02).astype(np.float16)
    with open(folder / "model.onnx.data", "wb") as file:
        for name, shape in shapes(layers):
            count = shape[0] * shape[1]
            start = int(rng.integers(0, noise.size))
            for left in range(0, count, noise.size):
                piece = np.roll(noise, -start)[: min(noise.size, count - left)]
                file.write(piece.tobytes())
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "model.onnx.data"), ("offset", at), ("length", 2 * count)):
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            at += 2 * count
    nodes, x = [helper.make_node("Gather", ["table", "ids"], ["x"])], "x"
    for n in range(layers):
        for name, source in (("q", x), ("k", x), ("v", x), ("o", f"q{n}_y"), ("gate", f"o{n}_y"), ("up", f"o{n}_y")):
            nodes.append(helper.make_node("MatMul", [source, f"{name}{n}"], [f"{name}{n}_y"]))
        nodes.append(helper.make_node("Mul", [f"gate{n}_y", f"up{n}_y"], [f"inner{n}"]))
        nodes.append(helper.make_node("MatMul", [f"inner{n}", f"down{n}"], [f"down{n}_y"]))
        nodes.append(helper.make_node("Concat", [f"k{n}_y", f"v{n}_y"], [f"cache{n}"], axis=-1))
        nodes.append(helper.make_node("ReduceMean", [f"cache{n}"], [f"mean{n}"], axes=[-1]))
        nodes.append(helper.make_node("Add", [f"down{n}_y", f"mean{n}"], [f"x{n}"]))
        x = f"x{n}"
    nodes.append(helper.make_node("MatMul", [x, "head"], ["logits"]))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "n"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT16, [1, "n", VOCABULARY])
    graph = helper.make_graph(nodes, "decoder", [ids], [logits], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, help="where the files go, and stay")
    parser.add_argument("--layers", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        source = write_decoder(folder, arguments.layers)
        data = folder / "model.onnx.data"
        weights = sum(a * b for _, (a, b) in shapes(arguments.layers))
        print(f"{weights / 1e9:.3f} billion weights, {data.stat().st_size / 1e6:.0f} MB in FP16")
        for embeddings, block in (("keep", 32), ("int8", 32), ("keep", 64)):
            ratios = []
            for _ in range(arguments.rounds):
                began = time.perf_counter()
                subprocess.run(["cp", data, folder / "copy"], check=True)
                copied = time.perf_counter() - began
                (folder / "copy").unlink()
                out = folder / "out"
                out.mkdir()
                command = [sys.executable, "-c", _STEP, source, out / "model.onnx", embeddings, str(block)]
                seconds, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                size = sum(file.stat().st_size for file in out.iterdir())
                shutil.rmtree(out)
                ratios.append(float(seconds) / copied)
                print(
                    f"  embeddings {embeddings}, blocks of {block}: {float(seconds):.1f} s, cp {copied:.1f} s, "
                    f"peak {peak} MiB, {size / 1e6:.0f} MB, {size / data.stat().st_size:.3f} of FP16",
                    flush=True,
                )
            print(f"  median of the ratios to cp: {sorted(ratios)[len(ratios) // 2]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
