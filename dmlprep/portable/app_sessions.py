"""Open a session of a packaged model in an app, and find out which device runs it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .app_errors import ModelError, RuntimeMissing, check_release, requirement, translated

if TYPE_CHECKING:
    from numpy.typing import NDArray

DML, CPU = "DmlExecutionProvider", "CPUExecutionProvider"

SESSIONS = threading.Lock()
"""Lock of the process while a session is created or closed, or runs on DirectML.

In Python, all sessions on one adapter share a command recorder (``python_api_`` in ONNX Runtime's
``dml_provider_factory.cc``). So even runs of different sessions fail if they overlap (its issues 20713 and 25577).
"""


@dataclass(frozen=True)
class AppSession:
    """A session of ONNX Runtime.

    Attributes:
        device: the device that runs it: ``dml``, ``cpu``, or the name of another provider.
        evidence: how that is known, as a sentence without its full stop.
    """

    session: Any
    device: str
    evidence: str

    def run(self, names: Sequence[str], feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run the model once, and return the outputs ``names``; any error of the runtime is raised unchanged."""
        with SESSIONS if self.device == "dml" else nullcontext():
            answers: list[NDArray[Any]] = self.session.run(names, feeds)
        return answers


def runtime(provider: str, target: Mapping[str, Any]) -> Any:
    """Import onnxruntime, and return it.

    Raises:
        RuntimeMissing: it cannot be imported, lacks ``provider``, or is too old for the ``target`` of the contract.
    """
    try:
        import onnxruntime  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise RuntimeMissing(f'{error}: pip install "{requirement(target)}"') from error
    check_release(onnxruntime, provider, target)
    return onnxruntime


def new_settings(onnxruntime: Any, provider: str) -> Any:
    """Return the session options that ``provider`` needs."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    settings.enable_mem_pattern = provider != DML
    if _records(onnxruntime):
        settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return settings


def open_session(
    onnxruntime: Any, source: bytes | str, settings: Any, provider: str, providers: Sequence[object] | None
) -> AppSession:
    """Open a session with these ``providers``, of which ``provider`` must run at least one node.

    ``providers`` is ``None`` if ``settings`` name the provider.

    Raises:
        RuntimeMissing: the session lacks ``provider``.
        ModelError: ``provider`` runs no node, or any other error of the runtime; the subclass gives the reason.
    """
    try:
        with SESSIONS:
            # Without this, onnxruntime would retry on the CPU after a failure and hide the error.
            session = onnxruntime.InferenceSession(source, settings, providers=providers, enable_fallback=False)
    except Exception as error:
        raise translated(error) from error
    listed = session.get_providers()
    if provider not in listed:
        raise RuntimeMissing(f"the session has no {provider}; it has {', '.join(listed)}")
    evidence = f"the session lists {provider}"
    if listed == [CPU]:
        evidence = f"the session lists only {CPU}"
    elif _records(onnxruntime):
        parts = [(part.ep_name, len(part.get_nodes())) for part in session.get_provider_graph_assignment_info()]
        own, total = sum(n for ep, n in parts if ep == provider), sum(n for _, n in parts)
        evidence = f"ONNX Runtime assigned {own} of {total} nodes to {provider}"
        if total and not own:
            raise ModelError(f"{evidence}: prepare the model for it, or run it on the CPU")
    return AppSession(session, {DML: "dml", CPU: "cpu"}.get(provider, provider), evidence)


def _records(onnxruntime: Any) -> bool:
    """Return whether this onnxruntime can report the provider of each node: 1.24 and newer can."""
    return hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info")
