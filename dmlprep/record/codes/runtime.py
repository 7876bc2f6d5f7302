"""Codes DP8xx: runtime and environment."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP801": Code("two ONNX Runtime packages in one environment", "error", "uninstall both, then install one"),
    "DP802": Code(
        "the session failed", "error", "see the message: it holds the error's name, likely causes and the next step"
    ),
    "DP803": Code(
        "DirectML is not available here",
        "warning",
        "Linux: run dmlprep runtime install; Windows: pip install onnxruntime-directml, see dmlprep doctor --adapters",
    ),
    "DP804": Code(
        "the DirectML self-test failed",
        "error",
        "Linux: run dmlprep runtime remove, then dmlprep runtime install; Windows: update the graphics driver, "
        "see dmlprep doctor --adapters",
    ),
    "DP805": Code("ONNX Runtime is missing or broken", "error", "install the package that the message names"),
    "DP806": Code("a package is older than dmlprep needs", "warning", "install the version that the message names"),
    "DP810": Code("a kit or its result is damaged", "error", "copy the file again, as it was written"),
    "DP811": Code(
        "a kit, a result, a record and a model that do not belong together", "error", "pass files of one kit"
    ),
    "DP812": Code("the kit did not run on DirectML", "warning", "the reason says what is missing on the other machine"),
    "DP813": Code(
        "a kit cannot carry this model", "error", "use file names that Windows allows, and types that numpy has"
    ),
    "DP814": Code(
        "a kit or its result does not have the seal of this key",
        "error",
        "pass your own copy of the kit and its key, and run the kit with run.py --key",
    ),
    "DP815": Code(
        "nothing proves who wrote the result of a kit",
        "note",
        "pack and verify with --key, and give the run key to whoever runs the kit",
    ),
    "DP820": Code(
        "a run's folder that cannot be packaged", "error", "pass the folder that dmlprep prepare -o wrote, unchanged"
    ),
    "DP821": Code(
        "the run did not pass, so it is not packaged",
        "error",
        "prepare the model with --device dml --require-dml, or prove it on Windows with a kit",
    ),
    "DP822": Code("a file of a package is missing or was changed", "error", "copy the package again, whole"),
    "DP823": Code(
        "a package does not have the signature of this key",
        "error",
        "take the package and the public key from whoever made it",
    ),
    "DP830": Code(
        "an app takes the onnxruntime.dll of Windows",
        "error",
        "copy onnxruntime.dll of the package with DirectML into the folder of the program",
    ),
    "DP831": Code(
        "an app takes the DirectML.dll of Windows",
        "warning",
        "copy the DirectML.dll that comes with onnxruntime.dll beside it",
    ),
    "DP832": Code(
        "a library of an app is older than its model needs",
        "error",
        "replace onnxruntime.dll and DirectML.dll by those of a newer release, both together",
    ),
    "DP833": Code(
        "a library of an app has another architecture than what loads it",
        "error",
        "copy the library for the program's architecture (win-x64, win-arm64)",
    ),
    "DP834": Code(
        "a library of an app is missing, damaged or without DirectML",
        "error",
        "copy the libraries again, from a package of ONNX Runtime with DirectML",
    ),
    "DP835": Code(
        "an app needs the Visual C++ runtime of the machine",
        "note",
        "install the Visual C++ Redistributable with the app, or copy its libraries beside the program",
    ),
}
