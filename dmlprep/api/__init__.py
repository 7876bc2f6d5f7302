"""The public API: everything that the command line does, in Python.

``docs/start.md`` and the reference list the functions.

    import dmlprep

    record = dmlprep.prepare("model.onnx", recipe="@vision-fp16", pins={"batch": 1}, out="out")
    if record.exit_code == 0:
        print(record.output, [str(v.device) for v in record.verdicts])

Paths may be strings or ``pathlib.Path``. Errors are ``dmlprep.core.errors.DmlprepError``: they name the fault,
the place and the fix.
"""

from dmlprep.api.checking import check, check_releases, explain_node, limits, plan_model
from dmlprep.api.comparing import bench, bisect, compare, make_feeds
from dmlprep.api.devices import adapters, find_target, gpus, list_targets
from dmlprep.api.explaining import explain
from dmlprep.api.genai import genai_check, genai_compare, genai_prepare
from dmlprep.api.preparing import Progress, cover_sizes, prepare, prepare_buckets, read_sizes
from dmlprep.api.projects import (
    ProjectRun,
    build_snippet,
    gone_fleet_jobs,
    init_project,
    plan_fleet,
    prepare_fleet,
    prepare_project,
    read_project,
)
from dmlprep.api.recipes import list_recipes, plan, recipe_text, validate_recipe
from dmlprep.api.records import diff_records, read_record, render_record, write_depfile, write_record
from dmlprep.api.shipping import inspect_app, pack_kit, package_model, verify_kit, verify_package, write_nupkg
from dmlprep.api.tuning import choose_kit, tune
from dmlprep.pipeline.options import Adapter, Device, Feeds, Metric, PrepareOptions, Session

__all__ = [
    "Adapter",
    "Device",
    "Feeds",
    "Metric",
    "PrepareOptions",
    "Progress",
    "ProjectRun",
    "Session",
    "adapters",
    "bench",
    "bisect",
    "build_snippet",
    "check",
    "check_releases",
    "choose_kit",
    "compare",
    "cover_sizes",
    "diff_records",
    "explain",
    "explain_node",
    "find_target",
    "genai_check",
    "genai_compare",
    "genai_prepare",
    "gone_fleet_jobs",
    "gpus",
    "init_project",
    "inspect_app",
    "limits",
    "list_recipes",
    "list_targets",
    "make_feeds",
    "pack_kit",
    "package_model",
    "plan",
    "plan_fleet",
    "plan_model",
    "prepare",
    "prepare_buckets",
    "prepare_fleet",
    "prepare_project",
    "read_project",
    "read_record",
    "read_sizes",
    "recipe_text",
    "render_record",
    "tune",
    "validate_recipe",
    "verify_kit",
    "verify_package",
    "write_depfile",
    "write_nupkg",
    "write_record",
]
