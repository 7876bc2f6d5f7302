"""Packages of several buckets: what is in them, and which one the loader takes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlprep
from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.package.contract import schema
from dmlprep.portable.buckets import choose
from dmlprep.portable.public import BadInput, Model, PackageDamaged
from dmlprep.portable.sample import example
from dmlprep.record.buckets import BucketsFile
from dmlprep.record.buckets import schema as buckets_schema
from tests.fixtures_index import fixture
from tests.in_process import Run

SIZES = [{"height": 16, "width": 16}, {"height": 24, "width": 16}, {"height": 24, "width": 24}]


@pytest.fixture(scope="session")
def bucketed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with three buckets, which the CPU alone proved."""
    folder = tmp_path_factory.mktemp("buckets") / "out"
    pins = {"batch": 1, "sequence": 7}
    model = fixture("diffusion_unet").path
    done = dmlprep.prepare_buckets(model, out=folder, buckets=SIZES, pins=pins, device="cpu")
    assert done.exit_code == 0
    return folder


@pytest.fixture(scope="session")
def packed(bucketed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of it for Python."""
    folder = tmp_path_factory.mktemp("packages") / "app"
    dmlprep.package_model(bucketed, out=folder, language="python", unproven=True)
    return folder


def test_buckets_are_packaged_without_the_original(bucketed: Path, tmp_path: Path) -> None:
    original = fixture("diffusion_unet").path
    with pytest.raises(ModelRefused, match="with buckets cannot have the original"):
        dmlprep.package_model(bucketed, out=tmp_path / "app", language="python", unproven=True, original=original)


def test_the_contract_names_every_bucket(packed: Path, bucketed: Path) -> None:
    contract = json.loads((packed / "model.json").read_text(encoding="utf-8"))
    jsonschema.validate(contract, schema())
    assert [one["sizes"] for one in contract["buckets"]] == SIZES
    assert {one["model"]["data"][0] for one in contract["buckets"]} == {"buckets.data"}
    assert contract["inputs"] == contract["buckets"][0]["inputs"]
    assert [one["inputs"][0]["shape"][2:] for one in contract["buckets"]] == [[16, 16], [24, 16], [24, 24]]
    assert contract["unproven"][0].startswith("height16-width16: parity on dml")
    found = dmlprep.verify_package(packed)
    assert found.others == []
    readme = (packed / "README.md").read_text(encoding="utf-8")
    assert "| height24-width16 | `height24-width16.onnx` | `sample` 1 x 4 x 24 x 16" in readme
    assert 'Model(sizes={"height": 16, "width": 16})' in readme
    assert 'model.take({"height": 24, "width": 24})' in readme
    jsonschema.validate(json.loads((bucketed / "buckets.json").read_text()), buckets_schema())


@pytest.mark.parametrize(
    ("sizes", "bucket", "padding"),
    [
        ({}, "height16-width16", {}),
        ({"height": 24, "width": 16}, "height24-width16", {}),
        ({"height": 17, "width": 3}, "height24-width16", {"height": 7, "width": 13}),
        ({"height": 8, "width": 20}, "height24-width24", {"height": 16, "width": 4}),
    ],
)
def test_the_loader_takes_the_smallest_with_room(
    sizes: dict[str, int], bucket: str, padding: dict[str, int], packed: Path
) -> None:
    model = Model(packed, device="cpu", sizes=sizes, warm_up=False)
    assert (model.bucket, model.padding) == (bucket, padding)
    answers = model.run({one["name"]: example(one) for one in model.inputs})
    plain = onnxruntime.InferenceSession(str(packed / f"{bucket}.onnx"), providers=["CPUExecutionProvider"])
    expected = plain.run(None, {one["name"]: example(one) for one in model.inputs})
    assert np.allclose(answers["out_sample"], expected[0], atol=1e-5)


def test_another_bucket_by_reopening(packed: Path) -> None:
    model = Model(packed, device="cpu")
    small = {one["name"]: example(one) for one in model.inputs}
    assert model.choose({"height": 20, "width": 20}).padding == {"height": 4, "width": 4}
    model.reopen("cpu", sizes={"height": 24, "width": 24})
    assert model.inputs[0]["shape"] == [1, 4, 24, 24]
    with pytest.raises(BadInput, match="the bucket height24-width24 has fixed sizes: pad the input"):
        model.run(small)
    with pytest.raises(BadInput, match="no bucket has room for height=25, width=1; there are: height16-width16, "):
        model.reopen("cpu", sizes={"height": 25, "width": 1})
    assert model.bucket == "height24-width24"
    with pytest.raises(BadInput, match="the size of 'width' is missing"):
        Model(packed, device="cpu", sizes={"height": 16})
    with pytest.raises(BadInput, match="no free dimension 'depth'; there are: height, width"):
        Model(packed, device="cpu", sizes={"depth": 16})


def test_the_package_runs_without_dmlprep(packed: Path) -> None:
    command = [sys.executable, "-X", "utf8", "sample.py", "cpu", "height=20", "width=16"]
    done = subprocess.run(
        command, check=False, cwd=packed, capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "bucket height24-width16, padding height=4" in done.stdout
    assert "out_sample 1x4x24x16" in done.stdout


def test_files_that_are_not_of_these_buckets(bucketed: Path, packed: Path, tmp_path: Path, run: Run) -> None:
    broken = Path(shutil.copytree(bucketed, tmp_path / "broken"))
    raw = bytearray((broken / "buckets.data").read_bytes())
    raw[100] ^= 1
    (broken / "buckets.data").write_bytes(raw)
    with pytest.raises(InputError, match=r"buckets\.data was changed since it was prepared"):
        dmlprep.package_model(broken, out=tmp_path / "app", language="python", unproven=True)
    app = Path(shutil.copytree(packed, tmp_path / "copy"))
    (app / "height24-width16.onnx").unlink()
    with pytest.raises(PackageDamaged, match=r"height24-width16\.onnx"):
        Model(app, device="cpu", sizes=SIZES[1])
    assert Model(app, device="cpu", sizes=SIZES[2]).bucket == "height24-width24"
    alone = run("package", bucketed / "height24-width16.onnx", "-o", tmp_path / "cpp", "--for", "cpp", "--unproven")
    assert alone.code == 0, alone.err
    assert dmlprep.verify_package(tmp_path / "cpp").contract.model.data == ["buckets.data"]
    assert BucketsFile.read(bucketed / "buckets.json").dimensions == ["height", "width"]


_SIZES = st.fixed_dictionaries({"a": st.integers(1, 9), "b": st.integers(1, 9)})


@settings(max_examples=50)
@given(st.lists(_SIZES, min_size=1, max_size=6), _SIZES)
def test_choosing(buckets: list[dict[str, int]], sizes: dict[str, int]) -> None:
    known: list[dict[str, Any]] = [{"name": str(index), "sizes": one} for index, one in enumerate(buckets)]
    room = [one for one in buckets if one["a"] >= sizes["a"] and one["b"] >= sizes["b"]]
    if not room:
        with pytest.raises(ValueError, match="no bucket has room"):
            choose(known, sizes)
        return
    found = choose(known, sizes)
    assert found.sizes["a"] * found.sizes["b"] == min(one["a"] * one["b"] for one in room)
    assert {name: size + found.padding.get(name, 0) for name, size in sizes.items()} == found.sizes
    if sizes in buckets:
        assert found.padding == {}


def test_a_list_of_buckets_that_names_another_data_file(bucketed: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(bucketed, folder)
    listed = json.loads((folder / "buckets.json").read_text(encoding="utf-8"))
    listed["data"]["file"] = "other.data"
    (folder / "buckets.json").write_text(json.dumps(listed), encoding="utf-8")
    done = run("package", folder, "--for", "python", "--unproven", "-o", tmp_path / "app")
    assert (done.code, done.out) == (2, "")
    assert "buckets.json names a data file 'other.data', which none of its models reads" in done.err
    assert not (tmp_path / "app").exists()
