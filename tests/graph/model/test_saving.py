"""Saving: whole or not at all, never over the input, equal to what was opened."""

from __future__ import annotations

import errno
import hashlib
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.core.errors import OutputError
from dmlprep.core.files.writing import write_file
from dmlprep.graph.model import Model
from tests.graph.model.conftest import mlp


def _same(path: Path, want: onnx.ModelProto) -> None:
    onnx.checker.check_model(str(path), full_check=True)
    got = onnx.load(path)
    assert {t.name: onnx.numpy_helper.to_array(t).tobytes() for t in got.graph.initializer} == {
        t.name: onnx.numpy_helper.to_array(t).tobytes() for t in want.graph.initializer
    }
    assert [(n.name, n.op_type, list(n.input), list(n.output)) for n in got.graph.node] == [
        (n.name, n.op_type, list(n.input), list(n.output)) for n in want.graph.node
    ]
    branch, wanted = (next(a.g for a in m.graph.node[5].attribute if a.name == "then_branch") for m in (got, want))
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(branch.initializer[0], str(path.parent)),
        onnx.numpy_helper.to_array(wanted.initializer[0]),
    )
    assert got.graph.input[0].type.tensor_type.shape.dim[0].denotation == "DATA_BATCH"
    assert got.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [(p.key, p.value) for p in got.metadata_props] == [("author", "tests")]


@pytest.mark.parametrize("which", ["mlp_path", "external_path"])
@pytest.mark.parametrize("external_over", [0, 1 << 30])
def test_round_trip(which: str, external_over: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source: Path = request.getfixturevalue(which)
    before = {p: p.read_bytes() for p in source.parent.iterdir()}
    target = tmp_path / "out" / "model.onnx"
    saved = Model.open(source).save(target, external_over=external_over)
    _same(target, mlp())
    assert [p.name for p in saved.files] == (
        ["model.onnx", "model.onnx.data"] if external_over == 0 else ["model.onnx"]
    )
    assert sorted(p.name for p in target.parent.iterdir()) == sorted(p.name for p in saved.files)
    assert saved.sha256 == hashlib.sha256(target.read_bytes()).hexdigest()
    assert {p: p.read_bytes() for p in source.parent.iterdir()} == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
def test_what_closing_cannot_write_is_removed(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OutputError, match="cannot be written"):  # 2000 bytes lie in the buffer until it is closed
            write_file(tmp_path / "small", b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_existing_files_are_kept_without_force(mlp_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.onnx"
    target.write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        Model.open(mlp_path).save(target)
    assert target.read_text() == "mine"
    Model.open(mlp_path).save(target, force=True)
    _same(target, mlp())


def test_the_input_is_never_overwritten(mlp_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "big.onnx"
    Model.open(mlp_path).save(target, external_over=0)
    before = [p.read_bytes() for p in (target, tmp_path / "big.onnx.data")]
    with pytest.raises(OutputError, match="never overwrites"):
        Model.open(target).save(target, external_over=0, force=True)
    assert [p.read_bytes() for p in (target, tmp_path / "big.onnx.data")] == before


class _Failing(ir.Tensor):  # type: ignore[misc]
    error: BaseException

    def tofile(self, file: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device"), RuntimeError("x")]
)
@pytest.mark.parametrize("external_over", [0, 1 << 30])
def test_nothing_half_written_stays(mlp_path: Path, tmp_path: Path, error: BaseException, external_over: int) -> None:
    model = Model.open(mlp_path)
    bad = _Failing(np.zeros((64, 64), np.float32), name="w")
    bad.error = error
    model.ir.graph.initializers["w"].const_value = bad
    out = tmp_path / "out"
    expected: type[BaseException] = OutputError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        model.save(out / "model.onnx", external_over=external_over)
    assert list(out.iterdir()) == []


def test_full_disk_is_said_before_the_work(mlp_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(OutputError, match="disk is full"):
        Model.open(mlp_path).save(tmp_path / "out" / "model.onnx")


def test_a_tensor_shared_by_two_initializers_is_written_once(mlp_path: Path, tmp_path: Path) -> None:
    model = Model.open(mlp_path)
    graph = model.ir.graph
    other = ir.Value(
        name="w2",
        const_value=graph.initializers["w"].const_value,
        type=ir.TensorType(ir.DataType.FLOAT),
        shape=ir.Shape([64, 64]),
    )
    graph.register_initializer(other)
    saved = model.save(tmp_path / "m.onnx", external_over=0)
    assert saved.files[1].stat().st_size < 64 * 64 * 4 * 2 + 64 * 64 * 4
