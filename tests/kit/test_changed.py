"""What is changed while a kit is packed: no kit of several models appears."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dmlprep import api
from dmlprep.core.errors import InputError, OutputError
from dmlprep.kit import KitRequest, pack
from tests.changed import Once, added, flip, names
from tests.in_process import Run, run
from tests.system import WINDOWS

__all__ = ["run"]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """``in.onnx`` and its original ``ref.onnx``, each with its data file."""
    added(tmp_path / "in.onnx")
    added(tmp_path / "ref.onnx", 1, 2, 3, 4.001)
    return tmp_path


def _refused(folder: Path, pack: Callable[[], Any]) -> InputError:
    """How packing ends; nothing was written."""
    before = names(folder)
    with pytest.raises(InputError) as refused:
        pack()
    assert names(folder) == before
    assert (refused.value.code, refused.value.exit_code) == ("DP015", 2)
    return refused.value


@pytest.mark.parametrize("name", ["in.onnx", "in.data", "ref.onnx", "ref.data"])
def test_a_model_that_is_changed_while_its_reference_runs(models: Path, name: str) -> None:
    meanwhile = Once(lambda: flip(models / name))
    error = _refused(
        models,
        lambda: api.pack_kit(
            models / "in.onnx", out=models / "kit.zip", reference=models / "ref.onnx", progress=meanwhile
        ),
    )
    assert error.where == str(models / name)


@pytest.mark.parametrize("name", ["in.data", "ref.onnx", "ref.data"])
def test_a_file_that_is_changed_before_its_turn_to_be_packed(models: Path, name: str) -> None:
    meanwhile = Once(lambda: flip(models / name), "packing in.onnx")
    error = _refused(
        models,
        lambda: api.pack_kit(
            models / "in.onnx", out=models / "kit.zip", reference=models / "ref.onnx", progress=meanwhile
        ),
    )
    assert meanwhile.done
    assert error.where == str(models / name)


@pytest.mark.parametrize("name", ["in.onnx", "in.data"])
def test_a_model_that_is_its_own_reference(models: Path, name: str) -> None:
    meanwhile = Once(lambda: flip(models / name))
    _refused(models, lambda: api.pack_kit(models / "in.onnx", out=models / "kit.zip", progress=meanwhile))


@pytest.mark.parametrize("name", ["in.data", "ref.data"])
def test_an_earlier_kit_stays(models: Path, name: str) -> None:
    out = models / "kit.zip"
    api.pack_kit(models / "in.onnx", out=out, reference=models / "ref.onnx")
    content, meanwhile = out.read_bytes(), Once(lambda: flip(models / name))
    _refused(
        models,
        lambda: api.pack_kit(
            models / "in.onnx", out=out, reference=models / "ref.onnx", force=True, progress=meanwhile
        ),
    )
    assert out.read_bytes() == content


@pytest.mark.parametrize("name", ["other.onnx", "other.data"])
def test_a_candidate_that_is_changed(models: Path, name: str) -> None:
    first, other = models / "in.onnx", added(models / "other.onnx", 1, 2, 3, 4.002)
    request = KitRequest(
        first,
        models / "kit.zip",
        models / "ref.onnx",
        candidates={"first": first, "other": other},
        progress=Once(lambda: flip(models / name), "packing in.onnx"),
    )
    assert _refused(models, lambda: pack(request)).where == str(models / name)


@pytest.mark.parametrize("at", ["", "packing in.data"])
def test_a_kit_that_is_refused_leaves_no_new_key(models: Path, at: str) -> None:
    key, out = models / "my.key", models / "kit.zip"
    meanwhile = Once(lambda: flip(models / "ref.data"), at)
    _refused(
        models,
        lambda: api.pack_kit(models / "in.onnx", out=out, reference=models / "ref.onnx", key=key, progress=meanwhile),
    )
    api.pack_kit(models / "in.onnx", out=out, reference=models / "ref.onnx", key=key)
    before = key.read_bytes()
    meanwhile = Once(lambda: flip(models / "ref.data"), at)
    _refused(
        models,
        lambda: api.pack_kit(
            models / "in.onnx", out=out, reference=models / "ref.onnx", key=key, force=True, progress=meanwhile
        ),
    )
    assert key.read_bytes() == before


def test_a_key_that_another_run_makes_meanwhile_stays(models: Path) -> None:
    key, out = models / "my.key", models / "kit.zip"
    other = Once(lambda: key.write_bytes(b"another run's"), "packing in.data")
    with pytest.raises(OutputError, match="another run created this key at the same time"):
        api.pack_kit(models / "in.onnx", out=out, reference=models / "ref.onnx", key=key, progress=other)
    assert key.read_bytes() == b"another run's"
    assert names(models) == ["in.data", "in.onnx", "my.key", "ref.data", "ref.onnx"]


def test_a_recipe_and_an_original_that_the_record_names(models: Path) -> None:
    recipe = models / "own.toml"
    recipe.write_text('doc = "d"\n[step.opset]\n')
    record = api.prepare(models / "ref.onnx", out=models / "out", recipe=recipe, device="cpu")
    assert record.exit_code == 0
    for name in ("own.toml", "ref.data"):
        meanwhile = Once(lambda name=name: flip(models / name))  # type: ignore[misc]
        error = _refused(
            models,
            lambda at=meanwhile: api.pack_kit(  # type: ignore[misc]
                models / "out" / "model.onnx", out=models / "kit.zip", progress=at
            ),
        )
        assert error.where == str(models / name)
        flip(models / name)
    assert api.pack_kit(models / "out" / "model.onnx", out=models / "kit.zip").manifest.reference.name == "ref.onnx"


def test_a_file_that_is_gone(models: Path) -> None:
    meanwhile = Once((models / "in.data").unlink, "packing in.onnx")
    with pytest.raises(InputError, match="DP015") as refused:
        api.pack_kit(models / "in.onnx", out=models / "kit.zip", reference=models / "ref.onnx", progress=meanwhile)
    assert refused.value.where == str(models / "in.data")
    assert names(models) == ["in.onnx", "ref.data", "ref.onnx"]


def test_what_changes_nothing_for_the_kit(models: Path) -> None:
    """A copy of the same contents, and a file that is in the kit already."""

    def copied() -> None:
        shutil.copyfile(models / "ref.data", models / "copy")
        if not WINDOWS:  # which replaces no file that somebody has mapped
            (models / "copy").replace(models / "ref.data")
        flip(models / "in.onnx")

    before = hashlib.sha256((models / "in.onnx").read_bytes()).hexdigest()
    meanwhile = Once(copied, "packing in.data")
    packed = api.pack_kit(models / "in.onnx", out=models / "kit.zip", reference=models / "ref.onnx", progress=meanwhile)
    assert meanwhile.done
    assert packed.manifest.files["model/model.onnx"].sha256 == before
    with zipfile.ZipFile(models / "kit.zip") as archive:
        assert hashlib.sha256(archive.read("model/model.onnx")).hexdigest() == before


def test_the_command(models: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    change = nullcontext(Once(lambda: flip(models / "ref.data")))
    monkeypatch.setattr("dmlprep.cli.kit.progress_line", lambda quiet: change)
    done = run("kit", models / "in.onnx", "-o", models / "kit.zip", "--reference", models / "ref.onnx")
    assert done.code == 2
    assert "DP015" in done.err
    assert names(models) == ["in.data", "in.onnx", "ref.data", "ref.onnx"]


@pytest.mark.parametrize("name", ["ref.onnx", "ref.data"])
def test_an_original_that_was_changed_since_it_was_prepared(models: Path, name: str) -> None:
    out = models / "out"
    assert api.prepare(models / "ref.onnx", out=out, pins={"batch": 2}, device="cpu").exit_code == 0
    api.pack_kit(out / "model.onnx", out=models / "kit.zip")
    if name == "ref.onnx":  # still a model
        proto = onnx.load(models / name, load_external_data=False)
        proto.doc_string = "another"
        (models / name).write_bytes(proto.SerializeToString())
    else:
        flip(models / name)
    before = names(models)
    with pytest.raises(InputError, match="changed after") as refused:
        api.pack_kit(out / "model.onnx", out=models / "again.zip")
    assert (refused.value.code, refused.value.where) == ("DP811", str(models / name))
    assert names(models) == before


def test_an_original_with_data_files_of_one_name(tmp_path: Path) -> None:
    weights = [np.full(4, value, np.float32) for value in (1, 2)]
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 4] x) => (float[batch, 4] y)
    <float[4] a = {1, 1, 1, 1}, float[4] b = {2, 2, 2, 2}> { z = Add(x, a) y = Mul(z, b) }"""
    proto = onnx.parser.parse_model(text)
    for folder, tensor, array in zip(("one", "two"), proto.graph.initializer, weights, strict=True):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.bin").write_bytes(array.tobytes())
        tensor.ClearField("float_data")
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"{folder}/w.bin")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    out = tmp_path / "out"
    assert api.prepare(tmp_path / "m.onnx", out=out, pins={"batch": 2}, device="cpu").exit_code == 0
    api.pack_kit(out / "model.onnx", out=tmp_path / "kit.zip")
    assert (tmp_path / "kit.zip").is_file()


def test_a_record_whose_digests_make_no_sense(models: Path) -> None:
    out = models / "out"
    api.prepare(models / "ref.onnx", out=out, pins={"batch": 2}, device="cpu")
    record = json.loads((out / "run.json").read_bytes())
    record["facts"]["digests"] = {str(models / "ref.data"): "no digest", "": "7"}
    (out / "run.json").write_text(json.dumps(record), encoding="utf-8")
    api.pack_kit(out / "model.onnx", out=models / "kit.zip")
    assert (models / "kit.zip").is_file()
