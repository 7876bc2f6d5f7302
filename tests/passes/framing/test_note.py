"""The note of a frame: what a model that somebody else made may say in it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dmlprep.core.errors import ModelRefused
from dmlprep.parity.feeds.framed import outside
from dmlprep.passes.framing import PictureOptions, ResultOptions, between, frame_of, resolve, write_frame
from tests.passes.framing.graphs import handing_on

_SHAPE = (1, 3, 8, 8)


def _changed(part: str, **fields: Any) -> Any:
    """A framed model whose note says something else."""
    model = handing_on(_SHAPE)
    write_frame(model, resolve(model.ir, {"x": PictureOptions(size=(4, 4))}, {"y": ResultOptions(take="argmax")}))
    note = json.loads(model.ir.metadata_props["dmlprep.frame"])
    note[part][0] |= fields
    model.ir.metadata_props["dmlprep.frame"] = json.dumps(note)
    return model.ir


def test_what_was_written_is_read() -> None:
    model = handing_on(_SHAPE)
    frame = resolve(model.ir, {"x": PictureOptions(size=(4, 4))})
    write_frame(model, frame)
    assert frame_of(model.ir) == frame == between(handing_on(_SHAPE).ir, model.ir)
    assert between(model.ir, model.ir) is None
    assert frame_of(handing_on(_SHAPE).ir) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"size": [1 << 40, 4]},
        {"size": [5, 4]},
        {"batch": 7},
        {"model_size": [9, 8]},
        {"mean": []},
        {"mode": "pillow-sharpest"},
        {"name": "z"},
    ],
)
def test_a_note_of_another_model_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ModelRefused, match="metadata of the frame") as raised:
        between(handing_on(_SHAPE).ir, _changed("pictures", **fields))
    assert raised.value.code == "DP305"


def test_a_note_that_cannot_be_followed_is_refused() -> None:
    frame = between(handing_on(_SHAPE).ir, _changed("results", axis=9))
    with pytest.raises(ModelRefused, match="is not usable"):
        outside(frame, {"y": np.zeros(_SHAPE, np.float32)})
