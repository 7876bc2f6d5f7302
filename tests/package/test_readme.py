"""The README of a package is about its model: names, an example that runs, what the sample prints, what to ship."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser
from PIL import Image

import dmlprep
from dmlprep.package import LANGUAGES
from dmlprep.package.contract import Contract
from dmlprep.package.examples import code_text
from dmlprep.passes.framing import PictureOptions, ResultOptions
from dmlprep.portable.shares import percent
from tests.fixtures_index import fixture
from tests.hostile_names import NASTY
from tests.in_process import Run
from tests.package.runs import PICTURE, framed_run, run_of, with_zeros

_TINY = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"""
_RANDOM = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3] x) => (float[2, 3] y) { r = RandomNormalLike(x)  y = Add(x, r) }"""
_HUGE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1048576, 1048576] x) => (int64[2] y) { y = Shape(x) }"""
_LONG = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x) => (float[n] y) <int64[2] pads = {0, 2097150}, float thousand = {1000}>
{ y = Pad(x, pads, thousand) }"""
_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[1, 4] ids, int64[1, 4] attention_mask, bool[2] flags) => (float[1, 4, 8] e, int64[1, 4] m, bool[2] f)
<float[10, 8] table> { e = Gather(table, ids)  m = Identity(attention_mask)  f = Not(flags) }"""


def _run(text: str, folder: Path) -> Path:
    folder.mkdir()
    onnx.save(parser.parse_model(with_zeros(text)), folder / "model.onnx")
    return run_of(folder)


def _packaged(run: Path, app: Path, language: str = "python") -> tuple[Contract, str]:
    contract = dmlprep.package_model(run, out=app, language=language, unproven=True).contract
    return contract, (app / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_word_on_buckets_and_pictures_that_a_package_lacks(proved: Path, language: str, tmp_path: Path) -> None:
    contract, text = _packaged(proved, tmp_path / "app", language)
    assert "bucket" not in text.lower().replace("dmlprep_buckets.py", "")
    assert "picture" not in text.lower()
    assert not re.search("^%|@", text, re.MULTILINE)
    assert len(text.splitlines()) < 125
    assert ("Direct3D 12 device" in text) == (language == "cpp")
    shares = re.findall(r"largest difference from the original was (less than 0.01|[\d.]+) % of the output", text)
    worst = [one.worst for one in contract.proof if one.worst]
    assert shares == ["less than 0.01" if one < 1e-4 else percent(one, 2)[:-2] for one in worst]
    (shipped,) = re.findall(r"^- In one folder: (.*)\.$", text, re.MULTILINE)
    names = re.findall(r"`([^`]+)`", shipped)
    assert names[:3] == ["model.json", "model.json.sha256", "model.onnx"]
    assert all((tmp_path / "app" / one).exists() for one in names)
    assert (len(names) > 3) == (language in ("node", "python"))


@pytest.mark.parametrize(("colour", "form"), [("rgb", "rgb24"), ("gray", "gray"), ("bgra", "bgra")])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_picture_comes_from_a_file(language: str, colour: Any, form: str, tmp_path: Path) -> None:
    options = {"images": PictureOptions(size=(20, 32), colour=colour)}
    run = framed_run(PICTURE, tmp_path / "run", pictures=options)
    contract, text = _packaged(run, tmp_path / "app", language)
    assert not re.search("^%|@", text, re.MULTILINE)
    if language == "python":
        assert "resize((32, 20))" in text
    else:
        assert f"scale=32:20 -pix_fmt {form} -f rawvideo picture.{colour}" in text
        assert f"picture.{colour}" in text.partition("ffmpeg")[2].partition("\n")[2]
        assert ", ".join(map(str, contract.inputs[0].shape)) in text


def test_buffers_of_the_gpu_need_fixed_sizes(tmp_path: Path) -> None:
    run = _run(_TINY.replace("[2, 3]", "[batch, 3]"), tmp_path / "run")
    contract, text = _packaged(run, tmp_path / "app", "cpp")
    assert contract.inputs[0].gpu_bytes is None
    assert "Direct3D 12 device" not in text
    assert "{1, 3}" in text


@pytest.mark.parametrize("kind", ["numbers", "picture", "text"])
def test_the_example_in_python_runs(kind: str, tmp_path: Path) -> None:
    app = tmp_path / "app"
    if kind == "picture":
        options = {"images": PictureOptions(size=(20, 32), colour="bgr")}
        run = framed_run(PICTURE, tmp_path / "run", pictures=options, results={"y": ResultOptions(take="picture")})
    else:
        run = _run({"numbers": _TINY, "text": _TEXT}[kind], tmp_path / "run")
    contract, text = _packaged(run, app)
    (program,) = [one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "run(inputs)" in one]
    pixels = np.random.default_rng(1).integers(0, 256, (20, 32, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(app / "photo.jpg", format="png")  # Pillow looks at the content
    environment = {**os.environ, "PYTHONPATH": str(app)}
    line = [sys.executable, "-c", program + "\nfor name in inputs: print(inputs[name].ravel()[:3].tolist())"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=app, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    device, *lines = done.stdout.splitlines()
    has_directml = "DmlExecutionProvider" in ort.get_available_providers()
    assert device.startswith("dml " if has_directml else "cpu DirectML is not available")
    assert [one.partition(" ")[0] for one in lines[: len(contract.outputs)]] == [one.name for one in contract.outputs]
    if kind == "picture":
        assert lines[-3] == str(pixels[0, 0, ::-1].tolist())
    elif kind == "text":
        assert lines[-3:] == ["[0, 0, 0]", "[1, 1, 1]", "[False, False]"]


def _sample(app: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "sample.py", *words]
    return subprocess.run(line, capture_output=True, text=True, cwd=app, check=False)


def test_the_sample_compares_its_numbers(app: Path) -> None:
    contract: dict[str, Any] = json.loads((app / "model.json").read_bytes())
    (logits,) = contract["sample"]
    assert (logits["name"], logits["shape"], len(logits["first"])) == ("logits", [1, 10], 8)
    assert logits["allowed"] > 0
    done = _sample(app, "cpu")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "as expected"), done.stderr
    assert f"{logits['first'][0]:.6g}, " in (app / "README.md").read_text(encoding="utf-8")
    logits["first"][7] += 2 * logits["allowed"]
    raw = json.dumps(contract).encode()
    (app / "model.json").write_bytes(raw)
    (app / "model.json.sha256").write_bytes(f"{hashlib.sha256(raw).hexdigest()}  model.json\n".encode())
    done = _sample(app, "cpu")
    assert (done.returncode, done.stderr) == (1, "NOT as expected: logits\n")


def test_the_sample_runs_a_model_of_strings(tmp_path: Path) -> None:
    _packaged(_run(_TINY.replace("float", "string").replace("Relu", "Identity"), tmp_path / "run"), tmp_path / "app")
    done = _sample(tmp_path / "app", "cpu")
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (0, ["y 2x3 '' '' '' '' '' ''", "not compared"])


def test_numbers_that_can_change_places_are_not_compared(tmp_path: Path) -> None:
    options = {"images": PictureOptions(size=(20, 32))}
    result = {"y": ResultOptions(activation="softmax", axis=1, take="argmax")}
    run = framed_run(PICTURE, tmp_path / "run", pictures=options, results=result)
    contract, text = _packaged(run, tmp_path / "app")
    assert [one.allowed is None for one in contract.sample] == [True, False, True]
    assert re.search(r"^- `y` \(1 x 16 x 16\): .* \(not compared\)$", text, re.MULTILINE)


def test_the_allowed_difference_is_of_the_largest_number_of_a_large_output(tmp_path: Path) -> None:
    samples = []
    for size in (3, 1 << 21):
        run = _run(_LONG.replace("2097150", str(size - 2)), tmp_path / f"run{size}")
        (sample,) = _packaged(run, tmp_path / f"app{size}")[0].sample
        samples.append(sample)
    assert samples[1].shape == [1 << 21]
    assert samples[0].allowed == samples[1].allowed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_RANDOM, "draws random numbers"),
        (_HUGE, "more than 33,554,432 elements"),
        (_TINY.replace("float[", "bfloat16["), "bfloat16"),
    ],
)
def test_nothing_is_expected_of_models_without_repeatable_numbers(
    text: str, reason: str, tmp_path: Path, run: Run
) -> None:
    packed = _run(text, tmp_path / "run")
    contract, readme = _packaged(packed, tmp_path / "app")
    assert contract.sample == []
    assert reason in contract.sample_missing
    assert "as expected" not in readme
    assert f"does not compare its outputs: {contract.sample_missing}".partition("'")[0] in readme
    done = run("package", packed, "-o", tmp_path / "b", "--for", "python", "--unproven", "-q")
    assert "NOT RUN: the sample compares no outputs: " in done.out
    assert ("No example: dmlprep writes none" in readme) == ("bfloat16" in text)


def test_a_name_is_one_string_in_each_language(tmp_path: Path) -> None:
    names = [*NASTY, "日本 é 😀", "\\", '"', "a\x00b7"]
    assert [ast.literal_eval(code_text(name, "python")) for name in names] == names
    if shutil.which("node"):
        program = f"console.log(JSON.stringify([{', '.join(code_text(name, 'node') for name in names)}]))"
        done = subprocess.run(["node", "-"], input=program, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == names
    if compiler := shutil.which("g++"):
        texts = "\n".join(
            f"std::fwrite({one}, 1, sizeof {one} - 1, stdout);" for one in (code_text(n, "cpp") for n in names)
        )
        (tmp_path / "a.cpp").write_text(f"#include <cstdio>\nint main() {{\n{texts}\n}}", encoding="ascii")
        subprocess.run([compiler, "-Wall", "-Werror", "a.cpp", "-o", "a"], cwd=tmp_path, check=True)
        assert subprocess.run([tmp_path / "a"], capture_output=True, check=True).stdout == "".join(names).encode()
    for language in LANGUAGES:
        assert all(code_text(name, language).isascii() and "`" not in code_text(name, language) for name in names)


def test_an_example_of_a_text_model_has_its_own_names(tmp_path: Path) -> None:
    record = dmlprep.prepare(
        fixture("bert_encoder").path, out=tmp_path / "run", pins={"batch": 1, "sequence": 8}, device="cpu"
    )
    assert record.exit_code == 0
    contract, text = _packaged(tmp_path / "run", tmp_path / "app")
    meanings = {one.name: one.meaning for one in contract.inputs}
    assert meanings["input_ids"] == "indices"
    assert meanings["attention_mask"] == "mask"
    assert '"attention_mask": np.ones([1, 8], np.int64)' in text
