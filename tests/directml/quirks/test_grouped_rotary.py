"""The rotation that GroupQueryAttention did itself, written before it: the same numbers at every position."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.passes import Context
from dmlprep.passes.fix_quirks import FixQuirksOptions, FixQuirksPass
from dmlprep.runtime import SessionHost, cpu_host, open_cpu
from tests.genai.decoders import GROUPS, SIZE, decoder

Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def host() -> Iterator[SessionHost]:
    with cpu_host() as made:
        yield made


def rewritten(model: onnx.ModelProto) -> onnx.ModelProto:
    made = Model(ir.from_proto(model))
    assert FixQuirksPass(FixQuirksOptions()).run(made, Context(find_target()))
    return ir.to_proto(made.ir)


def run(model: onnx.ModelProto, feeds: list[Arrays], host: SessionHost, folder: Path) -> list[Arrays]:
    """Run steps one after the other, each with the cache of the one before."""
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    results: list[Arrays] = []
    caches = {n.name: n for n in model.graph.input if n.name.startswith("past")}
    with open_cpu(path, host=host) as session:
        for feed in feeds:
            batch = feed["input_ids"].shape[0]
            before = {
                name: results[-1][name.replace("past_key_values", "present")]
                if results
                else np.zeros((batch, GROUPS, 0, SIZE), np.float32)
                for name in caches
            }
            results.append(session.run({**feed, **before}))
    return results


def step(ids: list[list[int]], mask: list[list[int]]) -> Arrays:
    return {"input_ids": np.array(ids, np.int64), "attention_mask": np.array(mask, np.int64)}


STEPS = {
    "a prompt, then a token at a time": [
        step([[5, 6, 7]], [[1] * 3]),
        step([[8]], [[1] * 4]),
        step([[9]], [[1] * 5]),
    ],
    "several tokens behind a cache": [step([[5, 6, 7]], [[1] * 3]), step([[8, 9]], [[1] * 5])],
    "two prompts": [step([[5, 6, 7], [9, 8, 7]], [[1] * 3] * 2), step([[8], [4]], [[1] * 4] * 2)],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize(
    "form", [{}, {"packed": False}, {"rotated": 16}, {"rotary_interleaved": 1}, {"short": 4}], ids=str
)
def test_the_rewritten_decoder_gives_the_same(
    form: dict[str, Any], steps: list[Arrays], host: SessionHost, tmp_path: Path
) -> None:
    model = decoder(**form)
    wanted, found = (run(one, steps, host, tmp_path) for one in (model, rewritten(model)))
    for before, after in zip(wanted, found, strict=True):
        for name, array in before.items():
            np.testing.assert_allclose(after[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_shorter_prompt_padded_on_the_right(host: SessionHost, tmp_path: Path) -> None:
    model, steps = decoder(), [step([[5, 6, 7], [9, 1, 1]], [[1, 1, 1], [1, 0, 0]])]
    (wanted,), (found,) = (run(one, steps, host, tmp_path) for one in (model, rewritten(model)))
    np.testing.assert_allclose(found["logits"][0], wanted["logits"][0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["logits"][1, :1], wanted["logits"][1, :1], rtol=1e-4, atol=1e-5)


def test_all_layers_share_one_chain_of_positions() -> None:
    operators = [node.op_type for node in rewritten(decoder(layers=4)).graph.node]
    assert operators.count("RotaryEmbedding") == 8
    assert operators.count("Max") == 1


def test_nothing_is_left_to_find() -> None:
    target = find_target()
    for model, left in ((decoder(), {"grouped-packed", "grouped-rotary"}), (rewritten(decoder()), set())):
        facts = read_facts(Model(ir.from_proto(model)), target.tables)
        assert {hit.quirk.id for hit in find_quirks(facts, target)} - {"grouped-cache"} == left


@pytest.mark.parametrize(
    ("attributes", "says", "severity"),
    [
        ({"softcap": 30.0}, "capped at 30", "error"),
        ({"smooth_softmax": 1}, "smooth", "error"),
        ({"local_window_size": 8}, "might be longer than its window of 8", "warning"),
        ({"local_window_size": -1, "softcap": 0.0}, "", ""),
    ],
)
def test_what_directml_ignores(attributes: dict[str, Any], says: str, severity: str) -> None:
    target = find_target()
    facts = read_facts(Model(ir.from_proto(decoder(packed=False, rotary=False, **attributes))), target.tables)
    found = [hit.finding() for hit in find_quirks(facts, target) if hit.quirk.id == "grouped-ignored"]
    assert {one.severity for one in found} == ({severity} if severity else set())
    assert all(says in one.message for one in found)
