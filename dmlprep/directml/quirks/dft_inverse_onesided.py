"""DFT of half a spectrum back to real numbers: the CPU supports it since ONNX Runtime 1.25, DirectML fails on it."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Quirk

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
    matches=lambda node: "inverse and onesided" if node.attribute("inverse") and node.attribute("onesided") else "",
)
