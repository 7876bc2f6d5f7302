"""The loader for Node: on a stand-in for onnxruntime-node, on the real one without DirectML, and its types."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

import dmlprep
from tests.cli.buildsys.tools import TOOLS
from tests.package.runs import run_of
from tests.package.test_behaviours import BEHAVIOURS

HERE = Path(__file__).resolve().parent / "node"
CHECKED = [one for one in BEHAVIOURS if one != "bucket choice"]  # see test_bucket_loaders.py

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
needs_modules = pytest.mark.skipif(
    not TOOLS.node_modules.exists(), reason="TypeScript is not there: python scripts/build_tools.py setup"
)


@pytest.fixture
def app(proved: Path, tmp_path: Path) -> Path:
    """A package for Node, to be changed."""
    dmlprep.package_model(proved, out=tmp_path / "app", language="node", unproven=True)
    return tmp_path / "app"


def _node(*words: str | Path, folder: Path, program: str = "node") -> subprocess.CompletedProcess[str]:
    line = [program, *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False, cwd=folder)


def _with_modules(app: Path) -> Path:
    (app / "node_modules").symlink_to(TOOLS.node_modules)
    return app


def _passed(app: Path, where: str, program: str) -> set[str]:
    done = _node(HERE / "checks.cjs", app, where, folder=app, program=program)
    *passed, last = done.stdout.splitlines() or [""]
    assert (done.returncode, last) == (0, "good"), done.stdout + done.stderr
    return set(passed)


def test_on_a_stand_in(app: Path) -> None:
    assert _passed(app, "stand-in", "node") >= set(CHECKED)


def test_es_modules_and_commonjs_are_one_implementation(app: Path) -> None:
    (app / "app.mjs").write_text(
        "import * as file from './dmlprep_model.mjs';\n"
        "import * as named from 'dmlprep-packaged-model';\n"
        "import { createRequire } from 'node:module';\n"
        "const required = createRequire(import.meta.url)('dmlprep-packaged-model');\n"
        "const same = Object.entries(required).every(([name, one]) => one === file[name] && one === named[name]);\n"
        "console.log(JSON.stringify([same, Object.keys(required).length, Object.keys(file).length]));\n"
    )
    done = _node("app.mjs", folder=app)
    same, required, imported = json.loads(done.stdout or done.stderr)
    assert same
    assert required == imported > 1


@pytest.mark.builds
@needs_modules
@pytest.mark.parametrize("program", ["node", str(TOOLS.node)], ids=["node", "node-24"])
def test_on_the_real_runtime_without_directml(program: str, app: Path) -> None:
    assert _passed(_with_modules(app), "cpu", program) >= set(CHECKED)


@pytest.mark.builds
@needs_modules
def test_the_sample_on_the_real_runtime_without_directml(app: Path, proved: Path, tmp_path: Path) -> None:
    _with_modules(app)
    done = _node("sample.mjs", folder=app)
    assert (done.returncode, done.stdout) == (1, "")
    assert "RuntimeMissing: onnxruntime-node" in done.stderr
    done = _node("sample.mjs", "dml-or-cpu", folder=app)
    assert done.stdout.startswith("device cpu\nlogits 1x10 ")
    assert done.stderr.count("the model runs on the CPU") == 1
    dmlprep.package_model(proved, out=tmp_path / "python", language="python", unproven=True)
    line = [sys.executable, "sample.py", "cpu"]
    python = subprocess.run(line, capture_output=True, text=True, check=True, cwd=tmp_path / "python")
    numbers = [[float(word) for word in output.splitlines()[1].split()[2:]] for output in (done.stdout, python.stdout)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-4)


_HALF = """<ir_version: 8, opset_import: ["" : 17]>
g (float16[1, 4] x) => (float16[1, 4] y) { y = Add(x, x) }"""
_BITS = """
import { Model } from './dmlprep_model.mjs';
import { Tensor } from 'onnxruntime-node';
const model = await Model.load(undefined, { device: 'cpu' });
const [data, shape] = [Uint16Array.from([0x3c00, 0x4000, 0, 0xbc00]), [1, 4]];
const inputs = [{ data, shape }, new Tensor('float16', data, shape)];
if (globalThis.Float16Array) inputs.push({ data: Float16Array.from([1, 2, 0, -1]), shape });
for (const x of inputs) {
  const { y } = await model.run({ x });
  console.log(y.data.constructor.name, Array.from(y.data, (bits) => bits.toString(16)).join(' '));
}
"""


@pytest.mark.builds
@needs_modules
@pytest.mark.parametrize(("program", "inputs"), [("node", 2), (str(TOOLS.node), 3)], ids=["node", "node-24"])
def test_float16_is_its_bits(program: str, inputs: int, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    onnx.save(onnx.parser.parse_model(_HALF), tmp_path / "run" / "model.onnx")
    app = tmp_path / "app"
    dmlprep.package_model(run_of(tmp_path / "run"), out=app, language="node")
    (_with_modules(app) / "bits.mjs").write_text(_BITS)
    done = _node("bits.mjs", folder=app, program=program)
    lines = done.stdout.splitlines()
    assert set(lines) == {"Uint16Array 4000 4400 0 c000"}, done.stderr
    assert len(lines) >= inputs


_GOOD = """
import * as ort from 'onnxruntime-node';
import {{ Model, BadInput, DeviceRemoved, type Options, type Outputs }} from '{module}';

export async function classify(pixels: Float32Array, options: Options): Promise<number> {{
  await using model = await Model.load('app', {{ device: 'dml-or-cpu', runtime: ort, ...options }});
  const shape = [1, 3, 32, 32] as const;
  const outputs: Outputs = await model.run({{ pixel_values: {{ data: pixels, shape }} }});
  const again = await model.run({{ pixel_values: new ort.Tensor('float32', pixels, shape) }});
  const scores: Float32Array = again.logits.data;
  try {{
    await model.run({{ pixel_values: {{ type: 'float32', data: scores, shape: outputs.logits.shape }} }});
  }} catch (error) {{
    if (error instanceof DeviceRemoved) await model.reopen();
    else if (error instanceof BadInput) return error.name.length;
  }}
  return scores[0] ?? model.inputs.length;
}}
"""
_BAD = {
    "await model.run({});": "pixel_values",
    "await model.run({ pixels: feed });": "pixels",
    "await model.run({ pixel_values: { ...feed, data: new Float64Array(4) } });": "Float64Array",
    "await model.run({ pixel_values: new ort.Tensor('float64', new Float64Array(4), [4]) });": "float64",
    "const bits: Uint16Array = (await model.run({ pixel_values: feed })).logits.data;": "Uint16Array",
    "await Model.load('app', { device: 'gpu' });": "gpu",
    "new Model();": "private",
    "model.device = 'cpu';": "read-only",
}


def _compiled(app: Path, *files: str) -> list[str]:
    """Compile with ``tsc --strict``, the loader's types included, and return its errors."""
    options = {"strict": True, "noEmit": True, "module": "nodenext", "target": "es2022", "types": []}
    options |= {"skipLibCheck": False, "noUncheckedIndexedAccess": True, "lib": ["es2022", "dom"]}
    (app / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": files}))
    done = _node(TOOLS.node_modules / "typescript" / "bin" / "tsc", "--pretty", "false", folder=app)
    assert (done.returncode == 0) == (done.stdout == ""), done.stderr
    return re.split(r"\n(?! )", done.stdout.strip()) if done.stdout else []


@pytest.mark.builds
@needs_modules
def test_types_for_strict_typescript(app: Path) -> None:
    _with_modules(app)
    (app / "named.mts").write_text(_GOOD.format(module="dmlprep-packaged-model"))
    (app / "file.mts").write_text(_GOOD.format(module="./dmlprep_model.mjs"))
    (app / "required.cts").write_text(_GOOD.format(module="./dmlprep_model.cjs"))
    assert _compiled(app, "named.mts", "file.mts", "required.cts") == []
    head = (
        "import * as ort from 'onnxruntime-node';\nimport { Model } from './dmlprep_model.mjs';\n"
        "const model = await Model.load();\nconst feed = { data: new Float32Array(4), shape: [1, 4] };\nvoid ort;\n"
    )
    for number, line in enumerate(_BAD):
        (app / f"bad{number}.mts").write_text(f"{head}{line}\nexport {{}};\n")
    wrong = _compiled(app, *(f"bad{number}.mts" for number in range(len(_BAD))))
    for number, (line, word) in enumerate(_BAD.items()):
        said = [one for one in wrong if one.startswith(f"bad{number}.mts(6,")]
        assert any(word in one for one in said), (line, wrong)


@pytest.mark.builds
@needs_modules
def test_names_of_any_form_are_valid_typescript(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    name = 'it\'s "x" */ \\ @LOWEST@ \u00e9'
    model = onnx.parser.parse_model(_HALF)
    model.graph.input[0].name = name
    model.graph.node[0].input[:] = [name, name]
    onnx.save(model, tmp_path / "run" / "model.onnx")
    app = tmp_path / "app"
    dmlprep.package_model(run_of(tmp_path / "run"), out=app, language="node")
    (_with_modules(app) / "named.mts").write_text(
        "import { Model } from './dmlprep_model.mjs';\nconst model = await Model.load();\n"
        f"await model.run({{ {json.dumps(name)}: {{ data: new Uint16Array(4), shape: [1, 4] }} }});\n"
    )
    assert _compiled(app, "named.mts") == []
