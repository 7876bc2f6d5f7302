"""The key of a kept verdict: another one wherever another verdict could be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlprep.graph.model import Model
from dmlprep.metrics import UserMetric
from dmlprep.parity import Reference
from dmlprep.parity.judging import JudgingOptions
from dmlprep.pipeline import proof_key as module
from dmlprep.pipeline.proof_key import proof_key
from dmlprep.pipeline.recipe import ParitySettings
from dmlprep.runtime import SessionOptions, identity
from dmlprep.runtime.identity import dml_identity
from dmlprep.runtime.types import DmlStatus
from dmlprep.runtime.windows import describe


def write(path: Path, weight: float = 2.0, *, external: bool = False) -> Path:
    """y = x * w + the name of the file, which changes no value."""
    path.parent.mkdir(exist_ok=True)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [numpy_helper.from_array(np.full(4, weight, np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=external, location=f"{path.name}.data", size_threshold=0)
    return path


FEED = {"x": np.arange(4, dtype=np.float32)}


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The key of a small model, with anything changed."""
    monkeypatch.setattr(identity, "dml_identity", lambda session: "a device")

    def of(
        folder: str = "one",
        weight: float = 2.0,
        made: float = 2.0,
        feed: dict[str, Any] = FEED,
        session: SessionOptions | None = None,
        judging_options: JudgingOptions = JudgingOptions(),  # noqa: B008 - frozen
        external: bool = False,
        **settings: Any,
    ) -> str:
        original = write(tmp_path / folder / "m.onnx", weight)
        result = Model.open(write(tmp_path / folder / "out.onnx", made, external=external))
        with Reference.of(original, [feed], like=result, judging_options=judging_options) as reference:
            return proof_key(reference, result, ParitySettings(**settings), session)

    return of


def test_equal_files_have_one_key_wherever_they_lie(key: Any) -> None:
    assert len(key()) == 64
    assert key() == key("two")
    limits = SessionOptions(time_limit=7.0, memory_limit=1 << 30)
    assert key() == key(session=limits) == key(time_limit=7.0) == key(seeds=3)


@pytest.mark.parametrize(
    "changed",
    [
        {"weight": 2.0000002},
        {"made": 2.0000002},
        {"external": True},
        {"feed": {"x": np.array([0, 1, 2, 3.0000002], np.float32)}},
        {"session": SessionOptions(release="1.24.4")},
        {"session": SessionOptions(disable_metacommands=True)},
        {"session": SessionOptions(device_id=1)},
        {"tolerance": "rel:0.01"},
        {"measures": {"y": "elements"}},
        {"noise": "off"},
    ],
)
def test_whatever_a_verdict_depends_on_makes_another_key(changed: dict[str, Any], key: Any) -> None:
    assert key() != key(**changed) != ""


def test_weights_in_a_data_file_count(key: Any) -> None:
    assert key(external=True) != key(external=True, made=3.0)


@pytest.mark.parametrize("what", ["dml_identity", "code_digest"])
def test_another_device_and_other_code_make_another_key(what: str, key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    holder = identity if what == "dml_identity" else module
    monkeypatch.setattr(holder, what, lambda *_: "another")
    assert key() != before


def test_what_is_not_told_apart_is_not_kept(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = UserMetric("mine", lambda one, other: 0.0)
    assert key(judging_options=JudgingOptions(metric=mine)) == ""
    monkeypatch.setattr(identity, "dml_identity", lambda session: "")
    assert key() == ""


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ({"adapter": "GPU", "driver": "31.0.15.4601", "directml": "1.15.4"}, True),
        ({"adapter": "GPU", "directml": "1.15.4"}, False),
        ({"adapter": "llvmpipe (LLVM 19)", "driver": "31.0.0.0"}, False),
        ({"adapter": "Basic Render", "driver": "10.0", "adapter kind": "software"}, False),
        (None, False),
    ],
)
def test_on_windows_a_device_is_told_by_its_driver(
    device: dict[str, str] | None, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = DmlStatus(device is not None, "" if device else "none", device=describe(device) if device else None)
    monkeypatch.setattr("dmlprep.runtime.dml.dml_status", lambda session: status)
    monkeypatch.setattr(identity.sys, "platform", "win32")
    found = dml_identity()
    assert bool(found) is told
    assert not told or all(detail in found for detail in status.device.details)  # type: ignore[union-attr]
    assert dml_identity(SessionOptions(gpu="auto")) == ""
    assert dml_identity(SessionOptions(performance_preference="high_performance")) == ""


@pytest.mark.dml
def test_prepare_measures_equal_models_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    from dmlprep import api

    monkeypatch.setattr(importlib.import_module("dmlprep.pipeline.prepare"), "verdict_folder", lambda: tmp_path / "v")
    model = write(tmp_path / "m" / "m.onnx")

    def verdict(**how: Any) -> Any:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        record = api.prepare(model, out=out, device="dml", feeds=[FEED], **how)
        assert record.exit_code == 0
        return next(v for v in record.verdicts if v.check.provider == "dml")

    first, again = verdict(), verdict()
    if not dml_identity():  # Wine's adapter, whose driver Windows is not told of
        assert (first.measured, again.measured) == ("", "")
        return
    assert (first.measured, bool(again.measured)) == ("", True)
    findings = [f for f in again.findings if f.code != "DP714"]
    assert msgspec.structs.replace(again, measured="", seconds=first.seconds, findings=findings) == first
    assert verdict(fresh=True).measured == ""
    assert verdict(settings={"parity.tolerance": "rel:0.001"}).measured == ""
