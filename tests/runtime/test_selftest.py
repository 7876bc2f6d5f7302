"""The self-test believes nothing: a device that computes garbage is found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlprep.runtime import cpu_host
from dmlprep.runtime.dml import run_test, status_from
from dmlprep.runtime.selftest import self_test
from dmlprep.runtime.served import Session, SessionHost
from dmlprep.runtime.types import Fp16Traits, SessionOptions


class Bent:
    """A host on the CPU whose outputs are bent."""

    def __init__(self, host: SessionHost, bend: Any) -> None:
        self.host, self.bend, self.facts = host, bend, {"adapter": "bent", "native fp16": "no"}

    def open(self, path: Path, options: SessionOptions | None = None) -> Session:
        session = self.host.open(path, options)
        honest = session.run

        def run(feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
            return {name: self.bend(array) for name, array in honest(feeds, outputs).items()}

        session.run = run  # type: ignore[method-assign]
        return session

    def __enter__(self) -> Bent:
        return self

    def __exit__(self, *_: object) -> None:
        self.host.close()


@pytest.fixture(scope="module")
def host() -> Any:
    with cpu_host() as made:
        yield made


def test_the_cpu_passes_and_is_read_right(host: SessionHost) -> None:
    found = self_test(host)
    assert found.failures == ()
    assert len(found.passed) == 9
    assert found.fp16 == Fp16Traits("nearest-even", "infinity", "kept")


@pytest.mark.parametrize(
    ("bend", "word"),
    [
        (np.zeros_like, "off by"),
        (lambda a: a * a.dtype.type(1.001) if a.dtype.kind == "f" else a, "off by"),
        (lambda a: np.full_like(a, np.nan) if a.dtype.kind == "f" else a, "off by"),
        (lambda a: a.reshape(-1), "the shape is"),
    ],
)
def test_garbage_is_never_a_verdict(host: SessionHost, bend: Any, word: str) -> None:
    found = self_test(Bent(host, bend))  # type: ignore[arg-type]
    assert any(word in failure for failure in found.failures)


def test_truncation_and_saturation_are_told() -> None:
    def bend(a: np.ndarray) -> np.ndarray:
        return a

    class Truncating(Bent):
        def open(self, path: Path, options: SessionOptions | None = None) -> Session:
            session = super().open(path, options)
            honest = session.run

            def run(feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
                x = feeds.get("x")
                out = honest(feeds, outputs)
                if x is not None and out["y"].dtype == np.float16 and x.dtype == np.float32:
                    bits = np.clip(x, -65504, 65504).astype(np.float16)
                    over = np.abs(bits.astype(np.float32)) > np.abs(x)
                    out["y"] = np.where(over, np.nextafter(bits, np.float16(0)), bits)
                return out

            session.run = run  # type: ignore[method-assign]
            return session

    with cpu_host() as host:
        status = status_from(run_test(lambda: Truncating(host, bend)), lambda facts, traits: None)  # type: ignore
    assert status.available
    assert (status.fp16.rounding, status.fp16.overflow) == ("toward-zero", "saturates")
    assert status.native_fp16 is False


def test_a_device_that_does_not_start_is_not_available() -> None:
    from dmlprep.process.failure import failure

    def make() -> SessionHost:
        raise failure("crash", "it ended with exit code 3")

    status = status_from(run_test(make), lambda facts, traits: None)  # type: ignore
    assert not status.available
    assert "exit code 3" in status.reason
