"""Run the example in a package's README with the same picture in each language, in the Windows of a script."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from windows import PYTHON_EXE, Job
from windows_dotnet import program
from windows_programs import Wrong, ran

from dmlprep.portable.loader import Model

__all__ = ["run_example"]

_FENCES = {"cpp": "cpp", "csharp": "csharp", "node": "js", "python": "python"}


def run_example(here: Job, language: str, compiled: Callable[[Path, list[Path]], Path]) -> dict[str, Any]:
    """Run the example in the README; return the first numbers of each output, by name, as arrays.

    Args:
        compiled: compiles the C++ sources of a program for Windows, and returns its path.

    Raises:
        Wrong: it fails, does not run on DirectML, or gives other numbers than the same model on the CPU.
    """
    app = here.checkout / "app" if language == "csharp" else here.checkout
    text = (app / "README.md").read_text(encoding="utf-8")
    (source,) = [one for one in re.findall(rf"```{_FENCES[language]}\n(.*?)```", text, re.DOTALL) if "inputs" in one]
    expected = _expected(app, here.checkout)
    if language == "python":
        (app / "example.py").write_text(source, encoding="utf-8")
        output = ran(here, PYTHON_EXE, "example.py")
    elif language == "node":
        (app / "example.mjs").write_text(source, encoding="utf-8")
        output = ran(here, r"C:\checkout\node.exe", "example.mjs")
    elif language == "cpp":
        (app / "example.cpp").write_text(source, encoding="utf-8")
        compiled(app / "example.exe", [*sorted(app.glob("dmlprep_*.cpp")), app / "example.cpp"])
        output = ran(here, r"C:\checkout\example.exe")
    else:
        output = ran(here, *program(here, "example", source, app))
    device, *lines = output.splitlines()
    if device.split() != ["dml"]:
        raise Wrong(f"the example in {language} did not run on DirectML: {output}")
    numbers = {line.split()[0]: np.array(line.split()[1:], dtype=float) for line in lines}
    for name, (wanted, allowed) in expected.items():
        if len(numbers[name]) != len(wanted) or np.max(np.abs(numbers[name] - wanted)) > allowed:
            raise Wrong(f"the example in {language} gives other numbers than {wanted}: {numbers[name]}")
    print(f"  example, {language}: {' | '.join(lines)}", flush=True)
    return numbers


def _expected(package: Path, folder: Path) -> dict[str, tuple[Any, float]]:
    """Write a picture as the example reads it into ``folder``; return the numbers to expect, by output.

    These are the first numbers on the CPU, and the difference that the contract allows. Outputs whose numbers can
    change places are left out.
    """
    contract = json.loads((package / "model.json").read_bytes())
    (one,) = [one for one in contract["inputs"] if one["meaning"] == "picture"]
    height, width = one["picture"]["size"]
    rows, columns = np.mgrid[0:height, 0:width]
    red, green, blue = 255 * columns // width, 255 * rows // height, (rows // 8 + columns // 8) % 2 * 255
    picture = np.stack([red, green, blue], -1).astype(np.uint8)
    Image.fromarray(picture).save(folder / "photo.jpg", format="png")  # Pillow looks at the content
    colour = one["picture"]["colour"]
    pixels = picture[:, :, ::-1] if colour == "bgr" else picture
    (folder / f"picture.{colour}").write_bytes(pixels.tobytes())
    outputs = Model(package, device="cpu").run({one["name"]: pixels[None]})
    allowed = {one["name"]: one["allowed"] for one in contract["sample"] if one["allowed"] is not None}
    return {name: (outputs[name].reshape(-1)[:8].astype(float), most) for name, most in allowed.items()}
