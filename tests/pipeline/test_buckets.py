"""Buckets: several static graphs with one data file, each proved, all of them written or none."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlprep
from dmlprep.core.errors import InputError, UsageError
from dmlprep.pipeline.buckets.preparing import bucket_name, check_buckets
from dmlprep.record import RunRecord
from dmlprep.record.buckets import BucketsFile
from tests.in_process import Run

Array = np.ndarray[Any, Any]

SMALL, LARGE = {"batch": 1, "rows": 2}, {"batch": 1, "rows": 4}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x w + table[:rows], of shape [batch, rows, 64]; rows can be 1 to 8."""
    random = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array(random.random((64, 64), np.float32), "w"),
        numpy_helper.from_array(random.random((8, 64), np.float32), "table"),
        *(
            numpy_helper.from_array(np.array([n], np.int64), name)
            for name, n in {"zero": 0, "one": 1, "two": 2}.items()
        ),
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "one", "two"], ["rows"]),
        helper.make_node("Slice", ["table", "zero", "rows", "zero"], ["part"]),
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "part"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", "rows", 64]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    path = tmp_path / "in.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _run(path: Path, rows: int) -> Array:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(rows).random((1, rows, 64), np.float32)
    return np.asarray(session.run(None, {"x": x})[0])


def test_buckets_share_one_data_file(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = dmlprep.prepare_buckets(model, out=out, buckets=[SMALL, LARGE], device="cpu")
    assert done.exit_code == 0
    names = [f"batch1-rows{n}{end}" for n in (2, 4) for end in (".onnx", ".run.json")]
    assert sorted(p.name for p in out.iterdir()) == sorted([*names, "buckets.data", "buckets.json"])
    data = (out / "buckets.data").read_bytes()
    found = BucketsFile.read(out / "buckets.json")
    assert found.data is not None
    assert (found.data.bytes, found.data.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    # The product's weights are there once; the parts of the table are too small for the file, or differ.
    raw = numpy_helper.to_array(onnx.load(model).graph.initializer[0]).tobytes()
    assert data.count(raw) == 1
    assert [one.shared_bytes for one in found.buckets] == [0, len(raw)]
    assert [one.inputs["x"] for one in found.buckets] == [[1, 2, 64], [1, 4, 64]]
    for one, rows in zip(found.buckets, (2, 4), strict=True):
        assert hashlib.sha256((out / one.file).read_bytes()).hexdigest() == one.sha256
        record = RunRecord.read(out / one.record)
        assert record.output == str(out / one.file)
        assert record.output_sha256 == one.sha256
        assert [v.outcome for v in record.verdicts if v.decides] == ["passed"]
        onnx.checker.check_model(str(out / one.file))
        assert np.allclose(_run(out / one.file, rows), _run(model, rows), atol=1e-5)


def test_a_bucket_that_fails_leaves_nothing_and_is_named(model: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    # 9 rows of a table of 8: the sum's operands do not fit.
    sizes = ["--bucket", "rows=2", "--bucket", "rows=9", "-p", "batch=1", "--device", "cpu"]
    done = run("prepare", model, "-o", out, *sizes)
    assert done.code == 1
    assert "no bucket is written, because rows9 failed" in done.out
    assert "wrote" not in done.out
    assert not out.exists()
    made = json.loads(run("prepare", model, "-o", out, *sizes, "--format", "json").out)
    assert [(one["output"], one["exit_code"]) for one in made] == [("", 1), ("", 1)]
    assert "another bucket failed: rows9" in made[0]["error"]["what"]


def test_the_next_buckets_replace_the_last_as_a_whole(model: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    command = ("prepare", model, "-o", out, "-p", "batch=1", "--device", "cpu", "-q")
    assert run(*command, "--bucket", "rows=2", "--bucket", "rows=4").code == 0
    (out / "mine.txt").write_text("kept")
    again = run(*command, "--bucket", "rows=4", "--bucket", "rows=6")
    assert (again.code, "pass --force" in again.err) == (2, True)
    assert run(*command, "--bucket", "rows=4", "--bucket", "rows=6", "--force").code == 0
    assert sorted(p.name for p in out.iterdir() if p.suffix == ".onnx") == ["rows4.onnx", "rows6.onnx"]
    assert (out / "mine.txt").exists()


def test_feeds_go_to_the_bucket_of_their_sizes(model: Path, tmp_path: Path) -> None:
    feeds = [{"x": np.ones((1, 4, 64), np.float32)}]
    given: dict[str, Any] = {"buckets": [SMALL, LARGE], "feeds": feeds, "device": "cpu"}
    done = dmlprep.prepare_buckets(model, out=tmp_path / "out", **given)
    assert [r.verdicts[0].inputs for r in done.records.values()] == ["seeded", "given"]
    with pytest.raises(InputError, match="feed 1 has the sizes of no bucket"):
        dmlprep.prepare_buckets(model, out=tmp_path / "other", **{**given, "buckets": [SMALL]})
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--bucket", "rows"], "'rows' is not a valid bucket"),
        (["--bucket", "rows=0"], "'rows' has size 0"),
        (["--bucket", "rows=2", "--bucket", "batch=1"], "set different dimensions"),
        (["--bucket", "rows=2", "--bucket", "rows=2"], "is duplicated"),
        (["--bucket", "rows=2", "-p", "rows=2"], "'rows' has a size for all buckets"),
        (["--bucket", "rows=2", "--record", "r.json"], "--record needs a single bucket"),
        (["--bucket", "lines=2"], "bucket lines2: "),
    ],
)
def test_wrong_buckets_are_told(options: list[str], says: str, model: Path, tmp_path: Path, run: Run) -> None:
    done = run("prepare", model, "-o", tmp_path / "out", "--device", "cpu", *options)
    assert done.code == 2
    assert says in done.err
    assert not (tmp_path / "out").exists()


def test_names_of_buckets() -> None:
    assert bucket_name({"batch": 1, "x:2": 16, "a/b": 3}) == "batch1-x_2_16-a_b3"
    assert list(check_buckets([{"b": 1, "a": 2}, {"a": 3, "b": 1}], {})) == ["b1-a2", "b1-a3"]
    with pytest.raises(UsageError, match="device on Windows"):
        check_buckets([{"com": 1}], {})


def test_a_list_from_outside_removes_nothing_else(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert dmlprep.prepare_buckets(model, out=out, buckets=[SMALL], device="cpu").exit_code == 0
    said = json.loads((out / "buckets.json").read_text())
    for name in ("../in.onnx", "NUL", str(model)):
        said["buckets"][0]["file"] = name
        (out / "buckets.json").write_text(json.dumps(said))
        with pytest.raises(InputError):
            BucketsFile.read(out / "buckets.json")
        done = dmlprep.prepare_buckets(model, out=out, buckets=[SMALL], device="cpu", force=True)
        assert done.exit_code == 0
        assert model.exists()
    said["buckets"][0] |= {"file": "mine.onnx", "record": "mine.txt"}
    for name in ("mine.onnx", "mine.txt"):
        (out / name).write_text("kept")
    (out / "buckets.json").write_text(json.dumps(said))
    assert dmlprep.prepare_buckets(model, out=out, buckets=[LARGE], device="cpu", force=True).exit_code == 0
    assert {"mine.onnx", "mine.txt"} <= {p.name for p in out.iterdir()}
    assert not (out / "batch1-rows2.onnx").exists()


def _prepared(model: Path, out: Path, *buckets: dict[str, int]) -> None:
    run = dmlprep.prepare_buckets(model, out=out, buckets=buckets, device="cpu", force=True)
    assert run.exit_code == 0


def test_of_files_that_a_list_names_only_those_with_its_digests_go(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _prepared(model, out, SMALL, LARGE)
    small, large = bucket_name(SMALL), bucket_name(LARGE)
    mine = {f"{small}.onnx": "mine", f"{small}.run.json": "{}"}
    for name, text in mine.items():
        (out / name).write_text(text)
    _prepared(model, out, {"batch": 1, "rows": 3})
    assert {name: (out / name).read_text() for name in mine} == mine
    assert not (out / f"{large}.onnx").exists()
    assert not (out / f"{large}.run.json").exists()


@pytest.mark.parametrize("name", [".", "..", "", "a/b", "nul"])
@pytest.mark.parametrize("field", ["file", "record"])
def test_a_list_that_names_no_plain_file_is_refused(model: Path, tmp_path: Path, field: str, name: str) -> None:
    out = tmp_path / "out"
    _prepared(model, out, SMALL)
    document = json.loads((out / "buckets.json").read_bytes())
    document["buckets"][0][field] = name
    (out / "buckets.json").write_text(json.dumps(document))
    with pytest.raises(InputError):
        BucketsFile.read(out / "buckets.json")
