"""On the real provider: placement, fused graphs and copies of whole models, as predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlprep.directml.placement import place
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.parity import make_feeds
from dmlprep.runtime import DATA_FOLDER, SessionOptions, dml_status, open_dml
from dmlprep.runtime.verify_placement import verify_placement
from tests.fixtures_index import fixture

pytestmark = [pytest.mark.dml, pytest.mark.slow]

MODELS = ["if_branches", "nested_control", "quantized_cnn", "half_cnn", "dynamo_decoder", "detector_nms", "rnn_tagger"]


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    status = dml_status()
    if not status.available:
        pytest.skip(f"no DirectML: {status.reason}")


@pytest.mark.parametrize("name", MODELS)
def test_every_node_stands_where_it_was_predicted(name: str) -> None:
    verdict = verify_placement(Model.open(fixture(name).path), find_target("ort-1.24"))
    assert verdict.outcome == "passed", (verdict.reason, verdict.findings)


@pytest.mark.parametrize("name", ["residual_cnn", "rnn_tagger", "bert_encoder", "detector_nms"])
def test_fused_graphs_and_copies_are_as_many_as_predicted(name: str, tmp_path: Path) -> None:
    model = Model.open(fixture(name).path)
    predicted = place(model, find_target("ort-1.24"))
    path = tmp_path / "model.onnx"
    data = model.save_linked(path)
    options = SessionOptions(optimization="disabled", profile=True, config={DATA_FOLDER: str(data)})
    with open_dml(path, options) as session:
        session.run(make_feeds(model, sizes=fixture(name).pins, count=1)[0])
        kernels = session.timings()
    fused = [k for k in kernels if "DmlFused" in k.op_type]
    copies = [k for k in kernels if "Memcpy" in k.op_type]
    cpu = [k for k in kernels if k.provider == "CPUExecutionProvider"]
    assert len(fused) == predicted.partitions
    assert len(copies) == len(predicted.crossings)
    assert len(cpu) == sum(n.provider == "CPUExecutionProvider" for n in predicted.nodes)
