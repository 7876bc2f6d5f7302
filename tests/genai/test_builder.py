"""genai's model builder as the engine: what is not given to it, how it is called, and what its errors become.

The builder itself needs torch and transformers. A stand-in of a few lines takes its place here.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dmlprep import api
from dmlprep.core.errors import InputError, UsageError
from dmlprep.runtime.tools.genai_builder import check_source, find_builder
from tests.genai.decoders import folder
from tests.system import needs_links

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for Python is a shell script")

_BUILDER = """
import json, os, shutil, sys
with open(os.environ["SAW"], "w") as file:
    json.dump({"arguments": sys.argv[1:], "offline": os.environ["HF_HUB_OFFLINE"], "token": os.environ["HF_TOKEN"],
               "path": sys.path[0]}, file)
ACT
out = sys.argv[sys.argv.index("-o") + 1]
shutil.copytree(os.environ["BUILT"], out)
"""


def hugging_face(path: Path, **more: Any) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **more}))
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "LICENSE.txt").write_bytes(b"licence")
    (path / "tokenizer.json").write_text("{}")
    return path


@pytest.fixture
def stand_in(tmp_path: Path) -> Any:
    """Makes a Python with stand-ins for three packages; their builder runs ``act`` and copies a folder of genai's."""

    def make(act: str = "") -> str:
        packages = tmp_path / "packages"
        for name in ("onnxruntime_genai/models", "torch", "transformers"):
            (packages / name).mkdir(parents=True)
            (packages / name / "__init__.py").write_text("")
        (packages / "onnxruntime_genai" / "__init__.py").write_text("")
        (packages / "torch" / "__init__.py").write_text("def load(*given, **named): return 1\n")
        (packages / "transformers" / "dynamic_module_utils.py").write_text(
            "def get_class_from_dynamic_module(*given, **named): return 1\n"
        )
        builder = packages / "onnxruntime_genai" / "models" / "builder.py"
        builder.write_text(_BUILDER.replace("ACT", act))
        (packages / "torch-9.9.dist-info").mkdir()
        (packages / "torch-9.9.dist-info" / "METADATA").write_text("Name: torch\nVersion: 9.9\n")
        folder(tmp_path / "built")
        program = tmp_path / "python"
        lines = [
            "#!/bin/sh",
            f"PYTHONPATH={packages} BUILT={tmp_path / 'built'} SAW={tmp_path / 'saw'}",
            "export PYTHONPATH BUILT SAW",
            f'exec {sys.executable} "$@"',
        ]
        program.write_text("\n".join(lines) + "\n")
        program.chmod(0o755)
        return str(program)

    return make


@on_posix
def test_a_hugging_face_folder_is_built_and_prepared(stand_in: Any, tmp_path: Path) -> None:
    source = hugging_face(tmp_path / "hf")
    record = api.genai_prepare(source, out=tmp_path / "out", precision="int4", builder_python=stand_in(), proof=False)
    assert (record.exit_code, record.error) == (0, None)
    saw = json.loads((tmp_path / "saw").read_text())
    given = saw["arguments"]
    assert given[given.index("-p") + 1] == "int4"
    assert given[given.index("-e") + 1] == "dml"
    assert given[-2:] == ["hf_token=false", "hf_remote=false"]
    assert (saw["offline"], saw["token"]) == ("1", "")
    assert os.path.basename(saw["path"]) != "engines"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.onnx", "genai_config.json", "LICENSE.txt", "run.json"} <= names
    assert record.recipe == "@llm-fp16"
    assert record.facts.genai is not None
    assert record.facts.genai.builder is not None
    assert record.facts.genai.builder.versions["torch"] == "9.9"
    assert {Path(path).parent for path in record.facts.digests} == {source}


@on_posix
@pytest.mark.parametrize(
    ("act", "says"),
    [
        ("raise KeyError('multi_cache')", "Set both to the same number"),
        ("import torch; torch.load('x')", "read pickled weights"),
        ("import socket; socket.create_connection(('192.0.2.1', 80), 1)", "use the network"),
        ("from transformers import dynamic_module_utils as d; d.get_class_from_dynamic_module('x')", "run code"),
        ("sys.exit(3)", "it ended with exit code 3"),
    ],
)
def test_a_builder_that_fails_is_shown(act: str, says: str, stand_in: Any, tmp_path: Path) -> None:
    source = hugging_face(tmp_path / "hf")
    record = api.genai_prepare(source, out=tmp_path / "out", builder_python=stand_in(act), proof=False)
    assert record.exit_code == 1
    assert "DP877" in str(record.error)
    assert says in str(record.error)
    assert not (tmp_path / "out").exists()


@on_posix
def test_a_builder_that_takes_too_long_is_ended(stand_in: Any, tmp_path: Path) -> None:
    source = hugging_face(tmp_path / "hf")
    program = stand_in("import time; time.sleep(60)")
    record = api.genai_prepare(source, out=tmp_path / "out", builder_python=program, time_limit=1.0, proof=False)
    assert record.exit_code == 1
    assert "more than 1 seconds" in str(record.error)


@pytest.mark.parametrize(
    ("file", "document"),
    [
        ("config.json", {"auto_map": {"AutoModel": "modeling.Model"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["tok.Tok", None]}}),
        ("processor_config.json", {"image_processor": {"auto_map": {"AutoImageProcessor": "x.Y"}}}),
    ],
)
def test_code_of_the_folder_is_refused(file: str, document: dict[str, Any], tmp_path: Path) -> None:
    source = hugging_face(tmp_path / "hf")
    (source / file).write_text(json.dumps(document))
    with pytest.raises(InputError, match="never run") as caught:
        check_source(source)
    assert caught.value.code == "DP876"


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    source = hugging_face(tmp_path / "hf")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    with pytest.raises(InputError, match="no safetensors"):
        check_source(source)


@pytest.mark.parametrize("text", ["{", "[" * 5000, "[]", '"x"'])
def test_a_config_that_is_none(text: str, tmp_path: Path) -> None:
    source = hugging_face(tmp_path / "hf")
    (source / "config.json").write_text(text)
    with pytest.raises(InputError):
        check_source(source)


def test_a_python_that_lacks_packages_or_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be run"):
        find_builder(str(tmp_path / "none"))
    if sys.platform != "win32":
        with pytest.raises(UsageError, match="not a working Python"):
            find_builder("/bin/false")


def test_a_folder_of_neither_kind(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match=r"genai_config\.json"):
        api.genai_prepare(tmp_path / "in", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@needs_links
def test_a_link_that_leads_out_of_the_folder_is_not_copied(tmp_path: Path) -> None:
    source = hugging_face(tmp_path / "in")
    (tmp_path / "secret").write_text("secret")
    (source / "README.md").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="is a link to a place outside the folder"):
        api.genai_prepare(source, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
