"""The process behind ``genai_builder.py``: run genai's model builder offline, without code of the model.

It runs as a file in the Python that has onnxruntime-genai, torch and transformers, which may be another environment.
"""

import sys

# Remove the folder of this file: its modules have the names of packages that the builder imports.
sys.path.pop(0)

import runpy
import socket
from collections.abc import Callable
from importlib import import_module
from typing import Any

_HERE = ("127.0.0.1", "::1")
_BUILDER = "onnxruntime_genai.models.builder"


def _refuse(what: str) -> Callable[..., object]:
    def refused(*_arguments: object, **_named: object) -> object:
        raise RuntimeError(f"dmlprep does not let the builder {what}")

    return refused


def _stay_offline() -> None:
    """Make connections to other machines an error.

    Connections to this machine work: Python's socket pairs on Windows need them.
    """
    connect = socket.socket.connect

    def checked(this: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address and address[0] not in _HERE:
            _refuse("use the network")()
        connect(this, address)

    for owner, name, act in ((socket.socket, "connect", checked), (socket, "getaddrinfo", _refuse("use the network"))):
        setattr(owner, name, act)


def main() -> None:
    """Run the builder with the arguments of this process."""
    _stay_offline()
    pickled, code = "read pickled weights, which can contain code", "run code of the model's folder"
    for module, name, what in (
        ("torch", "load", pickled),
        ("transformers.dynamic_module_utils", "get_class_from_dynamic_module", code),
    ):
        setattr(import_module(module), name, _refuse(what))
    sys.argv = [_BUILDER, *sys.argv[1:]]
    runpy.run_module(_BUILDER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
