"""On the real provider: each quirk fails or differs before the rewrite, and is right after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.targets import find_target
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, dml_host, dml_status, open_dml
from tests.passes.fix_quirks.cases import CASES, Case
from tests.passes.fix_quirks.test_fix_quirks import fixed, on_cpu

pytestmark = [pytest.mark.dml, pytest.mark.slow]

# DirectML's FP32 against the CPU's, of values around 1.
CLOSE = 1e-4


class Device:
    """Sessions on one worker, a new one after a crash.

    Args:
        release: of onnxruntime-directml; empty for the newest installed.
    """

    def __init__(self, release: str = "") -> None:
        self.release = release
        self.host: SessionHost = dml_host(release)
        self.says_where = not release or int(release.split(".")[1]) >= 24
        self.providers: set[str] = set()

    def run(self, case: Case, model: onnx.ModelProto, folder: Path) -> dict[str, np.ndarray]:
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        options = SessionOptions(
            optimization="all" if case.optimized else "disabled",
            unfused=case.unfused,
            record_placement=self.says_where,
            time_limit=120,
        )
        try:
            with open_dml(path, options, self.host) as session:
                self.providers = {n.provider for n in session.placement()} if self.says_where else set()
                session.run(case.feeds)  # its memory is zeros; that of the second run is not
                return session.run(case.feeds)
        except SessionFailure as failure:
            if failure.kind not in ("load", "run"):
                self.host.close()
                self.host = dml_host(self.release)
            raise


class Devices:
    """A device for each target that is installed here."""

    def __init__(self) -> None:
        self.opened: dict[str, Device] = {}

    def of(self, target: str) -> Device:
        if target not in self.opened:
            release = "" if target == find_target().name else find_target(target).ort_version
            status = dml_status(release)
            if not status.available:
                pytest.skip(f"no DirectML: {status.reason}")
            self.opened[target] = Device(release)
        return self.opened[target]


@pytest.fixture(scope="module")
def devices() -> Iterator[Devices]:
    made = Devices()
    yield made
    for device in made.opened.values():
        device.host.close()


def right(case: Case, found: dict[str, np.ndarray]) -> bool:
    """Whether the outputs are the CPU's."""
    names = [o.name for o in case.model.graph.output]
    exact = on_cpu(case.model, case.feeds, case.cpu_level, saturates=case.quirk != "redundant-clip")
    for name, expected in zip(names, exact, strict=True):
        got = found[name]
        if got.shape != expected.shape:
            return False
        if not np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=CLOSE, atol=CLOSE):
            return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_fails_before_and_is_right_after(case: Case, devices: Devices, tmp_path: Path) -> None:
    device = devices.of(case.target)
    try:
        wrong = not right(case, device.run(case, case.model, tmp_path))
    except SessionFailure:
        wrong = True
    if case.quirk == "gelu-decomposed":  # right, but not where it should run
        wrong = "CPUExecutionProvider" in device.providers
    assert wrong, "the quirk does not show on this provider"
    after, _, _ = fixed(case.model, case.target)
    assert right(case, device.run(case, ir.to_proto(after.ir), tmp_path))
    # Shape arithmetic stays on the CPU.
    sizes = {"CPUExecutionProvider"} if any(n.op_type == "Shape" for n in case.model.graph.node) else set[str]()
    assert device.providers <= {"DmlExecutionProvider", *sizes}
