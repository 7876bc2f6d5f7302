"""The results of a run: findings, verdicts, steps, and the run record with all of them.

Values and their codes belong here; their presentation belongs in ``report``.
"""

from dmlprep.portable.output_metrics import OutputMetrics
from dmlprep.record.check import Check
from dmlprep.record.findings import CODES, SEVERITIES, Code, Finding, Severity, finding
from dmlprep.record.run_record import RunError, RunRecord
from dmlprep.record.steps import StepRecord
from dmlprep.record.verdicts import REAL_INPUTS, DeviceInfo, Verdict

__all__ = [
    "CODES",
    "REAL_INPUTS",
    "SEVERITIES",
    "Check",
    "Code",
    "DeviceInfo",
    "Finding",
    "OutputMetrics",
    "RunError",
    "RunRecord",
    "Severity",
    "StepRecord",
    "Verdict",
    "finding",
]
