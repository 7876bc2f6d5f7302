"""Forms of GroupQueryAttention that onnxruntime-genai's builder writes for other providers, on DirectML.

``python -m tests.benchmarks.grouped_forms [--release 1.24.4]``: models of one node each against the formula in float64,
on the CPU, which takes all of them in FP32, and on DirectML, which takes none. ``fix-quirks`` rewrites the first two.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import helper

from dmlprep.runtime import cpu_host, dml_host, dml_status, open_cpu
from tests.benchmarks.fused_kernels import CLOSE, FLOAT, Case, judge, random_array, rotary, together


def other_forms() -> Iterator[Case]:
    """Packed inputs, a rotation of its own, a cap, a window, a smooth softmax, a bias, a sink; FP32 and FP16."""
    for dtype, form in itertools.product(FLOAT, ("packed", "rotates", "cap", "window", "smooth", "bias", "sink")):
        heads, groups, count, size = 4, 2, 5, 16
        q, k = (random_array((1, count, n * size), dtype, n) for n in (heads, groups))
        v, bias = (
            random_array((1, count, groups * size), dtype, 3),
            random_array((1, heads, count, count), dtype, 4, 3.0),
        )
        sink = random_array((heads,), dtype, 5)
        angles = np.outer(np.arange(8), 100.0 ** -(np.arange(size // 2) / (size // 2)))
        cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
        apart = [x.reshape(1, count, -1, size).transpose(0, 2, 1, 3) for x in (q, k, v)]
        if form == "rotates":
            apart[:2] = [rotary(x, cos[None, :count], sin[None, :count], False, size) for x in apart[:2]]
        left, right, last = (np.repeat(x.astype(np.float64), heads // x.shape[1], 1) for x in apart)
        scores = left @ right.transpose(0, 1, 3, 2) * size**-0.5
        scores = 2.0 * np.tanh(scores / 2.0) if form == "cap" else scores + (bias if form == "bias" else 0.0)
        seen = (
            np.tri(count, dtype=bool) & ~np.tri(count, count, -2, dtype=bool)
            if form == "window"
            else np.tri(count, dtype=bool)
        )
        weights = np.where(seen, np.exp(scores), 0.0)
        rest = {"smooth": 1.0, "sink": np.exp(sink.astype(np.float64))[None, :, None]}.get(form, 0.0)
        y = (weights / (weights.sum(-1) + rest)[..., None]) @ last
        more = {"rotates": {"do_rotary": 1}, "cap": {"softcap": 2.0}, "window": {"local_window_size": 2}}
        attributes = {"smooth": {"smooth_softmax": 1}, **more}.get(form, {})
        given = ["q", "", ""] if form == "packed" else ["q", "k", "v"]
        tables = ["c", "s"] if form == "rotates" else ["", ""]
        also = ["", "b" if form == "bias" else "", "z" if form == "sink" else ""]
        node = helper.make_node(
            "GroupQueryAttention", [*given, "", "", "n", "t", *tables, *also], ["y", "ok", "ov"],
            domain="com.microsoft", num_heads=heads, kv_num_heads=groups, **attributes,
        )  # fmt: skip
        feeds = {"q": np.concatenate([q, k, v], 2)} if form == "packed" else {"q": q, "k": k, "v": v}
        constants = {"n": np.array([count - 1], np.int32), "t": np.array(count, np.int32)}
        constants |= {"c": cos, "s": sin} if form == "rotates" else {}
        constants |= {"b": bias} if form == "bias" else {"z": sink} if form == "sink" else {}
        flat = y.transpose(0, 2, 1, 3).reshape(1, count, -1)
        expected = {"y": flat, "ok": apart[1].astype(np.float64), "ov": apart[2].astype(np.float64)}
        yield Case(f"GroupQueryAttention {dtype} {form}", dtype, node, feeds, constants, expected)


def on_cpu(folder: Path) -> int:
    """How many of the FP32 cases the CPU provider computes as the formula does."""
    right = 0
    with cpu_host() as host:
        for case in (one for one in other_forms() if one.dtype == "float32"):
            path = folder / "cpu.onnx"
            path.write_bytes(together([case]).SerializeToString())
            with open_cpu(path, host=host) as session:
                found = session.run({f"{name}_0": array for name, array in case.feeds.items()})
            off = max(
                float(np.max(np.abs(found[f"{name}_0"] - wanted)) / np.max(np.abs(wanted)))
                for name, wanted in case.expected.items()
            )
            print(f"{case.name} on the CPU: {off:.2g}")
            right += off <= CLOSE["float32"]
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--release", default="", help="of onnxruntime-directml; empty for the newest installed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"on the CPU, FP32: {on_cpu(folder)} of 7 right", flush=True)
        status = dml_status(arguments.release)
        if not status.available:
            print(f"NOT RUN: {status.reason}", file=sys.stderr)
            return 3
        print(status.device)
        host = dml_host(arguments.release)
        cases = list(other_forms())
        found = [
            fault for case in cases for one, fault in judge([case], host, folder) if print(one.name, fault) is None
        ]
        print(f"on DirectML: {found.count('')} of {len(cases)} right")
        host.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
