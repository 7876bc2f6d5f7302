"""What a run leaves behind: findings, verdicts, steps, and the run record that holds them."""

from dmlprep.record.findings import CODES, SEVERITIES, Code, Finding, Severity, finding
from dmlprep.record.output_metrics import OutputMetrics
from dmlprep.record.run_record import RunRecord
from dmlprep.record.steps import StepRecord
from dmlprep.record.verdicts import REAL_INPUTS, DeviceInfo, Verdict

__all__ = [
    "CODES",
    "REAL_INPUTS",
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
