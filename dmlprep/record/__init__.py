"""What a run leaves behind: findings, verdicts, steps, and the run record that holds them."""

from dmlprep.record.findings import CODES, SEVERITIES, Code, Finding, Severity, finding
from dmlprep.record.output_metrics import OutputMetrics
from dmlprep.record.run import MADE_INPUTS, DeviceInfo, RunRecord, StepRecord, Verdict

__all__ = [
    "CODES",
    "MADE_INPUTS",
    "SEVERITIES",
    "Code",
    "DeviceInfo",
    "Finding",
    "OutputMetrics",
    "RunRecord",
    "Severity",
    "StepRecord",
    "Verdict",
    "finding",
]
