"""Identify a DirectML device and all software that computes on it. A verdict is only reused for an equal identity."""

from __future__ import annotations

import platform
import sys

from dmlprep.core.errors import CheckNotRun
from dmlprep.runtime.types import SessionOptions


def dml_identity(session: SessionOptions | None = None) -> str:
    """Return the device, its driver, DirectML, ONNX Runtime, and on Linux a digest of the runtime and the processor.

    The result is one text, for comparison only. It is empty if DirectML is not available, or if the device or its
    driver cannot be identified. Examples are a GPU on Linux, and a software adapter or a preference on Windows.
    """
    from dmlprep.runtime.dml import dml_status, release_for

    session = session or SessionOptions()
    if session.gpu or session.performance_preference != "default":
        return ""
    status = dml_status(session=session)
    if not status.available or status.device is None:
        return ""
    if sys.platform == "win32":
        # The version of a software adapter is unknown on Windows, and the driver that Wine shows is always the same.
        known = status.device.driver and not status.device.software
        return f"windows {platform.version()}, {status.device}" if known else ""
    from dmlprep.runtime.linux.install import fingerprint
    from dmlprep.runtime.linux.layout import Layout

    try:
        layout = Layout.of_user()
        release = release_for(session.release) or layout.release_for()
        return f"linux {fingerprint(layout, release)}, {status.device}"
    except (CheckNotRun, OSError):
        return ""
