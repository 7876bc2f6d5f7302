"""What is packaged, what is refused, and what a package says of itself."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import dmlprep
from dmlprep.core.errors import CheckNotRun, InputError, ModelRefused, OutputError
from dmlprep.graph.model import Model
from dmlprep.package.contract import schema
from dmlprep.portable.public import Model as Loaded
from dmlprep.portable.public import PackageDamaged
from dmlprep.record import Check, DeviceInfo, RunError, RunRecord, Verdict
from tests.hostile_names import NASTY, document_is_plain, nothing_acts
from tests.in_process import Run
from tests.package.runs import run_of

_TINY = """<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) { y = Relu(x) }"""


def _contract(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "model.json").read_text(encoding="utf-8")))


def _record(run: Path, change: Callable[[RunRecord], None]) -> None:
    record = RunRecord.read(run / "run.json")
    change(record)
    (run / "run.json").write_bytes(record.to_json())


def _run_of(text: str, folder: Path) -> Path:
    """A run's folder of a model in ONNX text."""
    folder.mkdir()
    onnx.save(parser.parse_model(text), folder / "model.onnx")
    return run_of(folder)


def test_the_contract_fits_its_schema_and_says_what_the_app_needs(made: Path) -> None:
    contract = _contract(made)
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(contract, schema())
    assert json.loads((made / "model.schema.json").read_text(encoding="utf-8")) == schema()
    (one,) = contract["inputs"]
    assert (one["name"], one["type"], one["shape"]) == ("pixel_values", "float32", [1, 3, 32, 32])
    assert one["bytes"] == one["gpu_bytes"] == 4 * 3 * 32 * 32
    assert contract["fixed"] == {"batch": 1}
    assert contract["memory"]["peak"] > contract["memory"]["load"] > 0
    assert contract["model"]["fp16"]
    target = contract["target"]
    assert target["nodes"] == target["nodes_on_directml"] == 24
    assert target["lowest_onnxruntime"] <= target["onnxruntime"]
    assert target["lowest_windows"].startswith("Windows 10")


def test_the_contract_has_the_digest_of_every_other_file(made: Path) -> None:
    contract = _contract(made)
    there = {p.relative_to(made).as_posix() for p in made.rglob("*") if p.is_file()}
    there -= {"model.json", "model.json.sha256"}
    assert set(contract["files"]) == there
    for name, entry in contract["files"].items():
        raw = (made / name).read_bytes()
        assert entry == {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    said = (made / "model.json.sha256").read_text(encoding="ascii")
    assert said == f"{hashlib.sha256((made / 'model.json').read_bytes()).hexdigest()}  model.json\n"


def test_the_same_run_gives_the_same_package(proved: Path, made: Path, tmp_path: Path) -> None:
    again = dmlprep.package_model(proved, out=tmp_path / "again", language="python", unproven=True)
    assert again.digest == hashlib.sha256((made / "model.json").read_bytes()).hexdigest()


def test_sizes_layout_and_free_dimensions(tmp_path: Path) -> None:
    run = _run_of(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float16[batch, 3, 5, 7] x, bool[3] flags) => (float16[batch, 3, 5, 7] y, bool[3] f)
        { y = Relu(x)  f = Not(flags) }""",
        tmp_path / "run",
    )
    model = onnx.load(run / "model.onnx")
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for dim, denotation in zip(dims, ("DATA_BATCH", "DATA_CHANNEL", "DATA_FEATURE", "DATA_FEATURE"), strict=True):
        dim.denotation = denotation
    onnx.save(model, run / "model.onnx")
    digest = hashlib.sha256((run / "model.onnx").read_bytes()).hexdigest()
    _record(run, lambda record: setattr(record, "output_sha256", digest))
    contract = dmlprep.package_model(run, out=tmp_path / "app", language="python").contract
    image, flags = contract.inputs
    assert (image.shape, image.layout, image.bytes, image.gpu_bytes) == (["batch", 3, 5, 7], "NCHW", None, None)
    assert (flags.type, flags.bytes, flags.gpu_bytes) == ("bool", 3, 4)
    assert contract.denotations == ["DATA_BATCH"]
    assert contract.unproven == []


def test_python_of_a_package_imports_nothing_of_dmlprep(made: Path) -> None:
    beside = {f".{p.stem}" for p in (made / "dmlprep_model").glob("*.py")}
    allowed = {*sys.stdlib_module_names, *beside, ".", "dmlprep_model", "numpy", "onnxruntime", "windowsml"}
    strange = {
        (path.name, name)
        for path in made.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else ["." * node.level + (node.module or "")]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if (name if name.startswith(".") else name.partition(".")[0]) not in allowed
    }
    assert strange == set()


@pytest.mark.parametrize("name", NASTY)
def test_names_in_the_readme_are_text_and_code(name: str, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", [f"x{name}"], [f"y{name}"])],
        name,
        [helper.make_tensor_value_info(f"x{name}", onnx.TensorProto.FLOAT, [f"n{name}", 2])],
        [helper.make_tensor_value_info(f"y{name}", onnx.TensorProto.FLOAT, [f"n{name}", 2])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "run").mkdir()
    onnx.save(proto, tmp_path / "run" / "model.onnx")
    run = run_of(tmp_path / "run")
    verdict = Verdict(
        Check("part", part=name), "failed", f"{name}\n# {name}", DeviceInfo(name), tolerance=name, decides=True
    )
    _record(run, lambda record: setattr(record, "verdicts", [*record.verdicts, verdict]))
    dmlprep.package_model(run, out=tmp_path / "app", language="python", unproven=True)
    text = (tmp_path / "app" / "README.md").read_text(encoding="utf-8")
    (program,) = [one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "run(inputs)" in one]
    nothing_acts(text)
    document_is_plain(text.replace(program, ""))
    literals = {node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)}
    assert {f"x{name}", f"y{name}"} <= literals


def test_a_run_that_directml_did_not_prove_is_not_packaged(proved: Path, tmp_path: Path, run: Run) -> None:
    done = run("package", proved, "-o", tmp_path / "app", "--for", "python")
    assert done.code == CheckNotRun.exit_code
    assert "DP821" in done.err
    assert "parity on dml" in done.err
    assert not (tmp_path / "app").exists()
    done = run("package", proved, "-o", tmp_path / "app", "--for", "python", "--unproven")
    assert done.code == 0
    assert "UNPROVEN: parity on dml" in done.out
    assert _contract(tmp_path / "app")["unproven"][0].startswith("parity on dml")
    assert "though its run did not prove it" in (tmp_path / "app" / "README.md").read_text(encoding="utf-8")
    assert "UNPROVEN" in run("package", "verify", tmp_path / "app").out


def test_a_run_that_failed_is_not_packaged(proved: Path, tmp_path: Path) -> None:
    failed = Path(shutil.copytree(proved, tmp_path / "run"))
    off = Verdict(Check("parity", "dml"), "failed", "logits: 0.5 is too much")
    _record(failed, lambda r: r.verdicts.append(off))
    with pytest.raises(ModelRefused, match=r"logits: 0\.5 is too much"):
        dmlprep.package_model(failed, out=tmp_path / "app", language="python")
    assert not (tmp_path / "app").exists()


def test_a_run_that_ended_with_an_error_is_not_packaged(proved: Path, tmp_path: Path) -> None:
    ended = Path(shutil.copytree(proved, tmp_path / "run"))
    _record(ended, lambda r: (setattr(r, "exit_code", 3), setattr(r, "error", RunError("no DirectML ran"))))  # type: ignore[func-returns-value]
    with pytest.raises(CheckNotRun, match="exit code 3: no DirectML ran"):
        dmlprep.package_model(ended, out=tmp_path / "app", language="python")


def test_a_folder_without_a_run_or_with_the_record_of_another(proved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no model\.onnx here"):
        dmlprep.package_model(tmp_path, out=tmp_path / "app", language="python")
    other = Path(shutil.copytree(proved, tmp_path / "run"))
    _record(other, lambda r: setattr(r, "output_sha256", "0" * 64))
    with pytest.raises(InputError, match="its record is of another model"):
        dmlprep.package_model(other, out=tmp_path / "app", language="python", unproven=True)


def test_only_a_package_is_replaced(proved: Path, app: Path, tmp_path: Path) -> None:
    def package(out: Path, *, force: bool = False) -> None:
        dmlprep.package_model(proved, out=out, language="python", unproven=True, force=force)

    with pytest.raises(OutputError, match="contains a package"):
        package(app)
    (app / "mine.txt").write_text("kept")
    package(app, force=True)
    assert (app / "mine.txt").read_text() == "kept"
    assert dmlprep.verify_package(app).others == ["mine.txt"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("a")
    with pytest.raises(OutputError, match="is not a package"):
        package(tmp_path / "full", force=True)
    with pytest.raises(OutputError, match="the run's own folder"):
        package(proved, force=True)


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_data_file_comes_along(tmp_path: Path, in_memory: bool) -> None:
    run, app = tmp_path / "run", tmp_path / "app"
    weights = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 128])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 128])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    _run_of(_TINY, run)
    onnx.save(model, tmp_path / "whole.onnx")
    Model.open(tmp_path / "whole.onnx").save(run / "big.onnx", external_over=0)
    digest = hashlib.sha256((run / "big.onnx").read_bytes()).hexdigest()
    _record(run, lambda record: setattr(record, "output_sha256", digest))
    (run / "run.json").rename(run / "big.run.json")
    contract = dmlprep.package_model(run / "big.onnx", out=app, language="python").contract
    assert (contract.model.file, contract.model.data) == ("big.onnx", ["big.onnx.data"])
    assert dmlprep.verify_package(app).others == []
    kept = {p.name: p.read_bytes() for p in app.iterdir() if p.is_file()}
    loaded = Loaded(read=kept.__getitem__, device="cpu") if in_memory else Loaded(app, device="cpu")
    x = np.eye(1, 128, 3, dtype=np.float32)
    np.testing.assert_array_equal(loaded.run({"x": x})["y"], weights[3:4])
    kept["big.onnx.data"] = kept["big.onnx.data"][:-1] + b"!"
    (app / "big.onnx.data").write_bytes(kept["big.onnx.data"])
    with pytest.raises(PackageDamaged, match=r"^big\.onnx\.data was changed"):
        loaded.reopen("cpu")
