"""Run the packaged model once: python sample.py [dml|cpu|dml-or-cpu] [adapter] [DIM=SIZE ...].

Replace ``example`` to use your own data. The sizes choose a bucket (a model of fixed sizes), if the package has
buckets.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from .public import Model, ModelError, Tensor


def example(one: Tensor) -> np.ndarray[Any, Any]:
    """Return an example array for one input: the same numbers as the samples in the other languages.

    The values are in the range that the contract gives for the input, or 0 to 1 without one. Strings are empty. A free
    dimension gets size 1.
    """
    shape = [1 if isinstance(size, str) else size for size in one["shape"]]
    if one["type"] == "string":
        return np.full(shape, "", np.object_)
    count = np.arange(int(np.prod(shape)), dtype=np.int64)
    whole = np.issubdtype(np.dtype(one["type"]), np.integer) or one["type"] == "bool"
    low, high = one.get("range") or (0, 1)
    values: np.ndarray[Any, Any]
    if whole:
        noise = (count * 2654435761 & 0xFFFFFFFF) >> 24  # 0 to 255 (Knuth's multiplicative hash)
        values = int(low) + noise % (int(high) - int(low) + 1) if one.get("range") else count % 2
    else:
        values = low + (count * 37 % 101) / 101 * (high - low)
    return values.astype(one["type"]).reshape(shape)


def main() -> int:
    """Load the model, run it once and print the outputs; return the exit code."""
    plain = [word for word in sys.argv[1:] if "=" not in word]
    sizes = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    device: Any = plain[0] if plain else "dml"
    wanted = plain[1] if len(plain) > 1 else "0"
    try:
        adapter = int(wanted) if wanted.isdigit() else wanted
        chosen_sizes = {name: int(size) for name, size in sizes.items()}
        model = Model(Path(__file__).parent, device=device, adapter=adapter, sizes=chosen_sizes)
        print(f"device {model.device}")
        if model.bucket:
            padding = " ".join(f"{name}={missing}" for name, missing in model.padding.items())
            print(f"bucket {model.bucket}, padding {padding or 'none'}")
        if model.notice:
            print(model.notice)
        answers = model.run({one["name"]: example(one) for one in model.inputs})
    except ModelError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    expected = {one["name"]: one for one in model.contract["sample"]} if not sizes else {}
    different = []
    for name, array in answers.items():
        if array.dtype == np.object_:
            print(f"{name} {'x'.join(map(str, array.shape))} {' '.join(map(ascii, array.reshape(-1)[:8]))}")
            continue
        first = [float(value) for value in array.reshape(-1)[:8]]
        print(f"{name} {'x'.join(map(str, array.shape))} {_printed(first)}")
        if name in expected:
            wanted, allowed = expected[name]["first"], expected[name]["allowed"]
            print(f"  expected {_printed(wanted)}")
            near = len(first) == len(wanted) and np.allclose(first, wanted, rtol=0, atol=allowed or 0)
            if allowed is not None and not near:
                different.append(name)
    if different:
        print(f"NOT as expected: {', '.join(different)}", file=sys.stderr)
    else:
        print("as expected" if any(one["allowed"] is not None for one in expected.values()) else "not compared")
    return 1 if different else 0


def _printed(numbers: list[float]) -> str:
    return " ".join(f"{number:.6f}" for number in numbers)


if __name__ == "__main__":
    sys.exit(main())
