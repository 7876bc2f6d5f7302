"""What goes into a kit, what it takes from the record, and what it refuses."""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from dmlprep import api
from dmlprep.core.errors import CheckNotRun, DmlprepError, InputError, ModelRefused, OutputError
from dmlprep.kit.forms import read_manifest
from tests.in_process import Run
from tests.kit.box import CPU, extract, run_kit
from tests.system import WINDOWS

MODELS = Path(__file__).resolve().parents[2] / "fixtures" / "models"

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x, int64[batch] n) => (float[batch, 4] y, int64[batch] m) <float[4] b = {1, 2, 3, 4}>
{ y = Add(x, b)  m = Neg(n) }"""


def _save(text: str, path: Path) -> Path:
    onnx.save(parser.parse_model(text), path)
    return path


def test_the_same_inputs_make_the_same_zip(made: Path, tmp_path: Path) -> None:
    again = api.pack_kit(made / "out" / "model.onnx", out=tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (made / "kit.zip").read_bytes()
    assert again.nbytes == (made / "kit.zip").stat().st_size
    other = api.pack_kit(made / "out" / "model.onnx", out=tmp_path / "other.zip", seeds=1)
    assert other.name != again.name


def test_the_original_comes_from_the_record(made: Path) -> None:
    with zipfile.ZipFile(made / "kit.zip") as archive:
        manifest, _ = read_manifest(archive.read("kit.json"), "kit.zip")
        assert archive.read("model/model.onnx") == (made / "out" / "model.onnx").read_bytes()
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    assert manifest.reference.name == "original.onnx"
    assert not manifest.reference.itself
    assert manifest.tolerances["dml"].name == "fp32-dml"
    assert str(made) not in manifest.to_json().decode()


def test_the_command_for_the_result_is_quoted_and_names_the_metric(made: Path, tmp_path: Path, run: Run) -> None:
    own = tmp_path / "own.py"
    own.write_text("def one(reference, candidate):\n    return 0.5, True\n")
    kit = tmp_path / "a kit.zip"
    packed = run("kit", made / "out" / "model.onnx", "-o", kit, "--metric", f"{own}:one")
    box = extract(kit, tmp_path / "box")
    assert run_kit(box, *CPU).returncode == 0
    command = packed.out.splitlines()[-1].partition("then: dmlprep ")[2]
    words = [word.strip("'\"") for word in shlex.split(command, posix=False)]
    words[words.index("result.zip")] = str(box / "result.zip")
    done = run(*words, "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["metric"] == f"{own}:one"


def test_a_model_without_a_record_is_its_own_reference(tmp_path: Path) -> None:
    model = _save(_TEXT, tmp_path / "m.onnx")
    packed = api.pack_kit(model, out=tmp_path / "k.zip", sizes={"batch": 3}, session={"dim:batch": "3"})
    assert packed.manifest.reference.itself
    box = extract(tmp_path / "k.zip", tmp_path / "box")
    assert np.load(box / "feeds" / "0-0.npy").shape == (3, 4)
    done = run_kit(box, *CPU, "--runs", "2")
    assert done.returncode == 0, done.stdout
    verdict, record = api.verify_kit(box / "result.zip", kit=tmp_path / "k.zip", model=model)
    assert (verdict.outcome, record) == ("passed", None)
    assert (packed.manifest.inputs, verdict.inputs) == ("seeded", "seeded")
    assert [one.code for one in verdict.findings] == ["DP710", "DP815"]
    assert any("the model itself" in detail for detail in verdict.device.details if verdict.device) or False


def test_a_pinned_size_is_the_size_of_the_inputs_and_of_the_session(tmp_path: Path, run: Run) -> None:
    model = _save(_TEXT, tmp_path / "m.onnx")
    assert run("kit", model, "-o", tmp_path / "k.zip", "-p", "batch=3", "--size", "batch=2").code == 0
    box = extract(tmp_path / "k.zip", tmp_path / "box")
    assert np.load(box / "feeds" / "0-0.npy").shape == (3, 4)
    assert json.loads((box / "kit.json").read_text())["session"]["dim:batch"] == "3"


def test_external_data_feeds_and_strings_come_along(tmp_path: Path) -> None:
    for name in ("external_cnn.onnx", "external_cnn.onnx.data"):
        shutil.copyfile(MODELS / name, tmp_path / name)
    packed = api.pack_kit(tmp_path / "external_cnn.onnx", out=tmp_path / "k.zip")
    assert packed.manifest.model.data == ["model/external_cnn.onnx.data"]
    box = extract(tmp_path / "k.zip", tmp_path / "box")
    assert run_kit(box, *CPU).returncode == 0
    verdict, _ = api.verify_kit(box / "result.zip", kit=tmp_path / "k.zip", model=tmp_path / "external_cnn.onnx")
    assert verdict.outcome == "passed"
    with (tmp_path / "external_cnn.onnx.data").open("r+b") as data:
        data.write(b"\x01")
    with pytest.raises(InputError, match="not the file in the kit"):
        api.verify_kit(box / "result.zip", kit=tmp_path / "k.zip", model=tmp_path / "external_cnn.onnx")


def test_strings_sequences_and_empty_outputs(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.STRING, [3])
    f = helper.make_tensor_value_info("f", onnx.TensorProto.FLOAT, [3, 2])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.STRING, [3])
    s = helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Identity", ["x"], ["y"]),
        helper.make_node("SplitToSequence", ["f"], ["s"], axis=0),
    ]
    graph = helper.make_graph(nodes, "g", [x, f], [y, s])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    packed = api.pack_kit(tmp_path / "m.onnx", out=tmp_path / "k.zip")
    assert set(packed.manifest.feeds[0].outputs) == {"y", "s (length)", "s[0]", "s[1]", "s[2]"}
    box = extract(tmp_path / "k.zip", tmp_path / "box")
    done = run_kit(box, *CPU)
    assert done.returncode == 0, done.stdout
    assert api.verify_kit(box / "result.zip", kit=tmp_path / "k.zip")[0].outcome == "passed"


def test_sets_of_rows_are_judged_as_sets(tmp_path: Path) -> None:
    packed = api.pack_kit(MODELS / "detector_nms.onnx", out=tmp_path / "k.zip")
    assert [group.kind for group in packed.manifest.groups] == ["rows"]
    box = extract(tmp_path / "k.zip", tmp_path / "box")
    assert run_kit(box, *CPU).returncode == 0
    assert api.verify_kit(box / "result.zip", kit=tmp_path / "k.zip")[0].outcome == "passed"


def test_the_user_s_feeds_and_tolerance(tmp_path: Path) -> None:
    model = _save(_TEXT, tmp_path / "m.onnx")
    feed = {"x": np.ones((2, 4), np.float32), "n": np.array([1, 2])}
    packed = api.pack_kit(model, out=tmp_path / "k.zip", feeds=[feed], tolerance="rel:0.005")
    assert packed.manifest.tolerances["dml"].max_rel == 0.005
    assert packed.manifest.inputs == "given"
    with zipfile.ZipFile(tmp_path / "k.zip") as archive, archive.open("feeds/0-0.npy") as file:
        assert np.array_equal(np.load(file), feed["x"])


def _refused(model: Path, out: Path, **options: object) -> DmlprepError:
    with pytest.raises(DmlprepError) as refused:
        api.pack_kit(model, out=out, **options)  # type: ignore[arg-type]
    assert not list(out.parent.glob(".dmlprep-*"))
    return refused.value


def test_a_record_of_another_model_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "out", tmp_path / "out")
    model = tmp_path / "out" / "model.onnx"
    record = json.loads((tmp_path / "out" / "run.json").read_bytes())
    (tmp_path / "out" / "run.json").write_text(json.dumps({**record, "input": "gone.onnx"}))
    assert "does not exist: gone.onnx" in str(_refused(model, tmp_path / "k.zip"))
    (tmp_path / "out" / "run.json").write_text(json.dumps({**record, "output_sha256": "0" * 64}))
    error = _refused(model, tmp_path / "k.zip")
    assert (error.code, error.exit_code) == ("DP811", 2)
    assert api.pack_kit(model, out=tmp_path / "k.zip", reference=made / "original.onnx").name


@pytest.mark.usefixtures("own_workers")  # in one process ONNX Runtime draws the same for each session
def test_where_nothing_can_be_expected(tmp_path: Path) -> None:
    random = _TEXT.replace("{ y = Add(x, b)", "{ r = RandomNormalLike(x)  y = Add(x, r)")
    error = _refused(_save(random, tmp_path / "r.onnx"), tmp_path / "k.zip")
    assert isinstance(error, CheckNotRun)
    assert "random" in str(error)


def test_names_and_types_that_windows_or_numpy_do_not_have(tmp_path: Path) -> None:
    half = _TEXT.replace("float[batch, 4] y,", "bfloat16[batch, 4] y,").replace(
        "y = Add(x, b)", "a = Add(x, b)  y = Cast<to=16>(a)"
    )
    error = _refused(_save(half, tmp_path / "b.onnx"), tmp_path / "k.zip")
    assert isinstance(error, ModelRefused)
    assert "'y'" in str(error)
    model = parser.parse_model(_TEXT)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(4, np.float32), "b"))
    onnx.save(model, tmp_path / "a.onnx", save_as_external_data=True, location="xux.bin", size_threshold=0)
    # Windows itself does not let a file have this name.
    (tmp_path / "a.onnx").write_bytes((tmp_path / "a.onnx").read_bytes().replace(b"xux.bin", b"aux.bin"))
    if not WINDOWS:
        (tmp_path / "xux.bin").rename(tmp_path / "aux.bin")
    error = _refused(tmp_path / "a.onnx", tmp_path / "k.zip")
    assert (error.code, "aux.bin" in str(error)) == ("DP002" if WINDOWS else "DP813", True)


def test_names_beyond_ascii_are_utf8_in_the_zip(tmp_path: Path) -> None:
    model = parser.parse_model(_TEXT)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(4, np.float32), "重み"))
    model.graph.node[0].input[1] = "重み"
    path = tmp_path / "modèle.onnx"
    onnx.save(model, path, save_as_external_data=True, location="данные_重み.bin", size_threshold=0)
    packed = api.pack_kit(path, out=tmp_path / "набор.zip")
    assert packed.manifest.model.data == ["model/данные_重み.bin"]
    with zipfile.ZipFile(tmp_path / "набор.zip") as archive:
        member = archive.getinfo("model/данные_重み.bin")
        assert member.flag_bits & 0x800  # the flag that says: this name is UTF-8
        assert read_manifest(archive.read("kit.json"), "kit.zip")[0].model.name == "modèle.onnx"
    box = extract(tmp_path / "набор.zip", tmp_path / "box")
    assert run_kit(box, *CPU).returncode == 0
    assert api.verify_kit(box / "result.zip", kit=tmp_path / "набор.zip", model=path)[0].outcome == "passed"


def test_outputs_that_cannot_be_written(made: Path, tmp_path: Path) -> None:
    model = made / "out" / "model.onnx"
    assert isinstance(_refused(model, made / "kit.zip"), OutputError)
    assert isinstance(_refused(model, tmp_path / "kit.tar"), OutputError)
    assert "folder does not exist" in str(_refused(model, tmp_path / "none" / "kit.zip"))
    # Before the work: there is no such model, and the path is what the error is about.
    assert isinstance(_refused(tmp_path / "none.onnx", tmp_path / ("k" * 300 + ".zip")), OutputError)
    assert isinstance(_refused(model, tmp_path / "k.zip", session={"dim:nope": "1"}), InputError)


def test_stopping_leaves_nothing(made: Path, tmp_path: Path) -> None:
    def stop(_share: float, text: str) -> None:
        if text.startswith("packing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.pack_kit(made / "out" / "model.onnx", out=tmp_path / "k.zip", progress=stop)
    assert list(tmp_path.iterdir()) == []
