"""The whole public surface: what the command line does to models, records, recipes and projects, from Python.

``check``, ``check_releases`` and ``explain`` look at a model; ``plan_model`` says what
``prepare`` would do to it; ``prepare`` makes it ready, ``prepare_buckets`` at several sizes, which ``read_sizes`` and
``cover_sizes`` find in a log, and ``tune`` finds the recipe for that; ``compare`` and ``bisect`` compare two
models, ``bench`` times them, and ``make_feeds`` makes inputs for that; ``pack_kit``, ``verify_kit`` and
``choose_kit`` do so on another machine; ``package_model``, ``verify_package`` and ``write_nupkg`` hand a model to an
app, and ``inspect_app`` looks at what an app has; ``init_project``, ``build_snippet``, ``read_project`` and
``prepare_project`` are for project files, ``plan_fleet``, ``prepare_fleet`` and ``gone_fleet_jobs`` for fleets;
``genai_check`` looks at a folder of onnxruntime-genai, and ``genai_prepare`` makes it ready;
``list_recipes``, ``recipe_text``, ``validate_recipe`` and ``plan`` for recipes; ``read_record``, ``render_record``,
``write_record`` and ``write_depfile`` for records; ``list_targets`` and ``find_target`` for releases; ``adapters`` and,
on Linux, ``gpus`` list the GPUs; ``limits`` sets the safety limits for a model.

    import dmlprep

    record = dmlprep.prepare("model.onnx", recipe="@vision-fp16", pins={"batch": 1}, out="out")
    if record.exit_code == 0:
        print(record.output, [str(v.device) for v in record.verdicts])

Paths may be strings or ``pathlib.Path``. Errors are ``dmlprep.core.errors.DmlprepError``: they say what, where
and how to fix.
"""

from dmlprep.api.checking import check, check_releases, explain, limits, plan_model
from dmlprep.api.comparing import bench, bisect, compare, make_feeds
from dmlprep.api.devices import adapters, find_target, gpus, list_targets
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
from dmlprep.api.records import read_record, render_record, write_depfile, write_record
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
    "explain",
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
