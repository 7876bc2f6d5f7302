"""The module and the user's own source line of nodes, as exporters write them into a model.

``torch.onnx.export(dynamo=True)`` writes properties on each node. TorchScript, optimum and tf2onnx write the module
into the node's name. A model is hostile: texts are bounded, read by linear patterns, and made printable.

Source: PyTorch, ``torch/onnx/_internal/exporter/_core.py``, which writes the properties.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache

import msgspec
import onnx
import onnx_ir as ir

from dmlprep.graph.model import protos
from dmlprep.graph.model.walk import main_graphs, nodes, nodes_by_path
from dmlprep.portable.printable import printable, shortened
from dmlprep.record import Finding
from dmlprep.record.source import Source

SCOPES, TRACE = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"
"""Keys of node properties: a Python list of module paths, the outermost first and the node's own name last; and a stack
trace, the outermost frame first."""

_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"
"""The module that torch 2.13 writes for a node that belongs to none, such as the size of an input."""

_SCOPES_READ, _TRACE_READ, _NAME_READ, _SHOWN = 4_000, 16_000, 1_000, 200
"""The most characters that are read of a list of scopes, a trace and a node's name, and that are shown of a name."""

_ITEM = r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\""
_ITEMS = re.compile(_ITEM, re.DOTALL)
_LIST = re.compile(rf"\[(?:(?:{_ITEM})(?:, )?)*\]", re.DOTALL)
_FRAME = re.compile(r'File "([^"\n]{1,1000})", line ([0-9]{1,9})\b')
_TORCH = re.compile(r"<|(?:.*/)?torch/(?:nn|fx|onnx|utils|export|_|functional)")
_LIBRARY = re.compile(r".*(?:/site-packages|/dist-packages|/lib/python3[.0-9]*)/", re.IGNORECASE)


class Sources:
    """Finds the source (module and line of the user's code) of a model's nodes, each when it is needed."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._modules: dict[str, str] = {}
        self._places: dict[str, tuple[str, int]] = {}

    @cached_property
    def in_names(self) -> bool:
        """Return whether most names have the form ``/layers.0/act/Gelu``, and no node has properties."""
        every = [node for node in nodes(self._model) if node.op_type != "Constant"]
        if 2 * sum("/" in (node.name or "") for node in every) <= len(every):
            return False
        return not any(map(_has_properties, every))

    def of(self, node: ir.Node) -> Source | None:
        """Return the source of a node; ``None`` if the model does not have it."""
        properties = node.metadata_props
        if SCOPES in properties or TRACE in properties:
            return self._read(properties.get(SCOPES, ""), properties.get(TRACE, ""))
        module = _module_of_name(node.name or "") if self.in_names else ""
        return Source(module) if module else None

    def of_proto(self, node: onnx.NodeProto) -> Source | None:
        """Return the source that the metadata properties of a node contain; ``None`` if they contain none."""
        written = {entry.key: entry.value for entry in node.metadata_props}
        return self._read(written.get(SCOPES, ""), written.get(TRACE, ""))

    def locate(self, findings: Sequence[Finding], before: onnx.ModelProto | None = None) -> list[Finding]:
        """Return the findings, each with the source of its node, if this model or the model ``before`` has the node."""
        by_path = nodes_by_path(self._model) if any(one.node and not one.source for one in findings) else {}
        missing = {one.node for one in findings if one.node not in by_path}
        gone = {n.name: n for n in protos.nodes(before) if n.name in missing} if before is not None and missing else {}
        located = []
        for one in findings:
            if one.source is None and one.node in by_path:
                one = msgspec.structs.replace(one, source=self.of(by_path[one.node]))
            elif one.source is None and one.node in gone:
                one = msgspec.structs.replace(one, source=self.of_proto(gone[one.node]))
            located.append(one)
        return located

    def _read(self, scopes: str, trace: str) -> Source | None:
        # Nodes of one line have equal traces, of some thousand characters.
        if scopes not in self._modules:
            self._modules[scopes] = _module_of_scopes(scopes)
        if trace not in self._places:
            self._places[trace] = _place(trace)
        source = Source(self._modules[scopes], *self._places[trace])
        return source if source.module or source.file else None


def hand_on(model: ir.Model, before: onnx.ModelProto) -> bool:
    """Write source properties on nodes without them that a pass added; ``before`` is the model before the pass.

    A new node gets the source of the node in ``before`` that wrote the same output; none if that node had none. If no
    node wrote the output, it gets the source of a new node that reads it, of a node that it reads, or of any node that
    reads it. Returns whether a node got a source.
    """
    every = [node for graph in main_graphs(model) for node in graph]
    bare = [node for node in every if not _has_properties(node)]
    if not bare or (len(bare) == len(every) and not any(node.metadata_props for node in protos.nodes(before))):
        return False
    wanted = {value.name for node in bare for value in node.outputs if value.name}
    earlier = (node for graph in protos.graphs(before) for node in graph.node)  # the main graph comes last
    olds = {name: node for node in earlier for name in node.output if name in wanted}
    sources = Sources(model)
    new: dict[ir.Node, Source | None] = {}
    for node in bare:
        old = next((olds[value.name] for value in node.outputs if value.name in olds), None)
        source = sources.of_proto(old) if old is not None else None
        if old is None or source is not None:  # a node that never had a source keeps none
            new[node] = source

    def source_of(node: ir.Node | None) -> Source | None:
        if node is None:
            return None
        return new[node] if node in new else sources.of(node) if _has_properties(node) else None

    for node in reversed(new):
        new_readers = (reader for value in node.outputs for reader in value.consumers() if reader in new)
        new[node] = new[node] or next(filter(None, map(source_of, new_readers)), None)
    for node in list(new):
        read = (value.producer() for value in node.inputs if value is not None)
        new[node] = new[node] or next(filter(None, map(source_of, read)), None)
    for node in reversed(new):
        readers = (reader for value in node.outputs for reader in value.consumers())
        new[node] = source = new[node] or next(filter(None, map(source_of, readers)), None)
        if source is not None:
            node.metadata_props[SCOPES] = repr([source.module, node.name or node.op_type])
            if source.file:
                node.metadata_props[TRACE] = f'File "{source.file}", line {source.line}'
    return any(new.values())


def _has_properties(node: ir.Node) -> bool:
    properties = node.metadata_props
    return SCOPES in properties or TRACE in properties


def _module_of_scopes(text: str) -> str:
    if '"' not in text and "\\" not in text and text[:2] + text[-2:] == "['']" and len(text) <= _SCOPES_READ:
        scopes = text[2:-2].split("', '")[:-1]  # nearly every list, in a tenth of the time
    elif len(text) <= _SCOPES_READ and _LIST.fullmatch(text):
        scopes = [re.sub(r"\\(.)", r"\1", single or double) for single, double in _ITEMS.findall(text)[:-1]]
    else:
        return ""
    return _shown(next((scope for scope in reversed(scopes) if scope and scope != _NO_MODULE), ""))


def _place(text: str) -> tuple[str, int]:
    """Return file name and line of the innermost frame in a stack trace that is in the user's own files.

    Without such a frame, the innermost frame of a library other than torch; without that, ``""`` and 0.
    """
    frames = [(path.replace("\\", "/"), int(line)) for path, line in _FRAME.findall(text[-_TRACE_READ:])]
    frames = [(path, line) for path, line in frames if not _TORCH.match(path)]
    own = [frame for frame in frames if not _LIBRARY.match(frame[0])] or frames
    return (_shown(own[-1][0].rpartition("/")[2]), own[-1][1]) if own else ("", 0)


def _module_of_name(name: str) -> str:
    """Return the module in a node's name: ``layer1.0.conv1`` for ``/layer1/layer1.0/conv1/Conv``; empty without one."""
    parts: list[str] = []
    for part in filter(None, name.split("/")[:-1] if len(name) <= _NAME_READ else ()):
        if parts and part.startswith(f"{parts[-1]}."):  # TorchScript names a child of a Sequential with its parent
            parts.pop()
        parts.append(part)
    return _shown(".".join(parts))


@lru_cache(1024)
def _shown(text: str) -> str:
    return shortened(printable(text), _SHOWN)
