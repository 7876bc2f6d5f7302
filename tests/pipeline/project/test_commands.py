"""``init``, and the commands that take what the project file says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import onnx
import onnx_ir as ir
import pytest

from dmlprep.core.files import matching
from dmlprep.graph.model import Model
from dmlprep.pipeline.project import defaults_for, read_project
from dmlprep.pipeline.project.beginning import Suggestion, project_text
from dmlprep.pipeline.project.snippets import snippet
from dmlprep.pipeline.recipe.suiting import suggest_for
from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.system import needs_links


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    (place / "models").mkdir(parents=True)
    for name in ("residual_cnn", "half_cnn"):
        shutil.copy(fixture(name).path, place / "models")
    monkeypatch.chdir(place)
    return place


def test_init_and_then_prepare(folder: Path, run: Run) -> None:
    done = run("init", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "models/residual_cnn.onnx: @vision-fp16" in done.out
    project = read_project(folder / "dmlprep.toml")
    assert project.models["models/half_cnn.onnx"]["recipe"] == "@static-fp32"
    done = run("prepare", "-q", "--device", "cpu")
    assert done.code == 0, done.err
    assert done.out.count("nodes on DirectML") == 2
    record = json.loads((folder / "build/models/residual_cnn/run.json").read_text())
    assert record["recipe"] == "@vision-fp16"
    again = run("init", "--yes", "--force")
    assert "build" not in again.out, "what prepare wrote is not a model of the project"


@pytest.mark.parametrize(("out", "more"), [("dmlprep.toml", ""), ("models/dmlprep.toml", " --project {out}")])
def test_the_next_command_of_init_reads_the_file(out: str, more: str, folder: Path, run: Run) -> None:
    done = run("init", "models/half_cnn.onnx", "-o", Path(out), "--yes")
    assert done.out.splitlines()[-1] == "next: dmlprep prepare" + more.format(out=Path(out))


def test_init_leaves_out_results_and_not_models_next_to_any_run_json(folder: Path, run: Run) -> None:
    (folder / "models/half_cnn.onnx").rename(folder / "model.onnx")
    (folder / "run.json").write_text('{"loss": 0.1}')  # of a training run
    quick = ("--device", "cpu", "--set", "parity.cpu=false")
    for place in ("one", "two/net.onnx"):
        assert run("prepare", "model.onnx", "-o", place, *quick).code == 0
    assert run("init", "--yes").code == 0
    project = read_project(folder / "dmlprep.toml")
    assert list(project.models) == ["model.onnx", "models/residual_cnn.onnx"]
    assert [path.name for path in project.files("**/*.onnx")] == ["model.onnx", "residual_cnn.onnx"]


def test_the_command_line_goes_over_the_file(folder: Path, run: Run) -> None:
    run("init", "--yes")
    quick = ("--device", "cpu", "--set", "parity.cpu=false")
    done = run("prepare", "models/residual_cnn.onnx", "-o", "out", "-r", "@static-fp32", *quick)
    assert "dmlprep.toml: pins batch=1" in done.err
    assert json.loads((folder / "out/run.json").read_text())["recipe"] == "@static-fp32"
    assert "recipe @vision-fp16" in run("check", "--plan", "models/residual_cnn.onnx").out
    assert "recipe @static-fp32" in run("check", "--plan", "models/residual_cnn.onnx", "--no-project").out
    (folder / "other.toml").write_text('target = "ort-1.20"')
    assert "(ort-1.20)" in run("check", "models/residual_cnn.onnx", "-q", "--project", "other.toml").out
    assert "(ort-1.30)" in run("check", "models/residual_cnn.onnx", "-q", "--no-project").out
    assert "(ort-1.24)" in run("check", "models/residual_cnn.onnx", "-q", "--target", "1.24").out


def test_what_is_missing_is_said(folder: Path, run: Run) -> None:
    done = run("prepare")
    assert (done.code, "dmlprep init writes one" in done.err) == (2, True)
    (folder / "dmlprep.toml").write_text('[models."gone/*.onnx"]\n')
    assert "names no existing model" in run("prepare").err
    assert "contradict" in run("check", "models/half_cnn.onnx", "--project", "dmlprep.toml", "--no-project").err


def test_models_that_cannot_be_read_do_not_stop_the_others(folder: Path, run: Run) -> None:
    (folder / "models/broken.onnx").write_bytes(b"no model")
    done = run("init", "--yes")
    assert done.code == 2
    assert "broken.onnx: " in done.err
    assert len(read_project(folder / "dmlprep.toml").models) == 2
    assert run("init", "models/broken.onnx", "--force").code == 2


@pytest.mark.parametrize(
    ("build", "line"),
    [
        ("cmake", "dmlprep_add_model(residual_cnn MODEL models/residual_cnn.onnx RECIPE @vision-fp16 PINS batch=1)"),
        ("msbuild", 'Include="models\\residual_cnn.onnx" Recipe="@vision-fp16" Pins="batch=1"'),
        ("hatch", 'source = "models/residual_cnn.onnx"'),
        ("github", "dmlprep prepare --format github"),
        ("pre-commit", "id: dmlprep-check"),
    ],
)
def test_snippets(build: str, line: str, folder: Path, run: Run) -> None:
    assert line in run("init", "models/residual_cnn.onnx", "--yes", "--for", build).out


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_init_adds_models_and_keeps_each_byte_of_the_file(end: str, folder: Path, run: Run) -> None:
    lines = [
        "# mine",
        'target = "ort-1.24"  # my release',
        "",
        '[models."models/half*.onnx"]',
        "recipe  =  '@check-only'#!",
    ]
    old = end.join(lines).encode()  # without a last line end
    (folder / "dmlprep.toml").write_bytes(old)
    done = run("init", "models/residual_cnn.onnx", "models/half_cnn.onnx", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "models/half_cnn.onnx is in dmlprep.toml already\nadded 1 model to dmlprep.toml\n" in done.out
    new = (folder / "dmlprep.toml").read_bytes()
    assert new.startswith(old)
    assert new.count(b"\r\n") == (new.count(b"\n") if end == "\r\n" else 0)
    project = read_project(folder / "dmlprep.toml")
    assert project.models["models/residual_cnn.onnx"] == {"recipe": "@vision-fp16", "pins": {"batch": 1}}
    for arguments, out in (("models/half_cnn.onnx",), "already"), ((), "added 0 models"):
        again = run("init", *arguments, "--yes")
        assert (again.code, out in again.out) == (0, True)
    assert (folder / "dmlprep.toml").read_bytes() == new
    snippet = run("init", "--for", "cmake").out
    assert "dmlprep_add_model(half_cnn MODEL models/half_cnn.onnx RECIPE @check-only)" in snippet
    assert "dmlprep_add_model(residual_cnn MODEL models/residual_cnn.onnx RECIPE @vision-fp16 PINS batch=1)" in snippet


def test_init_adds_a_table_to_pyproject_and_names_a_recipe_file_from_its_folder(folder: Path, run: Run) -> None:
    (folder / "pyproject.toml").write_text('[tool.dmlprep]\nrecipe = "my/own.toml"\n[tool.other]\n')
    assert run("init", "models/half_cnn.onnx", "-o", "pyproject.toml", "--yes").code == 0
    assert read_project(folder / "pyproject.toml").models["models/half_cnn.onnx"]["recipe"] == "@static-fp32"
    (folder / "dmlprep.toml").write_text('recipe = "my/own.toml"\n[models."models/*.onnx"]\npins = { "sr:" = 16 }\n')
    text = run("init", "models/half_cnn.onnx", "--for", "cmake").out
    assert 'RECIPE my/own.toml PINS "sr:=16")' in text


@pytest.mark.parametrize("old", [b'models = { "a.onnx" = {} }\n', b"\xff\xfe#\0", b"models.x = 1\n"])
def test_init_changes_no_file_that_it_cannot_add_to(old: bytes, folder: Path, run: Run) -> None:
    (folder / "dmlprep.toml").write_bytes(old)
    done = run("init", "models/half_cnn.onnx", "--yes")
    assert (done.code, "dmlprep.toml: " in done.err, "fix: " in done.err) == (2, True, True)
    assert (folder / "dmlprep.toml").read_bytes() == old


_SEVERAL = """
out = "results"
targets = ["ort-1.24", "ort-1.30"]
[models."models/*.onnx"]
recipe = "@static-fp32"
sizes = { one = { batch = 1 }, two = { batch = 2 } }
[models."models/half_cnn.onnx"]
target = "ort-1.24"
sizes = { two = { batch = 2 } }
"""


def test_a_file_with_several_sizes_and_targets_is_one_for_fleet_and_for_single_models(folder: Path, run: Run) -> None:
    (folder / "dmlprep.toml").write_text(_SEVERAL)
    listed = run("fleet", "--dry-run", "--format", "json")
    jobs = {job["name"]: job["pins"]["batch"] for job in json.loads(listed.out)["jobs"]}
    both = {f"residual_cnn/{target}/{name}": size for target in ("ort-1.24", "ort-1.30") for name, size in _SIZES}
    assert jobs == {"half_cnn/two": 2, **both}
    quick = ("--device", "cpu", "--set", "parity.cpu=false")
    done = run("prepare", "models/half_cnn.onnx", *quick)  # one value of each
    assert (done.code, "recipe @static-fp32, target ort-1.24, pins batch=2" in done.err) == (0, True)
    cnn = "models/residual_cnn.onnx"
    for command in (("prepare", cnn), ("prepare", cnn, "--target", "1.24"), ("prepare", cnn, "-p", "batch=1")):
        done = run(*command, *quick)
        axis = "sizes: one, two" if "--target" in command else "targets: ort-1.24, ort-1.30"
        assert (done.code, f"has several {axis}" in done.err, "dmlprep fleet" in done.err) == (2, True, True)
    done = run("prepare", cnn, "-p", "pixel_values:0=1", "--target", "1.24", *quick)
    assert (done.code, "pins" in done.err) == (0, False)  # no size of one of several adds to the user's
    assert run("prepare", cnn, "-o", "b", "--bucket", "batch=1", "--target", "1.24", *quick).code == 0
    assert (run("check", cnn, "-q").code, run("check", cnn, "-q", "--target", "1.24").code) == (2, 0)


_SIZES = (("one", 1), ("two", 2))


def test_a_pattern_does_not_match_results(folder: Path, run: Run) -> None:
    (folder / "dmlprep.toml").write_text('pins = { batch = 1 }\n[models."**/*.onnx"]\n')
    quick = ("--device", "cpu", "--set", "parity.cpu=false", "-q")
    for arguments in ((), ("--force",)):
        assert run("prepare", *quick, *arguments).out.count("nodes on DirectML") == 2
    assert run("fleet", "--dry-run", "-q").out == "2 jobs\n"


_STRANGE = Suggestion("m/a & <b>'s.onnx", "@static-fp32", "", {"n=1 METRIC evil.py:run": 2, "a(b": 3})


@pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")
def test_cmake_takes_each_name_of_a_snippet_for_one_word(tmp_path: Path) -> None:
    text = snippet("cmake", [_STRANGE], "out").replace("find_package(dmlprep CONFIG REQUIRED)", "")
    shown = 'foreach(one IN LISTS ARGV)\nfile(APPEND "${CMAKE_CURRENT_LIST_DIR}/read" "${one}\\n")\nendforeach()'
    file = tmp_path / "a.cmake"
    file.write_text(f"function(dmlprep_add_model)\n{shown}\nendfunction()\n{text}", encoding="utf-8")
    subprocess.run(["cmake", "-P", str(file)], check=True, timeout=60)
    words = ["a____b__s", "MODEL", _STRANGE.path, "RECIPE", "@static-fp32", "PINS", "n=1 METRIC evil.py:run=2", "a(b=3"]
    assert (tmp_path / "read").read_text(encoding="utf-8").splitlines() == words


def test_msbuild_takes_each_name_of_a_snippet_for_one_value() -> None:
    (one,) = ElementTree.fromstring(f"<a>{snippet('msbuild', [_STRANGE], 'out')}</a>").iter("DmlprepModel")
    assert unquote(one.attrib["Include"]) == _STRANGE.path.replace("/", "\\")
    assert [unquote(pin) for pin in one.attrib["Pins"].split(";")] == ["n=1 METRIC evil.py:run=2", "a(b=3"]


_TOUCH = ("$(touch owned)", "`touch owned`", "%PATH%", '" & touch owned & "')


@pytest.mark.parametrize(
    ("build", "names"),
    [("cmake", ("a;b", "a[b", "a\nb", "##vso[x]")), ("msbuild", (*_TOUCH, "a\n--><Target/><!--"))],
)
def test_a_name_that_a_build_cannot_hold_is_left_out(build: str, names: tuple[str, ...]) -> None:
    strange = [Suggestion(f"{name}.onnx", "@static-fp32", "") for name in names]
    strange += [Suggestion("m", "@static-fp32", "", {name: 1}) for name in (*names, "a;b")]
    strange += [Suggestion("m", f"{name}.toml", "") for name in names]
    for one in strange:
        text = snippet(build, [one], "out")
        assert "skipped" in text
        if build == "msbuild":
            top = ElementTree.fromstring(f"<a>{text}</a>")
            assert [child.tag for child in top.iter()] == ["a", "Import", "ItemGroup"]
        else:
            assert "dmlprep_add_model" not in text


def test_a_folder_of_results_is_one_scalar_of_yaml() -> None:
    assert '    path: "a: b #c"\n' in snippet("github", [], "a: b #c")


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("residual_cnn", "@vision-fp16"),
        ("detector_raw", "@vision-fp16"),
        ("bert_encoder", "@transformer-fp16"),
        ("dynamo_decoder", "@transformer-fp16"),
        ("diffusion_unet", "@diffusion-fp16"),
        ("super_resolution", "@super-resolution-fp16"),
        ("quantized_cnn", "@static-fp32"),
        ("half_cnn", "@static-fp32"),
        ("rnn_tagger", "@transformer-fp16"),
    ],
)
def test_the_recipe_that_fits(name: str, recipe: str) -> None:
    assert suggest_for(Model.open(fixture(name).path))[0] == recipe


@pytest.mark.parametrize(
    ("text", "recipe", "why"),
    [
        (
            "(float[1,3,8,8] x) => (float[1,3,8,8] y) { a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)"
            " y = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (a, v) }",
            "@vision-fp16",
            "its input x is a picture",
        ),
        (
            "(float[1,16,8] x, float[1,2,128,7] in_cache0) => (float[1,2,128,7] y) { y = Conv (in_cache0, v) }",
            "@static-fp32",
            "no other recipe clearly fits",
        ),
        (
            "(float[1,6,8,8] x) => (float[1,6,8,8] y) { y = Conv (x, v) }",
            "@vision-fp16",
            "it has Conv, and its input x has four dimensions",
        ),
    ],
)
def test_what_a_picture_is(text: str, recipe: str, why: str) -> None:
    weights = "<float[3,3,3,3] w = {0}, float[3,3,2,2] v = {0}>"
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g {text.replace("{", weights + " {", 1)}'
    )
    assert suggest_for(Model(ir.from_proto(proto))) == (recipe, why)


def test_names_of_strangers_stay_in_their_place(tmp_path: Path) -> None:
    name = 'a"]\n[models."/etc/x"]\nrecipe = "evil.toml" #'
    text = project_text([Suggestion(name, "@static-fp32", name, {name: 1}, [name])], "out")
    (tmp_path / "dmlprep.toml").write_text(text, encoding="utf-8")
    project = read_project(tmp_path / "dmlprep.toml")
    assert list(project.models) == [name]
    assert project.models[name]["pins"] == {name: 1}


def test_a_stem_that_is_the_folder_above_leaves_no_result_there(folder: Path, run: Run) -> None:
    (folder / "models/half_cnn.onnx").rename(folder / "models/...onnx")
    before = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    quick = ("--device", "cpu", "--set", "parity.cpu=false", "-r", "@static-fp32", "-p", "batch=1")
    done = run("prepare", "models/residual_cnn.onnx", "models/...onnx", "-o", "deep/out", *quick)
    assert done.code == 2
    assert f"models{os.sep}...onnx" in done.err
    (folder / "dmlprep.toml").write_text('out = "deep/out"\n[models."models/...onnx"]\nrecipe = "@static-fp32"\n')
    assert run("prepare", "models/...onnx", *quick).code == 2
    (folder / "dmlprep.toml").unlink()
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) == before


@needs_links
def test_a_linked_folder_in_the_place_of_a_result_is_refused(folder: Path, run: Run) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "out").mkdir()
    (folder / "out/half_cnn").symlink_to(folder / "elsewhere", target_is_directory=True)
    models = ("models/residual_cnn.onnx", "models/half_cnn.onnx")
    done = run("prepare", *models, "-o", "out", "-r", "@static-fp32", "-p", "batch=1", "--device", "cpu")
    assert done.code == 2
    assert "is a link" in done.err
    assert list((folder / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["models/half_cnn.onnx", "pyproject.toml"])
def test_init_replaces_no_file_of_another_kind(name: str, folder: Path, run: Run) -> None:
    (folder / "pyproject.toml").write_bytes(b"[tool.other]\n")
    before = (folder / name).read_bytes()
    done = run("init", "models/half_cnn.onnx", "-o", name, "--force")
    assert (done.code, (folder / name).read_bytes()) == (2, before)
    assert f"{Path(name)}: init writes no new project file there" in done.err


def test_init_reports_that_an_existing_file_has_its_own_folder_for_results(folder: Path, run: Run) -> None:
    run("init", "models/half_cnn.onnx")
    done = run("init", "models/residual_cnn.onnx", "--results", "other")
    assert (done.code, "--results has no effect with an existing project file" in done.err) == (2, True)


def test_each_pattern_is_searched_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "dmlprep.toml").write_text('[models."models/*.onnx"]\nrecipe = "@vision-fp16"\n', encoding="utf-8")
    project = read_project(folder / "dmlprep.toml")
    calls: list[str] = []

    def counted(at: Path, pattern: str) -> list[Path]:
        calls.append(pattern)
        return matching(at, pattern)

    monkeypatch.setattr("dmlprep.pipeline.project.file.matching", counted)
    for name in ("half_cnn", "residual_cnn", "half_cnn"):
        assert defaults_for(project, folder / f"models/{name}.onnx").options == {"recipe": "@vision-fp16"}
    assert calls == ["models/*.onnx"]
