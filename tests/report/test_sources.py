"""Every view names the module and the source line of a node, and the graph of the report opens by modules."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import dmlprep
from dmlprep.api.checking import examine, explain_node
from dmlprep.parity.bisection.finding import Bisection, bisect_record, named
from dmlprep.record import RunRecord, finding
from dmlprep.record.nodes import NodeTables
from dmlprep.record.source import Source
from dmlprep.report import placement_json
from dmlprep.report.grouping import finding_lines
from dmlprep.report.html import payload, render_html
from dmlprep.report.placement_text import lines
from dmlprep.report.sarif import to_object
from tests.graph.model.sourced import write
from tests.report.test_pictures import table

GELU = Source("layers.0.mlp.act", "model.py", 16)
PAGE = Path(dmlprep.__file__).parent / "report" / "page"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("sources") / "m.onnx")


def test_check_names_them(model: Path) -> None:
    [row] = examine(model)
    text = "\n".join(lines(row.record, row.placement, row.target))
    assert "\n          Gelu  layers.0.mlp.act  model.py:16\n" in text
    data = json.loads(json.dumps(placement_json.to_object(row.record, row.placement)))
    gelu = {"module": "layers.0.mlp.act", "file": "model.py", "line": 16}
    assert data["findings"][0]["source"] == data["nodes"][1]["source"] == gelu
    [run] = to_object([row.record])["runs"]  # type: ignore[misc]
    result = run["results"][0]
    assert result["locations"][0]["logicalLocations"] == [
        {"fullyQualifiedName": "node_gelu_0", "kind": "element"},
        {"fullyQualifiedName": "layers.0.mlp.act", "kind": "module"},
    ]
    assert result["message"]["text"].startswith("layers.0.mlp.act  model.py:16: 3 nodes Gelu-20 on the CPU")
    assert RunRecord.from_json(row.record.to_json()).findings[0].source == GELU


def test_the_report_names_them(model: Path) -> None:
    shown = render_html(dmlprep.check(model)).partition("<h3>On the CPU</h3>")[2].partition("</table>")[0]
    assert '<code>node_gelu_0</code><br><small class="soft">layers.0.mlp.act  model.py:16</small>' in shown


def test_explain_names_them(model: Path) -> None:
    assert "  exported from layers.1.mlp.act  model.py:16\n" in explain_node(model, "node_gelu_1")


def test_findings_and_bisections_name_them() -> None:
    one = finding("DP641", "too large", node="gelu", source=GELU)
    other = finding("DP641", "gelu is too small", node="gelu", source=GELU)
    assert finding_lines([one])[0] == "warning DP641 gelu  layers.0.mlp.act  model.py:16: too large"
    assert finding_lines([one, other])[1:3] == [
        "  gelu  layers.0.mlp.act  model.py:16: too large",
        "  layers.0.mlp.act  model.py:16: gelu is too small",
    ]
    bisection = Bisection("found", "they differ", nodes=["gelu"], op_types=["Gelu"], sources=[GELU])
    assert named(bisection) == "Gelu node 'gelu' of layers.0.mlp.act  model.py:16"
    record = bisect_record(bisection)
    assert record.findings[0].source == GELU
    failing = bisect_record(Bisection("found", "it fails", kind="failure", nodes=["gelu"], op_types=["Gelu"]))
    assert str(failing.error) == "the candidate does not run with Gelu node 'gelu'"
    assert "<code>layers.0.mlp.act  model.py:16</code>" in render_html(record)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_graph_opens_by_modules_where_they_are_known(model: Path) -> None:
    script = (PAGE / "model.js").read_text() + (
        "const show = (b) => (b.node ? b.title : [b.path, b.kinds.cpu, ...b.children.map(show)]);"
        "const {tables: [data]} = JSON.parse(require('fs').readFileSync(0));"
        "const table = readTable(data);"
        "const runs = moduleRuns(table).map(({block, at, count}) => [block.path, at, count]);"
        "console.log(JSON.stringify([show(table.root), runs]));"
    )

    def blocks(tables: NodeTables | None) -> list[list[object]]:
        text = payload(tables, half=False)
        done = subprocess.run(["node", "-e", script], input=text, capture_output=True, text=True, check=True)
        return list(json.loads(done.stdout))

    root, runs = blocks(dmlprep.check(model).facts.nodes)
    assert runs == [[f"layers.{layer}.mlp", 3 * layer, 3] for layer in range(3)]
    assert root[:2] == ["", 3]
    assert root[-1] == "node_y"
    layers = root[2]
    assert isinstance(layers, list)
    assert layers[:3] == [
        "layers",
        3,
        [
            "layers.0.mlp",
            1,
            ["layers.0.mlp.fc", 0, "node_matmul_0"],
            ["layers.0.mlp.act", 1, "node_gelu_0"],
            ["layers.0.mlp.norm", 0, "node_softmax_0"],
        ],
    ]
    names = ["/a/b/Relu", "/a/c/Relu"]
    root, runs = blocks(NodeTables(table("dd", names=names)))
    assert root == ["", 0, ["a", 0, ["a/b", 0, "Relu"], ["a/c", 0, "Relu"]]]
    assert runs == [["a/b", 0, 1], ["a/c", 1, 1]]


@pytest.mark.parametrize(
    ("module", "node", "shown"),
    [
        ("layers.0.mlp.act", "node_gelu_1", "layers.0.mlp.act  model.py:16"),
        ("model.stft.padding", "/model/stft/padding/Shape", "model.py:16"),
        ("layer1.0.conv1", "/layer1/layer1.0/conv1/Conv", "model.py:16"),
        ("", "relu", "model.py:16"),
    ],
)
def test_a_module_in_the_nodes_name_is_not_repeated(module: str, node: str, shown: str) -> None:
    assert Source(module, "model.py", 16).beside(node) == shown
