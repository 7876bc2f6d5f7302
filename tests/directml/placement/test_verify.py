"""The comparison with a session, on a stand-in that answers from the CPU provider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlprep import runtime
from dmlprep.core.errors import CheckNotRun
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.record import DeviceInfo
from dmlprep.runtime import DmlStatus, SessionFailure, SessionOptions, open_cpu
from dmlprep.runtime.verify_placement import verify_placement
from tests.fixtures_index import fixture

FIXTURE = fixture("residual_cnn")
Open = Callable[[Path, SessionOptions], Any]


def verified(monkeypatch: pytest.MonkeyPatch, opener: Open, target: str = "latest", **options: Any) -> Any:
    monkeypatch.setattr(runtime, "dml_status", lambda *_, **__: DmlStatus(True))
    monkeypatch.setattr(runtime, "open_dml", opener)
    return verify_placement(Model.open(FIXTURE.path), find_target(target), **options)


def feed() -> dict[str, np.ndarray]:
    from dmlprep.parity import make_feeds

    return dict(make_feeds(Model.open(FIXTURE.path), sizes=FIXTURE.pins, count=1)[0])


def test_nodes_that_stand_elsewhere_are_named_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = verified(monkeypatch, open_cpu, feed=feed)
    assert verdict.outcome == "failed"
    *misses, timed = verdict.findings
    assert {f.code for f in misses} == {"DP523"}
    assert timed.code == "DP524"
    rows = timed.facts["nodes"]
    assert {row["name"] for row in rows} >= {miss.node for miss in misses}
    assert {row["provider"] for row in rows} == {"CPUExecutionProvider"}
    assert "Conv" in timed.message
    assert "ms a run" in timed.message


def test_the_session_is_of_the_target_s_release(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def status(*, session: SessionOptions) -> DmlStatus:
        asked.append(session.release)
        return DmlStatus(False, "no sandbox here")

    monkeypatch.setattr(runtime, "dml_status", status)
    with pytest.raises(CheckNotRun, match="no sandbox here"):
        verify_placement(Model.open(FIXTURE.path), find_target("ort-1.30"))
    assert asked == ["1.30.0"]


@pytest.mark.parametrize(("target", "said"), [("ort-1.30", True), ("ort-1.24", False)])
def test_a_session_of_another_release_is_said(monkeypatch: pytest.MonkeyPatch, target: str, said: bool) -> None:
    device = DeviceInfo("dml on linux: lavapipe", onnxruntime="1.24.4")

    def opener(path: Path, options: SessionOptions) -> Any:
        session = open_cpu(path, options)
        session.device = device
        return session

    reason = verified(monkeypatch, opener, target).reason
    assert ("the session used ONNX Runtime 1.24.4, but the target is 1.30.0" in reason) == said


def test_without_a_feed_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SessionOptions] = []

    def opener(path: Path, options: SessionOptions) -> Any:
        asked.append(options)
        return open_cpu(path, options)

    verdict = verified(monkeypatch, opener)
    assert "DP524" not in {f.code for f in verdict.findings}
    assert not asked[0].profile


def test_a_crash_with_fusion_off_is_asked_again_with_fusion_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def opener(path: Path, options: SessionOptions) -> Any:
        asked.append(options.unfused)
        if options.unfused:
            raise SessionFailure("crash", "exception C0000005 in DirectML.dll")
        return open_cpu(path, options)

    verdict = verified(monkeypatch, opener)
    assert asked == [True, False]
    assert "DP523" in {f.code for f in verdict.findings}


def test_a_refusal_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def opener(path: Path, options: SessionOptions) -> Any:
        raise SessionFailure("load", "80070057")

    verdict = verified(monkeypatch, opener)
    assert verdict.outcome == "failed"
    assert "does not load" in verdict.reason


def test_a_release_that_records_no_placement_is_not_the_models_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def opener(path: Path, options: SessionOptions) -> Any:
        def placement() -> None:
            raise SessionFailure("run", "this release does not record placement")

        session = open_cpu(path, options)
        monkeypatch.setattr(session, "placement", placement)
        return session

    with pytest.raises(CheckNotRun, match=r"does not record placement.*ort-1.24 or a newer target"):
        verified(monkeypatch, opener)


def test_times_that_cannot_be_had_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> dict[str, np.ndarray]:
        raise CheckNotRun("input x is not a tensor")

    verdict = verified(monkeypatch, open_cpu, feed=nothing)
    assert verdict.findings[-1].code == "DP524"
    assert "not measured: input x is not a tensor" in verdict.findings[-1].message
