"""Adapt the user's genai_config.json to DirectML or to the CPU, with as few changes as possible.

onnxruntime-genai 0.12.2 and 0.18.0 read these options of ``dml``: ``device_index``, ``luid`` and, in 0.18,
``enable_graph_capture`` (src/ep/dml/session_options.cpp, and the libraries of both packages).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dmlprep.genai.config import is_dml
from dmlprep.record import Finding, finding


@dataclass(frozen=True)
class DmlOptions:
    """Options of the DirectML provider in the config that the user sets.

    Attributes:
        device_index: the adapter, counted from 0 in the order in which Windows lists adapters by performance; ``None``:
            the config's own value stays.
        graph_capture: whether graph capture is on; ``None``: on if the decoder and its shared cache allow it.
    """

    device_index: int | None = None
    graph_capture: bool | None = None


def for_dml(text: str, options: DmlOptions, *, capture: bool, why_not: str, grouped: bool) -> tuple[str, list[Finding]]:
    """Return the text of a config changed for DirectML, and findings on changed values and lost graph capture.

    Args:
        text: the original text of the config, which ``read_document`` accepted, without a byte-order mark.
        options: the user's options.
        capture: True if the decoder's graph can be captured.
        why_not: the reason if it cannot.
        grouped: True if the decoder has GroupQueryAttention, which needs more search options.
    """
    findings: list[Finding] = []
    capture = capture if options.graph_capture is None else options.graph_capture
    if not capture:
        reason = "--no-graph-capture" if options.graph_capture is False else why_not
        findings.append(finding("DP874", f"graph capture is off: {reason}"))
    document, layout = _read(text)
    for path, section in sorted(_sections(document), key=lambda one: len(one[0])):
        session = _object(section, "session_options")
        where = ".".join([*path, "session_options"])
        captured = ("1" if capture else "0") if path[-1:] == ["decoder"] else ""
        _provider(session, f"{where}.provider_options", options, captured, findings)
        if session.get("enable_mem_pattern") is True:
            session["enable_mem_pattern"] = False
            change = "changed enable_mem_pattern to false: DirectML does not support memory patterns"
            findings.append(finding("DP875", f"{where}: {change}"))
    if grouped:
        _search(_object(document, "search"), findings)
    return layout.render(document), findings


def _provider(
    session: dict[str, object], where: str, options: DmlOptions, captured: str, findings: list[Finding]
) -> None:
    """Make ``dml`` the only provider in a session's options, in place; its other options stay.

    Args:
        where: place of the providers in the config, for findings.
        captured: value of ``enable_graph_capture``; empty: it is not set.
        findings: the list to which findings on changes are added.
    """
    listed = session.get("provider_options")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    others = [name for entry in entries for name in entry if not is_dml(name)]
    if others:
        findings.append(finding("DP875", f"{where}: {', '.join(dict.fromkeys(others))} replaced by dml"))
    ours = next(((entry, name) for entry in entries for name in entry if is_dml(name)), None)
    wanted: dict[str, object] = {"enable_graph_capture": captured} if captured else {}
    if options.device_index is not None:
        wanted["device_index"] = str(options.device_index)
    if ours is None or others:
        dml = _object(*ours) if ours else {}
        session["provider_options"] = [{"dml": {**dml, **wanted}}]
    elif wanted:
        _object(*ours).update(wanted)


def _search(search: dict[str, object], findings: list[Finding]) -> None:
    """Set, in place, the search options that DirectML's GroupQueryAttention needs (DP649); add findings on changes."""
    if search.get("past_present_share_buffer") is not True:
        search["past_present_share_buffer"] = True
        text = "changed past_present_share_buffer to true: DirectML reads the cache only in shared memory"
        findings.append(finding("DP875", f"search: {text}"))
    if "chunk_size" in search:
        del search["chunk_size"]
        text = "removed chunk_size: DirectML ignores the cache when it computes several tokens"
        findings.append(finding("DP875", f"search: {text}"))


def for_cpu(text: str) -> str:
    """Return the text of a config changed for the CPU: the providers of all sessions are removed, nothing more."""
    document, layout = _read(text)
    sessions = (section.get("session_options") for _, section in _sections(document))
    asking = [session for session in sessions if isinstance(session, dict) and session.get("provider_options")]
    for session in asking:
        session["provider_options"] = []
    return layout.render(document) if asking else text


@dataclass(frozen=True)
class _Layout:
    """The layout of a JSON text, so that a changed document can be written in the same way.

    Attributes:
        before, after: text around the object, such as white space.
        indent: indentation of one level; ``None`` for a document in one line.
        newline: the line end.
    """

    before: str
    after: str
    indent: str | None
    newline: str

    def render(self, document: dict[str, object]) -> str:
        """Return the document as text in this layout: keys in their order, numbers as they were written."""
        text = json.dumps(document, ensure_ascii=False, indent=self.indent)
        text = re.sub(r'"\\u0000([^"]*)"', r"\1", text).replace("\n", self.newline)
        return f"{self.before}{text}{self.after}"


_INDENT = re.compile(r"\{\r?\n([ \t]*)")

_NUMBER = "\0"
"""Prefix that marks a number, which is kept as text: Python would write 1.00 as 1.0, and refuses thousands of digits.

No string of the document has this character: a text with an escape of four digits has been refused (DP843).
"""

_DECODER = json.JSONDecoder(parse_int=_NUMBER.__add__, parse_float=_NUMBER.__add__)


def _read(text: str) -> tuple[dict[str, object], _Layout]:
    """Parse a text that ``read_document`` has accepted; return its object with numbers as marked text, and its layout.

    The last of duplicate keys counts.
    """
    start = len(text) - len(text.lstrip(" \t\r\n"))
    document, end = _DECODER.raw_decode(text, start)
    broken = _INDENT.match(text, start)
    newline = "\r\n" if "\r\n" in text else "\n"
    return document, _Layout(text[:start], text[end:], broken[1] if broken else None, newline)


def _object(parent: dict[str, object], key: str) -> dict[str, object]:
    """Return the object at ``key`` of ``parent``; if there is none, put an empty object there first."""
    value = parent.get(key)
    if not isinstance(value, dict):
        value = parent[key] = {}
    return value


def _sections(document: dict[str, object]) -> Iterator[tuple[list[str], dict[str, object]]]:
    """Yield each section with session options, with its place as a list of keys before it.

    The decoder is always among them, unless it is missing or a pipeline.
    """
    yield from _below(document, [], 0)
    model = document.get("model")
    decoder = model.get("decoder") if isinstance(model, dict) else None
    if not isinstance(decoder, dict) or decoder.get("pipeline"):
        return
    if not isinstance(decoder.get("session_options"), dict):
        yield ["model", "decoder"], decoder


_DEPTH = 8
"""Largest nesting depth at which sections are searched; a stage of a decoder's pipeline is at depth five."""


def _below(value: object, path: list[str], depth: int) -> Iterator[tuple[list[str], dict[str, object]]]:
    if depth > _DEPTH:
        return
    rows: Iterable[tuple[object, object]] = enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, dict):
        if isinstance(value.get("session_options"), dict):
            yield path, value
        rows = ((key, inner) for key, inner in value.items() if key != "session_options")
    for key, inner in rows:
        yield from _below(inner, [*path, str(key)], depth + 1)
