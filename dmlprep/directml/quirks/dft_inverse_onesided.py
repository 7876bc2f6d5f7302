"""DFT of half a spectrum back to real numbers: since ONNX Runtime 1.25 the CPU does it, and DirectML fails on it."""

from __future__ import annotations

from dmlprep.directml.quirks.quirk import Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    both = node.attribute("inverse", 0) and node.attribute("onesided", 0)
    return "inverse and onesided" if both else ""


QUIRK = Quirk(
    id="dft-inverse-onesided",
    code="DP643",
    title="inverse DFT of half a spectrum",
    ops=("DFT",),
    outcome="run fails",
    first="1.25",
    sources=(
        "measured on onnxruntime-windowsml 1.25.2 and 1.30.0: 80004005; 1.24.4 refuses the model on every provider",
    ),
    matches=_matches,
)
