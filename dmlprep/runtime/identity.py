"""What tells one DirectML device, with all that computes there, from another, so that no verdict serves for both."""

from __future__ import annotations

import platform
import sys

from dmlprep.core.errors import CheckNotRun
from dmlprep.runtime.types import SessionOptions


def dml_identity(session: SessionOptions | None = None) -> str:
    """The device, its driver, DirectML, ONNX Runtime, and on Linux every file of the runtime and the processor.

    Empty where the device or its driver is not told from others: a GPU on Linux, a software adapter or one chosen by
    preference on Windows; or where DirectML cannot answer.
    """
    from dmlprep.runtime.dml import dml_status, release_for

    session = session or SessionOptions()
    if session.gpu or session.performance_preference != "default":
        return ""
    status = dml_status(session=session)
    if not status.available or status.device is None:
        return ""
    if sys.platform == "win32":
        # The version of a software adapter is not known there: the driver that Wine shows is always the same.
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
