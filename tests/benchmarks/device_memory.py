"""Estimates of device memory against what DirectML holds: the peaks of the Linux runtime, or of DXGI on Windows.

    python -m tests.benchmarks.device_memory                                       the fixtures
    python -m tests.benchmarks.device_memory resnet50.onnx:batch=1 minilm.onnx:batch=2,sequence=64
    python -m tests.benchmarks.device_memory --check MODEL...                      exit 1 where one is off by over 20 %

Each model is prepared with the sizes given (the proof left out), estimated, loaded on DirectML and run once. A model
that was prepared already is taken as it is. The table says both numbers of the device's own memory and of the
machine's that the device reads, and their quotients.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dmlprep
from dmlprep.graph.model import Model
from dmlprep.parity.feeds.graph_feeds import make_feeds
from dmlprep.record.memory import MemoryEstimate
from dmlprep.runtime import dml_host
from dmlprep.runtime.types import MemoryUse
from tests.fixtures_index import fixture

_BOUND = 0.2
"""Share of what was measured that an estimate may be off by."""

_FIXTURES = {
    "residual_cnn": {"batch": 1},
    "depthwise_cnn": {"batch": 1},
    "unet_resize": {},
    "super_resolution": {},
    "bert_encoder": {},
    "diffusion_unet": {},
    "rnn_tagger": {},
    "speech_encoder": {},
}
"""Small models of differing nature, with the sizes that are free in them and not guessed."""


def _asked(texts: list[str]) -> Iterator[tuple[Path, dict[str, int]]]:
    for text in texts:
        path, _, sizes = text.partition(":")
        yield Path(path), {name: int(size) for name, size in (one.split("=") for one in sizes.split(",") if one)}
    if not texts:
        for name, pins in _FIXTURES.items():
            yield fixture(name).path, dict(pins)


def _prepared(path: Path, pins: dict[str, int], folder: Path) -> Path:
    sizes = {name: 1 if "batch" in name.lower() else 16 for name in _free(path)} | pins
    if not sizes:
        return path
    out = folder / path.stem
    record = dmlprep.prepare(path, out=out, pins=sizes, device="cpu", settings={"parity.cpu": False}, force=True)
    if record.exit_code:
        raise SystemExit(f"{path}: {record.error}")
    return out / "model.onnx"


def _free(path: Path) -> list[str]:
    graph = Model.open(path).ir.graph
    dims = (dim for value in graph.inputs if value.shape is not None for dim in value.shape)
    return list(dict.fromkeys(str(dim.value) for dim in dims if not isinstance(dim, int) and dim.value))


def _measured(path: Path) -> MemoryUse:
    feed = make_feeds(Model.open(path), count=1)[0]
    with dml_host() as host:
        session = host.open(path)
        host.memory()
        session.run({value.name: feed[value.name] for value in session.inputs})
        return host.memory()


def _row(name: str, found: MemoryEstimate, held: MemoryUse) -> tuple[str, bool]:
    assert held.device_peak is not None
    assert held.shared_peak is not None
    shared = max(found.shared_peak, found.shared_load)
    ratio = found.peak / held.device_peak
    text = (
        f"{name:<24} {found.peak / 1e6:>9.1f} {held.device_peak / 1e6:>9.1f} {ratio:>7.3f}   "
        f"{shared / 1e6:>9.1f} {held.shared_peak / 1e6:>9.1f} {shared / held.shared_peak:>7.3f}"
    )
    return text, abs(ratio - 1) <= _BOUND


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL[:DIM=SIZE,...]")
    parser.add_argument("--check", action="store_true", help=f"exit 1 where an estimate is off by over {_BOUND:.0%}")
    options = parser.parse_args()
    print(f"{'MB':<24} {'estimate':>9} {'measured':>9} {'ratio':>7}   {'shared':>9} {'measured':>9} {'ratio':>7}")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for path, pins in _asked(options.models):
            prepared = _prepared(path, pins, Path(folder))
            found = dmlprep.check(prepared).facts.memory
            if found is None or not found.known:
                print(f"{path.stem:<24} not known: {found.unknown if found else 'not placed'}")
                good = False
                continue
            name = path.parent.name if path.stem == "model" else path.stem
            text, within = _row(name, found, _measured(prepared))
            good = good and within
            print(text, flush=True)
    return int(options.check and not good)


if __name__ == "__main__":
    sys.exit(main())
