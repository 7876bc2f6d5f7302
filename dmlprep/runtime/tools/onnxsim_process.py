"""The process behind ``runtime/tools/onnxsim.py``: run onnxsim's compiled simplifier without its Python package.

It runs as a file, and imports only onnxsim's extension module. So it is ready after 50 ms instead of a second.
``onnxsim.simplify`` calls the same function with arguments that are copied here. With another release of onnxsim than
the known one, the package itself is called. The line format is that of ``process/wire.py``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from urllib.parse import quote, unquote

KNOWN = "0.8.1"
"""The release whose compiled function is called directly. Arguments and defaults are from its source."""

Simplifier = Callable[[bytes, int, list[str]], bytes]
"""A function of a serialized model, the limit for a folded constant in bytes, and the optimizers to skip. It returns
the simplified model, serialized."""


def simplifier(known: str = KNOWN) -> Simplifier:
    """Return onnxsim's compiled function if the release ``known`` is installed.

    For another release, return a function that calls the package.

    Raises:
        ImportError: onnxsim is not installed.
    """
    spec = find_spec("onnxsim")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("onnxsim is not installed")
    version = Path(spec.submodule_search_locations[0], "version.py")
    with contextlib.suppress(OSError):
        text = version.read_text(encoding="utf-8")
        if f"version = 'v{known}'" in text or f"version = '{known}'" in text:  # the wheels of Linux and of Windows
            sys.modules["onnxsim"] = module_from_spec(spec)  # not executed, because it would import all its modules
            return _compiled()
    return _whole()


def _compiled() -> Simplifier:
    from onnxsim import onnxsim_cpp2py_export as core

    class Folder(core.ModelExecutor):  # type: ignore[misc]
        """Runs nodes with constant inputs in ONNX Runtime, as the package does."""

        def Run(self, model: bytes, inputs: list[bytes]) -> list[bytes]:
            import onnx
            from onnxsim import backend

            proto = onnx.ModelProto.FromString(model)
            arrays = (onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data)) for data in inputs)
            feeds = {value.name: array for value, array in zip(proto.graph.input, arrays, strict=False)}
            outputs = backend.run_model(proto, feeds, single_threaded=True)
            return [onnx.numpy_helper.from_array(array).SerializeToString() for array in outputs.values()]

    folder = Folder()
    # Create Gemm nodes that are fast on ONNX Runtime's CPU provider: the package's default, whatever the user has set.
    os.putenv("ONNXSIM_GEMM_FUSION_BACKEND", "ort_cpu")

    def simplify(model: bytes, constant_bytes: int, skipped: list[str]) -> bytes:
        result: bytes = core.simplify(
            folder,
            model,
            skipped,
            constant_folding=True,
            shape_inference=True,
            tensor_size_threshold=constant_bytes,
            target_opset_version=None,
            rewriter=None,
            initializers_as_constants=True,
            include_inline_functions=False,
            mutable_initializer=True,
            overwrite_input_shapes=None,
            unused_output=None,
            extra_optimizers=None,
        )
        if not result:
            raise ValueError("the simplified model is larger than 2 GB")
        return result

    return simplify


def _whole() -> Simplifier:
    import onnx
    import onnxsim

    def simplify(model: bytes, constant_bytes: int, skipped: list[str]) -> bytes:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            result, _ = onnxsim.simplify(
                onnx.load_from_string(model),
                check_n=0,
                skipped_optimizers=skipped,
                tensor_size_threshold=f"{constant_bytes}B",
                mutable_initializer=True,
                certify=False,
                import_custom_schemas=False,
            )
        done: bytes = result.SerializeToString()
        return done

    return simplify


def _main() -> None:
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.kernel32.SetErrorMode(0x8003)  # a crash ends the process without a dialog that waits for a click
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of native code is not an answer
    simplify = simplifier()
    for line in sys.stdin.buffer:
        word, *fields = [unquote(field, errors="surrogateescape") for field in line.decode("ascii").split()]
        if word == "quit":
            return
        answer = "ok"
        try:
            if word != "simplify":
                raise ValueError(f"unknown request {word}")
            before, after, constant_bytes, *skipped = fields
            Path(after).write_bytes(simplify(Path(before).read_bytes(), int(constant_bytes), skipped))
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            answer = f"fail run {quote(lines[-1] if lines else type(error).__name__, errors='replace')}"
        out.write(answer.encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    _main()
