"""What the loader promises of buckets: buckets.py FOLDER GRID DEVICE, with sizes a line in GRID.

Prints what each of these sizes takes, then "good". The same program is there for each language.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER, GRID, DEVICE = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
sys.path.insert(0, str(FOLDER))

from dmlprep_model import BadInput, Model, PackageDamaged  # noqa: E402


def sizes_of(line: str) -> dict[str, int]:
    return {name: int(size) for name, _, size in (word.partition("=") for word in line.split())}


def refused(kind: type[Exception], work: Any, word: str) -> None:
    try:
        work()
    except kind as error:
        if word in str(error):
            return
        raise AssertionError(f"{error} does not say {word}") from error
    raise AssertionError(f"not refused: {word}")


def feeds(model: Model) -> dict[str, Any]:
    return {one["name"]: np.full(one["shape"], 0.5, one["type"]) for one in model.inputs}


def choices(model: Model) -> None:
    for line in GRID.read_text().splitlines():
        try:
            choice = model.choose(sizes_of(line))
            print(choice.name, *(f"{name}={missing}" for name, missing in choice.padding.items()))
        except BadInput as error:
            print(error)


def taking() -> None:
    small, large = {"height": 16, "width": 16}, {"height": 24, "width": 24}
    model = Model(FOLDER, device=DEVICE, sizes=large)
    assert (model.bucket, model.padding) == ("height24-width24", {})
    first, fed = model.run(feeds(model)), feeds(model)
    model.take({"height": 10, "width": 16})
    assert (model.bucket, model.padding) == ("height16-width16", {"height": 6})
    model.run(feeds(model))
    refused(BadInput, lambda: model.run(fed), "the bucket height16-width16 has fixed sizes: pad the input")
    refused(BadInput, lambda: model.take({"height": 25, "width": 1}), "no bucket has room for height=25, width=1")
    assert model.bucket == "height16-width16"
    model.run(feeds(model))
    model.take(large)
    again = model.run(fed)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    model.close()
    refused(RuntimeError, lambda: model.take(small), "closed")
    model.reopen(DEVICE)
    assert model.bucket == "height24-width24"
    assert Model(FOLDER, device=DEVICE).bucket == "height16-width16"
    refused(
        BadInput,
        lambda: Model(FOLDER, device=DEVICE, sizes={"depth": 1}),
        "no free dimension 'depth'; there are: height, width",
    )


def damaged() -> None:
    contract = json.loads((FOLDER / "model.json").read_text())
    names = {file for one in contract["buckets"] for file in (one["model"]["file"], *one["model"]["data"])}
    for name in sorted(names):
        path = FOLDER / name
        raw = path.read_bytes()
        path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        try:
            refused(PackageDamaged, lambda: Model(FOLDER, device=DEVICE), f"{name} was changed")
        finally:
            path.write_bytes(raw)
    model = Model(FOLDER, device=DEVICE)
    other = FOLDER / contract["buckets"][1]["model"]["file"]
    raw = other.read_bytes()
    other.unlink()
    try:
        refused(PackageDamaged, lambda: model.take(contract["buckets"][1]["sizes"]), f"{other.name} is missing")
        assert model.bucket == contract["buckets"][0]["name"]
        model.run(feeds(model))
    finally:
        other.write_bytes(raw)


choices(Model(FOLDER, device=DEVICE, warm_up=False))
taking()
damaged()
print("good")
