"""Nothing of the developer's machine is in a package: exporter metadata is removed, other names are refused."""

from __future__ import annotations

import hashlib
import json
import socket
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dmlprep
from dmlprep.core.errors import InputError, ModelRefused
from dmlprep.portable.loader import Model as Loaded
from dmlprep.record import Check, RunRecord, Verdict
from tests.graph.model.sourced import write_transformer
from tests.in_process import Run
from tests.package.runs import run_of

HOME = "/home/ada.lovelace"


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine of a user who is called ada, at a computer called babbage."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "ada")
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, HOME)
    monkeypatch.setattr(socket, "gethostname", lambda: "babbage.local")


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    """A run of a model with torch's metadata."""
    (tmp_path / "run").mkdir()
    write_transformer(tmp_path / "run" / "model.onnx", nodes=100)
    return run_of(tmp_path / "run")


def _run(folder: Path, *nodes: onnx.NodeProto, **properties: str) -> Path:
    """A run of a model with these nodes, from x to y, and these properties of the model."""
    folder.mkdir()
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph(list(nodes) or [helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    helper.set_model_props(model, properties)
    onnx.save(model, folder / "model.onnx")
    return run_of(folder)


@pytest.mark.parametrize("language", ["python", "node", "csharp", "cpp"])
def test_exporter_metadata_is_removed(noted: Path, tmp_path: Path, language: str, run: Run) -> None:
    app = tmp_path / "app"
    done = run("package", noted, "-o", app, "--for", language)
    assert done.code == 0
    original = onnx.load(noted / "model.onnx")
    count, before = 4 * len(original.graph.node), (noted / "model.onnx").stat().st_size
    share = 100 * (1 - (app / "model.onnx").stat().st_size / before)
    line = f"{count} entries of exporter metadata ({share:.0f} % of the file)"
    assert f"removed: {line}\n" in done.out
    assert line in (app / "README.md").read_text(encoding="utf-8")
    model = json.loads((app / "model.json").read_text(encoding="utf-8"))["model"]
    assert model["proved_sha256"] == hashlib.sha256((noted / "model.onnx").read_bytes()).hexdigest()
    assert model["proved_bytes"] == before
    assert model["removed"]["entries"] == count
    content = b"".join(file.read_bytes() for file in app.rglob("*") if file.is_file())
    for name in (b"/home/ada", b"Users\\ada", b"lovelace", b"babbage", b"stack_trace"):
        assert name not in content
    assert dmlprep.verify_package(app).others == []
    for node in original.graph.node:
        del node.metadata_props[:]
    assert onnx.load(app / "model.onnx") == original


def test_the_loader_runs_the_remaining_model(noted: Path, tmp_path: Path) -> None:
    for name, keep in (("without", False), ("with", True)):
        dmlprep.package_model(noted, out=tmp_path / name, language="python", keep_metadata=keep)
    x = {"x": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)}
    outputs = [Loaded(tmp_path / name, device="cpu").run(x)["y"] for name in ("without", "with")]
    np.testing.assert_array_equal(*outputs)


def test_metadata_is_kept_if_you_ask(noted: Path, tmp_path: Path, run: Run) -> None:
    done = run("package", noted, "-o", tmp_path / "app", "--for", "python", "--keep-metadata")
    assert done.code == 0
    assert "removed" not in done.out
    assert (tmp_path / "app" / "model.onnx").read_bytes() == (noted / "model.onnx").read_bytes()
    contract = json.loads((tmp_path / "app" / "model.json").read_text(encoding="utf-8"))
    assert contract["model"]["proved_sha256"] == contract["files"]["model.onnx"]["sha256"]
    assert contract["model"]["removed"] == {"entries": 0, "docs": 0, "bytes": 0}


@pytest.mark.parametrize("keep", [False, True])
def test_a_model_of_another_record_is_refused(noted: Path, tmp_path: Path, keep: bool) -> None:
    content = bytearray((noted / "model.onnx").read_bytes())
    content[content.index(b"/home/ada" if b"/home/ada" in content else b"ada")] ^= 1  # only in metadata
    (noted / "model.onnx").write_bytes(content)
    with pytest.raises(InputError, match="its record is of another model"):
        dmlprep.package_model(noted, out=tmp_path / "app", language="python", keep_metadata=keep)
    assert not (tmp_path / "app").exists()


def test_properties_for_the_app_stay(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", names="{0: 'cat'}", **{"pkg.torch.export.graph": "/home/ada/net.py"})
    package = dmlprep.package_model(run, out=tmp_path / "app", language="python")
    (names,) = onnx.load(tmp_path / "app" / "model.onnx").metadata_props
    assert (names.key, names.value) == ("names", "{0: 'cat'}")
    assert package.contract.model.removed.entries == 1


@pytest.mark.parametrize(
    "path",
    [
        "/home/eve/labels.txt", "/Users/eve/labels.txt", r"D:\users\eve\labels.txt", "c:/Users/eve/labels.txt",
        r"C:\\Users\\eve\\labels.txt", f"{HOME}/labels.txt", "from ada", "babbage:/labels",
        "\x12\nA/home/eve/labels.txt", f"\x1a5{HOME}/labels.txt", "\nZada",
    ],
)  # fmt: skip
def test_a_name_of_the_machine_elsewhere_is_refused(path: str, tmp_path: Path, run: Run) -> None:
    node = helper.make_node("Load", ["x"], ["y"], "Load_1", file=path, domain="own")
    made = _run(tmp_path / "run", node)
    done = run("package", made, "-o", tmp_path / "app", "--for", "python")
    assert done.code == ModelRefused.exit_code
    assert "DP824" in done.err
    assert "node 'Load_1', attribute 'file'" in done.err
    assert "--keep-metadata" in done.err
    assert not (tmp_path / "app").exists()
    assert run("package", made, "-o", tmp_path / "app", "--for", "python", "--keep-metadata").code == 0


@pytest.mark.parametrize(
    "text", ["adam", "canada", "/home", "https://example.com/home/eve/x", "layers/home/Relu", "C:/Windows", "babbages"]
)
def test_other_words_are_not_names_of_the_machine(text: str, tmp_path: Path) -> None:
    node = helper.make_node("Load", ["x"], ["y"], text, file=text, domain="own")
    dmlprep.package_model(_run(tmp_path / "run", node, words=text), out=tmp_path / "app", language="python")


@pytest.mark.parametrize(("user", "name"), [("torch", "torch-jit-export"), ("onnx", "ai.onnx"), ("main", "main/x")])
def test_an_ordinary_word_is_not_a_name_of_the_machine(
    user: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", user)
    dmlprep.package_model(
        _run(tmp_path / "run", helper.make_node("Relu", ["x"], ["y"], name)), out=tmp_path / "app", language="python"
    )


def test_a_name_of_the_machine_in_an_unknown_field_is_refused(tmp_path: Path) -> None:
    model = _run(tmp_path / "run") / "model.onnx"
    path = f"{HOME}/net.py".encode()
    model.write_bytes(model.read_bytes() + b"\xc2\x0c" + bytes([len(path)]) + path)  # field 200 of the model
    with pytest.raises(ModelRefused, match=r"'/home/ada\.lovelace/net\.py' in field 200"):
        dmlprep.package_model(run_of(tmp_path / "run"), out=tmp_path / "app", language="python")


def test_an_error_about_the_original_names_its_own_file(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], f"{HOME}/net.py")
    original, run = _run(tmp_path / "original", node) / "model.onnx", _run(tmp_path / "run")
    record = RunRecord.read(run / "run.json")
    record.input_sha256 = hashlib.sha256(original.read_bytes()).hexdigest()
    (run / "run.json").write_bytes(record.to_json())
    with pytest.raises(ModelRefused, match="would name this machine") as refused:
        dmlprep.package_model(run, out=tmp_path / "app", language="python", original=original)
    assert refused.value.where == str(original)
    assert not (tmp_path / "app").exists()


def test_a_vocabulary_may_have_the_user_s_name_but_no_path(tmp_path: Path) -> None:
    words = {"words": ["ada", "babbage"]}
    node = helper.make_node("Load", ["x"], ["y"], domain="own", **words)
    dmlprep.package_model(_run(tmp_path / "run", node), out=tmp_path / "app", language="python")
    words["words"].append("/home/eve/a.txt")
    node = helper.make_node("Load", ["x"], ["y"], domain="own", **words)
    with pytest.raises(ModelRefused, match=r"'/home/eve/a\.txt' in node 'Load', attribute 'words'"):
        dmlprep.package_model(_run(tmp_path / "other", node), out=tmp_path / "app2", language="python")


def test_a_user_may_be_called_as_an_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "relu")
    nodes = [helper.make_node("Relu", ["x"], ["relu"], "relu"), helper.make_node("Abs", ["relu"], ["y"])]
    dmlprep.package_model(_run(tmp_path / "run", *nodes), out=tmp_path / "app", language="python")


def test_reasons_in_the_contract_name_no_folder(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    record = RunRecord.read(run / "run.json")
    reason = f"'{HOME}/out/model.onnx' and C:\\Users\\eve\\m.onnx failed in {HOME} of ada@babbage"
    record.verdicts.append(Verdict(Check("parity", "cpu"), "failed", reason, decides=True))
    (run / "run.json").write_bytes(record.to_json())
    contract = dmlprep.package_model(run, out=tmp_path / "app", language="python", unproven=True).contract
    assert contract.proof[-1].reason == "'model.onnx' and m.onnx failed in ... of ...@..."
    text = "".join(file.read_text(encoding="utf-8") for file in (tmp_path / "app").glob("*.[jm][sd]*"))
    assert "lovelace" not in text
    assert "babbage" not in text
