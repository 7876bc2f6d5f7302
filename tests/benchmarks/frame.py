"""Frames on real pictures: levels off from Pillow and OpenCV by mode, and framed models against their originals.

Usage: python -m tests.benchmarks.frame PACKAGES [--device dml|cpu] [--only modes|models] [--mode MODE ...]

PACKAGES is a folder below which scikit-image, scikit-learn and matplotlib are installed or unpacked: 20 of their
pictures are taken, of 1411 x 1411 to 384 x 303 pixels, twelve in colour and eight in gray, which become RGB.

``modes``: each picture is brought to 224 x 224 by each mode, in a model that does nothing else, and held against
Pillow's ``resize``, or against ``cv2.resize`` where OpenCV is installed: the largest difference in levels of 255, and
the share of values that differ.

``models``: residual_cnn with a frame for the size of each picture (the shorter side to 36, the middle of 32 x 32, mean
and deviation), prepared and proved on that picture: the verdict on the CPU and, with ``--device dml``, on DirectML;
the largest error; how many operations are on DirectML.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx_ir as ir
from PIL import Image

from dmlprep import api
from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model import Model
from dmlprep.passes.framing import PictureOptions, resolve, write_frame
from dmlprep.passes.framing.options import Mode
from dmlprep.runtime import SessionOptions, open_cpu, open_dml

PICTURES = (
    *(f"skimage/data/{name}" for name in ("astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg")),
    *(f"skimage/data/{name}" for name in ("ihc.png", "motorcycle_left.png", "motorcycle_right.png", "retina.jpg")),
    *(f"skimage/data/{name}" for name in ("rocket.jpg", "camera.png", "clock_motion.png", "coins.png", "moon.png")),
    *(f"skimage/data/{name}" for name in ("brick.png", "gravel.png", "grass.png", "cell.png")),
    *(f"sklearn/datasets/images/{name}" for name in ("china.jpg", "flower.jpg")),
    "matplotlib/mpl-data/sample_data/grace_hopper.jpg",
)

_SIDE = 224
_RESIDUAL_CNN = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "residual_cnn.onnx"

_RECIPE = """doc = "residual_cnn on a picture"
[step.pin]
sizes = {{ batch = 1 }}
[step.opset]
[step.simplify]
[step.fix-quirks]
[step.frame.inputs.pixel_values]
size = [{height}, {width}]
fit = "crop"
resized = 36
mean = [0.485, 0.456, 0.406]
deviation = [0.229, 0.224, 0.225]
"""

Array = np.ndarray[Any, Any]


def pictures(packages: Path) -> dict[str, Array]:
    """The pictures as bytes [height, width, 3].

    Raises:
        FileNotFoundError: one is not there.
    """
    found: dict[str, Array] = {}
    for name in PICTURES:
        path = next(packages.glob(f"**/{name}"), None)
        if path is None:
            raise FileNotFoundError(f"{name} is not below {packages}")
        with Image.open(path) as file:
            found[Path(name).name] = np.asarray(file.convert("RGB"))
    return found


def _framed(size: tuple[int, int], mode: str, path: Path) -> None:
    """A model that resizes, and nothing else: bytes in, bytes out."""
    shape = [1, _SIDE, _SIDE, 3]
    given, made = (ir.Value(name=n, type=ir.TensorType(ir.DataType.UINT8), shape=ir.Shape(shape)) for n in "xy")
    graph = ir.Graph([given], [made], nodes=[ir.Node("", "Identity", [given], outputs=[made])], opset_imports={"": 17})
    model = Model(ir.Model(graph, ir_version=8))
    write_frame(model, resolve(model.ir, {"x": PictureOptions(size=size, resize=mode)}))  # type: ignore[arg-type]
    model.save(path, force=True)


def _theirs(picture: Array, mode: str) -> Array | None:
    """What the library makes of it; ``None`` where it is not installed."""
    library, name = mode.split("-")
    if library == "pillow":
        return np.asarray(Image.fromarray(picture).resize((_SIDE, _SIDE), Image.Resampling[name.upper()]))
    try:
        import cv2  # type: ignore[import-not-found]
    except ImportError:
        return None
    found: Array = cv2.resize(picture, (_SIDE, _SIDE), interpolation=getattr(cv2, f"INTER_{name.upper()}"))
    return found


def _modes(every: dict[str, Array], device: str, modes: list[str], folder: Path) -> bool:
    print(f"{'mode':16} {'pictures':>8} {'most levels off':>15} {'share off':>10}")
    good = True
    for mode in modes:
        most, off, seen = 0, 0.0, 0
        for picture in every.values():
            theirs = _theirs(picture, mode)
            if theirs is None:
                continue
            path = folder / "framed.onnx"
            try:
                _framed(picture.shape[:2], mode, path)
            except ModelRefused:  # INTER_AREA of sizes without a common divisor
                continue
            open_session = open_dml if device == "dml" else open_cpu
            with open_session(path, SessionOptions()) as session:
                ours = session.run({"x": picture[None]})["y"][0]
            apart = np.abs(ours.astype(int) - theirs)
            most, off, seen = max(most, int(apart.max())), off + float((apart > 0).mean()), seen + 1
        print(f"{mode:16} {seen:8} {most if seen else '-':>15} {off / seen if seen else 0:10.2e}", flush=True)
        good = good and most <= 1
    return good


def _models(every: dict[str, Array], device: str, folder: Path) -> bool:
    print(f"{'picture':24} {'size':>11} {'cpu':>18} {'dml':>18} {'on DirectML':>12}")
    good = True
    for name, picture in every.items():
        recipe = folder / "recipe.toml"
        recipe.write_text(_RECIPE.format(height=picture.shape[0], width=picture.shape[1]))
        record = api.prepare(
            _RESIDUAL_CNN,
            out=folder / "out",
            recipe=recipe,
            feeds=[{"pixel_values": picture[None]}],
            settings={"parity.dml": "require" if device == "dml" else "off"},
            force=True,
        )
        cells = {
            str(v.check): f"{v.outcome} {max((m.max_rel for m in v.outputs), default=0.0):.1e}" for v in record.verdicts
        }
        placed = record.facts.placement_after
        assert placed is not None
        share = f"{placed.dml_nodes} of {placed.nodes}"
        height, width = picture.shape[:2]
        row = [f"{height} x {width}", cells.get("parity on cpu", ""), cells.get("parity on dml", "")]
        print(f"{name:24} {row[0]:>11} {row[1]:>18} {row[2]:>18} {share:>12}", flush=True)
        good = good and record.exit_code == 0
    return good


def main(arguments: list[str]) -> int:
    """Print the tables; 1 where a mode is off by more than a level, or a model is not proved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("--device", choices=["cpu", "dml"], default="cpu")
    parser.add_argument("--only", choices=["modes", "models"])
    parser.add_argument("--mode", action="append", choices=get_args(Mode))
    asked = parser.parse_args(arguments)
    every = pictures(asked.packages)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        if asked.only != "models":
            good = _modes(every, asked.device, asked.mode or list(get_args(Mode)), Path(folder))
        if asked.only != "modes":
            good = _models(every, asked.device, Path(folder)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
