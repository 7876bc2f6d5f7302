"""Report the facts of one ONNX Runtime release: its kernels, and the highest opset and IR version that load.

It runs in that release's own Python, and only needs numpy and onnxruntime. ``read_release.py`` puts it next to
``models/``, one-node models named ``opset-NUMBER.onnx`` and ``ir-NUMBER.onnx``, and reads the JSON file that it writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(models: Path, out: Path) -> None:
    """Write the kernels and the supported versions of the installed ONNX Runtime to a file."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    kernels = [
        {
            "op": kernel.op_name,
            "domain": kernel.domain or "ai.onnx",
            "versions": list(kernel.version_range),
            "provider": kernel.provider,
            "types": {label: list(names) for label, names in kernel.type_constraints.items()},
        }
        for kernel in state.get_all_opkernel_def()
    ]
    answer: dict[str, Any] = {"version": onnxruntime.__version__, "build": state.get_build_info(), "kernels": kernels}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for kind in ("opset", "ir"):
        loaded: list[int] = []
        refused: dict[int, str] = {}
        for path in models.glob(f"{kind}-*.onnx"):
            number = int(path.stem.partition("-")[2])
            try:
                onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
                loaded.append(number)
            except Exception as error:
                refused[number] = str(error)[:300]
        answer[kind] = {"loaded": sorted(loaded), "refused": refused}
    out.write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
