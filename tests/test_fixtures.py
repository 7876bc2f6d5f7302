"""The fixture models are what their generator writes, valid, and runnable; the broken ones are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from dmlprep.core.errors import DmlprepError, InputError
from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import check
from fixtures.make import MODELS, files
from tests.fixtures_index import BROKEN, FIXTURES, FOLDER, Fixture


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    return files()


def test_the_generator_writes_these_bytes_again(made: dict[str, bytes]) -> None:
    differing = [name for name, data in made.items() if (FOLDER / name).read_bytes() != data]
    assert differing == [], "run python -m fixtures.make"


def test_every_file_comes_from_the_generator(made: dict[str, bytes]) -> None:
    there = {p.relative_to(FOLDER).as_posix() for folder in ("models", "broken") for p in (FOLDER / folder).iterdir()}
    assert there == set(made)


def test_they_are_small(made: dict[str, bytes]) -> None:
    assert sum(map(len, made.values())) < 3_000_000


def test_the_index_lists_every_model() -> None:
    assert [f.name for f in FIXTURES] == [build.__name__ for build in MODELS]


def test_the_index_lists_every_broken_file() -> None:
    assert set(BROKEN) == {p.stem for p in (FOLDER / "broken").glob("*.onnx")}


def test_each_is_valid_and_loads() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    wrong = []
    for fixture in FIXTURES:
        try:
            onnx.checker.check_model(fixture.path, full_check=True)
            session = onnxruntime.InferenceSession(fixture.path, options, providers=["CPUExecutionProvider"])
            assert session.get_outputs()
        except Exception as error:  # whatever onnx and ONNX Runtime raise
            wrong.append(f"{fixture.name}: {error!r}")
    assert wrong == []


def test_pins_name_dimensions_that_the_model_has() -> None:
    assert [text for fixture in FIXTURES for text in _wrong_pins(fixture)] == []


def _wrong_pins(fixture: Fixture) -> Iterator[str]:
    model = onnx.load(fixture.path, load_external_data=False)
    dims = [(i.name, axis, d) for i in model.graph.input for axis, d in enumerate(i.type.tensor_type.shape.dim)]
    known = {d.dim_param for *_, d in dims} | {f"{name}:{axis}" for name, axis, _ in dims}
    yield from (f"{fixture.name} has no dimension {pin}" for pin in set(fixture.pins) - known)
    initializers = {t.name for t in model.graph.initializer}
    for name, axis, d in dims:
        if name not in initializers and d.dim_value <= 0 and not {d.dim_param, f"{name}:{axis}"} & set(fixture.pins):
            yield f"{fixture.name}: {name}:{axis} is free"


def _refusal(path: Path) -> DmlprepError | None:
    try:
        model = Model.open(path)
    except DmlprepError as error:
        return error
    wrong = check(model.ir)
    return InputError(wrong, where=str(path)) if wrong else None


# onnx's checker accepts an opset that does not exist; the opset step refuses it (tests/test_user_day.py).
@pytest.mark.parametrize("name", sorted(set(BROKEN) - {"opset_from_the_future"}))
def test_a_broken_file_is_refused_with_exit_code_2(name: str) -> None:
    path = FOLDER / "broken" / f"{name}.onnx"
    error = _refusal(path)
    assert error is not None, f"{name} was opened and called valid"
    assert error.exit_code == 2
    assert str(path) in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_linked_data_is_refused(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(np.zeros(16, np.float32).tobytes())
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "model.onnx"
    path.write_bytes((FOLDER / "broken" / "data_missing.onnx").read_bytes())
    getattr(tmp_path / "model" / "not_there.bin", link)(outside)
    with pytest.raises(DmlprepError) as caught:
        Model.open(path)
    assert caught.value.exit_code == 2
    assert caught.value.code == "DP002"
