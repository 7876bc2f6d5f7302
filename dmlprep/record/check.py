"""The subject of a verdict: which measure was checked, on which provider and model, in fields for code."""

from __future__ import annotations

from typing import Literal

import msgspec

FailureKind = Literal["load", "run", "crash", "timeout", "hang", "memory", "limit", "device-removed", "protocol"]
"""How a session failed (``runtime.SessionFailure``)."""

Provider = Literal["cpu", "dml", "emulation"]
"""The provider that runs the model of a check; ``emulation`` is the FP16 emulation on the CPU."""

Measure = Literal[
    "parity",
    "load",
    "placement",
    "agreement",
    "proof",
    "types",
    "part",
    "decoder",
    "prompt",
    "steps",
    "same weights",
    "text",
    "greedy text",
    "onnxruntime-genai",
]

_WORDS: dict[Measure, str] = {"agreement": "the models agree", "types": "types between the models"}
"""Words for a measure, if they are not its name."""

_ROUNDING = {"nearest": ", rounding to nearest even", "toward-zero": ", rounding toward zero"}


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The subject of one verdict. Two checks of a record are the same if all fields are equal.

    Attributes:
        measure: ``parity`` (outputs compared with the original's), ``load`` (ONNX Runtime loads the file),
            ``placement`` (nodes run where they were predicted), ``agreement`` (of ``bisect``). The others are about a
            language model's folder: ``part`` is about one model, ``proof`` about all.
        provider: where the model runs; empty if nothing runs. ``emulation`` is the FP16 emulation.
        sums, rounding: the values that the FP16 emulation stores in FP16; its rounding, in an
            extra check with the rounding of the device; otherwise empty.
        model: file name of the model, in the record of a folder of several models.
        part: for ``part``, the place in ``genai_config.json``.
        number: the number of the prompt, from 1, if several prompts are checked.
        kit, adapter: whether a kit ran it, on another machine, and its adapter, if known.
    """

    measure: Measure
    provider: Literal[Provider, ""] = ""
    sums: Literal["storage", "everywhere", ""] = ""
    rounding: Literal["nearest", "toward-zero", ""] = ""
    model: str = ""
    part: str = ""
    number: int = 1
    kit: bool = False
    adapter: str = ""

    @property
    def subject(self) -> str:
        """The name of the check, for people; ``number`` follows if it is not 1."""
        name = self.part or _WORDS.get(self.measure, self.measure)
        return name if self.number == 1 else f"{name} {self.number}"

    def __str__(self) -> str:
        text = f"{self.subject} on {self.provider}" if self.provider else self.subject
        if self.provider == "emulation":
            text = f"fp16 emulation ({self.sums}{_ROUNDING.get(self.rounding, '')})"
        if self.kit:
            text += f" (kit: {self.adapter})" if self.adapter else " (kit)"
        return f"{self.model}: {text}" if self.model else text
