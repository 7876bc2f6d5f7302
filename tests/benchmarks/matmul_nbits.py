"""Which forms of MatMulNBits DirectML computes right.

``python -m tests.benchmarks.matmul_nbits [--release 1.24.4]``: models of one node each on DirectML against the formula
in float64 (FP16: of the rounded inputs). What is wrong here is what the step ``weights`` does not write.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from dmlprep.runtime import dml_host, dml_status
from tests.benchmarks.fused_kernels import Case, judge

Array = np.ndarray[Any, Any]


def packed(numbers: Array, bits: int) -> Array:
    """Numbers of ``bits`` bits along the last axis, the first in the low bits; the last byte is filled with zeros."""
    if bits == 8:
        return numbers.astype(np.uint8)
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros((*numbers.shape[:-1], 1), numbers.dtype)], -1)
    return (numbers[..., 0::2] | numbers[..., 1::2] << 4).astype(np.uint8)


def case(
    dtype: str,
    bits: int,
    block: int,
    zero: str,
    rows: tuple[int, ...],
    depth: int,
    columns: int,
    extra: str = "",
    level: int = 0,
) -> Case:
    """One node: ``rows`` x ``depth`` times ``depth`` x ``columns``.

    Args:
        zero: none, packed or float.
        extra: bias or g_idx.
    """
    rng = np.random.default_rng([bits, block, depth, columns])
    blocks = -(-depth // block)
    numbers = rng.integers(0, 1 << bits, (columns, blocks, block))
    scales = rng.uniform(0.01, 0.03, (columns, blocks)).astype(dtype)
    middle = np.full((columns, blocks), 1 << bits - 1)
    zeros = rng.integers(0, 1 << bits, (columns, blocks)) if zero != "none" else middle
    weights = ((numbers - zeros[..., None]) * scales.astype(np.float64)[..., None]).reshape(columns, -1)[:, :depth]
    x = rng.standard_normal((*rows, depth)).astype(dtype)
    y = x.astype(np.float64) @ weights.T
    constants = {"b": packed(numbers, bits), "s": scales}
    names = ["x", "b", "s", "z" if zero != "none" else ""]
    if zero == "packed":
        constants["z"] = packed(zeros, bits).reshape(columns, -1)
    elif zero == "float":
        constants["z"] = zeros.astype(dtype)
    if extra == "g_idx":
        constants["g"] = (np.arange(blocks * block) // block).astype(np.int32)
        names += ["g"]
    elif extra == "bias":
        constants["c"] = rng.standard_normal(columns).astype(dtype)
        names += ["", "c"]
        y = y + constants["c"].astype(np.float64)
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=depth, N=columns, bits=bits, block_size=block,
        **({"accuracy_level": level} if level else {}),
    )  # fmt: skip
    name = f"{dtype} {bits} bits block {block} zero points {zero} {list(rows)}x{depth}x{columns} {extra}"
    return Case(name.strip() + (f" level {level}" if level else ""), dtype, node, {"x": x}, constants, {"y": y})


def cases() -> Iterator[tuple[str, Case]]:
    """A word for the class, and the case."""
    for dtype, bits, zero in itertools.product(("float32", "float16"), (4, 8), ("none", "packed", "float")):
        for block in (16, 32, 64, 128, 256):
            word = f"{dtype}, {bits} bits, block {block}, zero points {zero}"
            for rows, columns in (((1,), 48), ((5,), 33), ((1, 1), 64), ((2, 3), 40)):
                yield word, case(dtype, bits, block, zero, rows, 2 * block, columns)
        yield f"{dtype}, {bits} bits, zero points {zero}, one block", case(dtype, bits, 32, zero, (3,), 32, 16)
        word = f"{dtype}, {bits} bits, zero points {zero}, odd count of blocks"
        yield word, case(dtype, bits, 32, zero, (3,), 96, 17)
        word = f"{dtype}, {bits} bits, zero points {zero}, K no multiple of the block"
        yield word, case(dtype, bits, 32, zero, (3,), 80, 16)
        yield f"{dtype}, {bits} bits, zero points {zero}, one column", case(dtype, bits, 32, zero, (3,), 64, 1)
        yield f"{dtype}, {bits} bits, zero points {zero}, large", case(dtype, bits, 32, zero, (7,), 2048, 1500)
        for extra in ("bias", "g_idx"):
            yield f"{dtype}, {bits} bits, zero points {zero}, {extra}", case(dtype, bits, 32, zero, (3,), 64, 16, extra)
        for level in (1, 2, 4):
            yield (
                f"{dtype}, {bits} bits, zero points {zero}, accuracy level {level}",
                case(dtype, bits, 32, zero, (3,), 64, 16, level=level),
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--release", default="", help="of onnxruntime-directml; empty for the newest installed")
    parser.add_argument("--batch", type=int, default=24, help="nodes in one session")
    arguments = parser.parse_args()
    status = dml_status(arguments.release)
    if not status.available:
        print(f"NOT RUN: {status.reason}", file=sys.stderr)
        return 3
    print(status.device)
    all_cases = list(cases())
    words = {id(one): word for word, one in all_cases}
    total, right = Counter[str](), Counter[str]()
    faults: dict[str, str] = {}
    host = dml_host(arguments.release)
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(all_cases), arguments.batch):
            for one, fault in judge([c for _, c in all_cases[start : start + arguments.batch]], host, Path(folder)):
                word = words[id(one)]
                total[word] += 1
                right[word] += not fault
                if fault:
                    faults.setdefault(word, fault)
    host.close()
    for word in total:
        print(f"{word}: {right[word]} of {total[word]} right{'' if word not in faults else ': ' + faults[word]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
