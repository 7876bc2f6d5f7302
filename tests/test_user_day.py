"""A user's day: whole commands on fixture models; exit codes, what is written, and what is left alone."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnxruntime
import pytest

from dmlprep.core.files.writing import Writer
from dmlprep.record import RunRecord
from tests.fixtures_index import BROKEN, FIXTURES, FOLDER, Fixture, fixture
from tests.in_process import Run
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here
from tests.parity.comparing import compare


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pins(one: Fixture) -> list[str]:
    return [part for name, size in one.pins.items() for part in ("--pin", f"{name}={size}")]


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*")} if folder.exists() else set()


# One of each kind; tests/test_contracts.py runs every pass over every fixture.
CHOSEN = (
    "residual_cnn",
    "detector_nms",
    "super_resolution",
    "external_cnn",
    "opset22_cnn",
    "bert_encoder",
    "decoder_cache",
    "dynamo_decoder",
    "diffusion_unet",
    "speech_encoder",
    "if_branches",
    "local_functions",
    "mlp_anonymous",
)


_LONG = {"bert_encoder", "decoder_cache", "diffusion_unet", "speech_encoder"}


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in _LONG)) for one in CHOSEN])
def test_prepare_with_the_fitting_recipe(name: str, run: Run, tmp_path: Path) -> None:
    one = fixture(name)
    sources = [one.path, *one.path.parent.glob(f"{one.path.name}.data")]
    before = [digest(p) for p in sources]
    done = run("prepare", one.path, "-o", tmp_path / "out", "--recipe", one.recipe, *pins(one))
    assert [digest(p) for p in sources] == before
    assert "Traceback" not in done.err
    assert done.code == 0, done.out + done.err
    assert files(tmp_path / "out") == {"model.onnx", "run.json"}
    model = onnx.load(tmp_path / "out" / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    for value in [*model.graph.input, *model.graph.output]:
        sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
        assert value.name in one.dynamic or all(size > 0 for size in sizes), value
    assert next(o.version for o in model.opset_import if not o.domain) <= 25
    assert onnxruntime.InferenceSession(model.SerializeToString()).get_outputs()
    record = RunRecord.from_json((tmp_path / "out" / "run.json").read_bytes())
    assert record.exit_code == 0
    assert record.input_sha256 == before[0]
    assert record.output_sha256 == digest(tmp_path / "out" / "model.onnx")
    cpu, *half, dml = record.verdicts
    made_half = any(t.data_type == onnx.TensorProto.FLOAT16 for t in model.graph.initializer)
    assert [(str(v.check), v.outcome) for v in half] == [("fp16 emulation (storage)", "passed")] * made_half
    assert (str(cpu.check), cpu.outcome) == ("parity on cpu", "passed")
    assert cpu.feeds == 2
    assert cpu.outputs
    assert dml.outcome == "not-run"
    assert dml.reason
    if "fp16" in one.recipe:
        assert any(t.data_type == onnx.TensorProto.FLOAT16 for t in model.graph.initializer)
        assert "not FP16 arithmetic" in str(cpu.device)
        assert "proved on the CPU" in done.out


def test_what_was_prepared_can_be_prepared_again(run: Run, tmp_path: Path) -> None:
    one = fixture("residual_cnn")
    assert run("prepare", one.path, "-o", tmp_path / "a", "--recipe", one.recipe, *pins(one)).code == 0
    again = run("prepare", tmp_path / "a" / "model.onnx", "-o", tmp_path / "b", "--recipe", one.recipe)
    assert again.code == 0, again.err
    assert digest(tmp_path / "a" / "model.onnx") == digest(tmp_path / "b" / "model.onnx")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_clear_line_and_exit_code_2(name: str, run: Run, tmp_path: Path) -> None:
    path = FOLDER / "broken" / f"{name}.onnx"
    before = digest(path)
    done = run("prepare", path, "-o", tmp_path / "out")
    # What onnx's checker takes is refused by the step that meets the fault, with exit code 1.
    late = name in ("opset_from_the_future", "wrong_type")
    assert done.code == (1 if late else 2), done.out + done.err
    assert "Traceback" not in done.err + done.out
    assert not (tmp_path / "out").exists()
    assert digest(path) == before
    if done.code == 2:
        assert done.out == ""
        errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, done.err
        assert str(path) in errors[0]


@pytest.mark.parametrize("command", ["check", "prepare", "compare", "bisect"])
@pytest.mark.parametrize("what", ["directory", "missing", "text", "empty"])
def test_what_is_no_model(command: str, what: str, run: Run, tmp_path: Path) -> None:
    path = {
        "directory": tmp_path,
        "missing": tmp_path / "missing.onnx",
        "text": FOLDER / "broken" / "text.onnx",
        "empty": FOLDER / "broken" / "empty.onnx",
    }[what]
    more = {"prepare": ["-o", tmp_path / "out"], "compare": [path], "bisect": [path, "-o", tmp_path / "out"]}
    done = run(command, path, *more.get(command, []))
    assert done.code == 2, done.out + done.err
    assert "Traceback" not in done.err
    assert [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert not (tmp_path / "out").exists()


def test_demanded_directml_that_is_not_there_is_exit_code_3(run: Run, tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("a Windows machine may have DirectML")
    one = fixture("residual_cnn")
    done = run("prepare", one.path, "-o", tmp_path / "out", "--recipe", "@static-fp32", "--require-dml", *pins(one))
    assert done.code == 3, done.out + done.err
    assert "runtime install" in done.out + done.err
    assert not (tmp_path / "out").exists()


def test_output_that_is_there_is_kept(run: Run, tmp_path: Path) -> None:
    one = fixture("residual_mlp_deep")
    (tmp_path / "model.onnx").write_bytes(b"mine")
    done = run("prepare", one.path, "-o", tmp_path, "--recipe", "@static-fp32", *pins(one))
    assert (done.code, (tmp_path / "model.onnx").read_bytes()) == (2, b"mine")
    assert "--force" in done.err
    assert run("prepare", one.path, "-o", tmp_path, "--recipe", "@static-fp32", "--force", *pins(one)).code == 0
    assert (tmp_path / "model.onnx").read_bytes() != b"mine"


def test_the_input_cannot_be_the_output(run: Run, tmp_path: Path) -> None:
    shutil.copy(fixture("residual_mlp_deep").path, tmp_path / "model.onnx")
    before = digest(tmp_path / "model.onnx")
    done = run("prepare", tmp_path / "model.onnx", "-o", tmp_path, "--force", "--pin", "batch=1")
    assert done.code == 2
    assert digest(tmp_path / "model.onnx") == before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--pin", "bacth=1"], "batch"),
        (["--pin", "batch=1", "--pin", "batch=2"], "two sizes"),
        (["--pin", "batch"], "NAME=SIZE"),
        (["--recipe", "@vision-fp61"], "@vision-fp16"),
        (["--set", "step.pin.sises=1"], "sizes"),
        (["--target", "ort-9"], "ort-1.24"),
        (["--feeds", "nothing.npz"], "no such file"),
    ],
)
def test_mistyped_options_name_what_is_meant(arguments: list[str], word: str, run: Run, tmp_path: Path) -> None:
    done = run("prepare", fixture("residual_mlp_deep").path, "-o", tmp_path / "out", *arguments)
    assert done.code == 2, done.out + done.err
    assert word in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


class _Full:
    """A file on a disk that has room for a few bytes more."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        if self._file.tell() + len(data) > 1000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_full_disk_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Writer.open
    monkeypatch.setattr(Writer, "open", lambda self, target: _Full(opened(self, target)))
    one = fixture("residual_mlp_deep")
    done = run("prepare", one.path, "-o", tmp_path / "deep" / "out", "--recipe", "@denote-only")
    assert done.code == 2, done.out + done.err
    assert "disk is full" in done.err
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize("ending", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("after", [0.8, pytest.param(2.5, marks=pytest.mark.slow)])
def test_stopping_leaves_no_half_written_output(ending: str, after: float, tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("signals are sent otherwise on Windows")
    one = fixture("diffusion_unet")
    command = [
        sys.executable,
        "-m",
        "dmlprep",
        "prepare",
        one.path,
        "-o",
        tmp_path / "out",
        "-r",
        one.recipe,
        *pins(one),
    ]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "no-runtime"), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    time.sleep(after)
    process.send_signal(getattr(signal, ending))
    _, err = process.communicate(timeout=120)
    left = files(tmp_path / "out")
    if process.returncode == 0:  # it was done before the signal came
        assert left == {"model.onnx", "run.json"}
        return
    number = int(getattr(signal, ending))
    assert process.returncode in (128 + number, -number), err
    assert left in (set(), {"model.onnx", "run.json"})
    assert files(tmp_path / "tmp") == set(), "temporary files are left"
    if process.returncode > 0:
        assert "Traceback" not in err


def test_compare_says_equal_different_and_not_run(run: Run, tmp_path: Path) -> None:
    source = fixture("residual_mlp_deep").path
    model = onnx.load(source)
    next(n for n in model.graph.node if n.op_type == "Tanh").op_type = "Sigmoid"
    onnx.save(model, tmp_path / "other.onnx")
    assert run("compare", source, source).code == 0
    different = run("compare", source, tmp_path / "other.onnx", "--format", "json")
    assert different.code == 1
    assert json.loads(different.out)["outcome"] == "failed"
    baked = fixture("baked_batch").path
    not_run = run("compare", baked, baked, "--size", "batch=3")
    assert not_run.code == 3
    assert "not-run" in not_run.out


def test_the_users_feeds_are_what_is_proved_with(run: Run, tmp_path: Path) -> None:
    source = fixture("residual_mlp_deep").path
    np.savez(tmp_path / "feeds.npz", x=np.ones((3, 12), np.float32))
    fits = run("compare", source, source, "--feeds", tmp_path / "feeds.npz", "--format", "json")
    assert json.loads(fits.out)["feeds"] == 1
    np.savez(tmp_path / "bad.npz", x=np.ones((3, 13), np.float32))
    bad = run("compare", source, source, "--feeds", tmp_path / "bad.npz")
    assert bad.code == 2
    assert "axis 1 of input 'x' is 12" in bad.err


def test_a_model_that_a_step_breaks_is_not_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a pass does wrong: parity fails, exit 1, no output."""
    from dmlprep.passes.denote import DenotePass

    def wrong(self: DenotePass, model: Any, context: Any) -> bool:
        next(n for n in model.ir.graph if n.op_type == "Tanh").op_type = "Sigmoid"
        return True

    monkeypatch.setattr(DenotePass, "run", wrong)
    one = fixture("residual_mlp_deep")
    done = run("prepare", one.path, "-o", tmp_path / "out", "--recipe", "@denote-only", "--record", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    assert not (tmp_path / "out").exists()
    record = RunRecord.from_json((tmp_path / "r.json").read_bytes())
    assert record.exit_code == 1
    assert record.verdicts[0].outcome == "failed"
    assert "DP701" in {f.code for f in record.all_findings()}


def test_names_with_blanks_and_other_letters(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "Modèle für Tür & テスト"
    folder.mkdir()
    for name in ("external_cnn.onnx", "external_cnn.onnx.data"):
        shutil.copy(FOLDER / "models" / name, folder / name)
    done = run(
        "prepare", folder / "external_cnn.onnx", "-o", folder / "out put", "--recipe", "@static-fp32", "-p", "batch=1"
    )
    assert done.code == 0, done.out + done.err
    assert compare(folder / "external_cnn.onnx", folder / "out put" / "model.onnx").outcome == "passed"


def test_every_fixture_has_a_recipe_that_is_there() -> None:
    from dmlprep.pipeline.recipe import builtin_names

    assert {f.recipe for f in FIXTURES} <= set(builtin_names())


FREE = [
    ("@denote-only", "bert_encoder"),
    ("@check-only", "unet_resize"),
    ("@llm-fp16", "decoder_cache"),
    ("@llm-int4", "decoder_cache"),
]


@pytest.mark.parametrize(("recipe", "name"), FREE)
def test_recipes_that_leave_sizes_free(recipe: str, name: str, run: Run, tmp_path: Path) -> None:
    one = fixture(name)
    done = run("prepare", one.path, "-o", tmp_path / "out", "--recipe", recipe)
    assert done.code == 0, done.out + done.err
    prepared = onnx.load(tmp_path / "out" / "model.onnx")
    dims = [d for i in prepared.graph.input for d in i.type.tensor_type.shape.dim]
    assert any(d.dim_param for d in dims)
    assert any(d.denotation for d in dims) == (recipe == "@denote-only")
    halves = any(t.data_type == onnx.TensorProto.FLOAT16 for t in prepared.graph.initializer)
    assert halves == recipe.startswith("@llm")


def test_every_built_in_recipe_is_tried_here() -> None:
    from dmlprep.pipeline.recipe import builtin_names

    tried = {fixture(name).recipe for name in CHOSEN} | {recipe for recipe, _ in FREE}
    assert tried == set(builtin_names())
