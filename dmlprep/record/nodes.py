"""The nodes of a model in a record, column by column: where each runs, why, and its output.

A run record is JSON that people read. With one text for each column, the table needs a few lines; a list would need a
line for each node.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

FORMAT = 1
"""Version of the tables. It increases if a column changes its meaning."""

NODES = 10_000
"""Limit for the number of nodes in a table, so that a record of any model stays within a few megabytes."""

CROSSINGS = 1_000
"""Limit for the number of copies between CPU and GPU in a table; the largest come first."""

INPUTS = 16
"""Limit for the number of inputs of one node in a table."""

NAME_LENGTH = 200
"""Limit for the length of a name, in characters; a longer one is written without its middle."""

_CHARACTERS = 20
"""Limit for the length of one number in a column, with its separator, in characters."""

_PROVIDERS, _FLOATS, _ROLES = frozenset("dc"), frozenset("hsmn"), frozenset("cskf")


def numbers(column: str) -> list[int]:
    """Return the numbers of a column, which are separated by spaces.

    Raises:
        ValueError: it has anything else, or is too long.
    """
    if len(column) > _CHARACTERS * NODES:
        raise ValueError("a column is too long")
    return [_number(one) for one in column.split()]


def _bounded(texts: list[str], most: int) -> None:
    if len(texts) > most or any(len(text) > NAME_LENGTH for text in texts):
        raise ValueError(f"more than {most} texts, or one of more than {NAME_LENGTH} characters")


def _number(text: str) -> int:
    if len(text) > 19:
        raise ValueError("a number has more than 64 bits")
    return int(text)


class CrossingTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tensors that are copied between CPU and GPU in each run, because one makes and the other reads them.

    The largest come first. The columns ``producer``, ``consumer`` and ``nbytes`` have one number for each of
    ``values``.

    Attributes:
        total: number of all such tensors; ``values`` has the names of the first.
        to: one letter for each: ``d`` to DirectML, ``c`` to the CPU.
        producer, consumer: numbers of the nodes in the table; ``-1`` for a graph input, or a node that was left out.
        nbytes: sizes in bytes; ``-1`` if unknown.
    """

    total: int = 0
    values: list[str] = []
    to: str = ""
    producer: str = ""
    consumer: str = ""
    nbytes: str = ""

    def __post_init__(self) -> None:
        count = len(self.values)
        _bounded(self.values, CROSSINGS)
        if count > self.total or len(self.to) != count or not set(self.to) <= _PROVIDERS:
            raise ValueError("the copies between CPU and GPU contradict each other")
        for column in (self.producer, self.consumer, self.nbytes):
            if len(numbers(column)) != count:
                raise ValueError("a column of the copies has another length")


class Reason(msgspec.Struct, frozen=True):
    """Why a node runs where it does: a finding code, and the reason for people."""

    code: str
    text: str


class NodeTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where each node of a model runs on the target, in the order of the file; nodes of a subgraph follow their owner.

    Columns of letters have one letter for each node. Columns of numbers have one number for each node, separated by
    spaces. The numbers of ``operator``, ``reason``, ``not_fused``, ``type``, ``graph``, ``module`` and ``place`` are
    indices into the lists of texts (``operators``, ``reasons``, ``types``, ``graphs``, ``modules``, ``places``).

    Attributes:
        total: nodes of the model, Constant nodes left out. ``names`` holds the first ``NODES`` of them.
        cpu_left_out: number of nodes on the CPU that are left out.
        providers: ``d`` DirectML, ``c`` CPU.
        floats: type of a node's floating values: ``h`` FP16 or BF16, ``s`` FP32 or FP64, ``m`` both, ``n`` none.
        roles: ``c`` compute, ``s`` shape arithmetic, ``k`` control flow, ``f`` folded at load.
        reason: why the node runs on its provider.
        not_fused: the reason in ``reasons`` that keeps it out of a fused graph; ``-1`` for a fused node.
        type: type of its first output (``float16[1,64,56,56]``); ``-1`` if unknown.
        graph: path of its graph; empty if all nodes are in the main graph.
        partition: number of its fused partition in its graph; ``-1`` if it is not fused.
        module, place: the module that it was exported from, and the line of the source file (``model.py:16``); ``-1``
            if unknown. Empty if the model has neither, or if they are in the names of its nodes.
        inputs: the numbers of the nodes that it reads, ``,`` between them; ``-`` for none. At most ``INPUTS`` for a
            node.
    """

    total: int
    names: list[str]
    providers: str
    floats: str
    roles: str
    operators: list[str]
    operator: str
    reasons: list[Reason]
    reason: str
    not_fused: str
    types: list[str]
    type: str
    partition: str
    inputs: str
    graphs: list[str] = []
    graph: str = ""
    modules: list[str] = []
    module: str = ""
    places: list[str] = []
    place: str = ""
    cpu_left_out: int = 0
    crossings: CrossingTable = CrossingTable()

    def __post_init__(self) -> None:
        count = len(self.names)
        if count > min(self.total, NODES) or not 0 <= self.cpu_left_out <= self.total - count:
            raise ValueError("the nodes contradict their number")
        for letters, known in ((self.providers, _PROVIDERS), (self.floats, _FLOATS), (self.roles, _ROLES)):
            if len(letters) != count or not set(letters) <= known:
                raise ValueError("the letters for providers, types or roles do not match the nodes")
        texts = (
            (self.operator, len(self.operators), 0),
            (self.reason, len(self.reasons), 0),
            (self.not_fused, len(self.reasons), -1),
            (self.type, len(self.types), -1),
        )
        for column, most, least in texts:
            _within(column, least, most, count)
        for bounded in (self.names, self.operators, self.types, self.graphs, self.modules, self.places):
            _bounded(bounded, count)
        for bounded in ([one.code for one in self.reasons], [one.text for one in self.reasons]):
            _bounded(bounded, 2 * count)
        if self.graph:
            _within(self.graph, 0, len(self.graphs), count)
        for column, texts_of in ((self.module, self.modules), (self.place, self.places)):
            if column:
                _within(column, -1, len(texts_of), count)
        _within(self.partition, -1, self.total, count)
        if len(self.inputs) > INPUTS * _CHARACTERS * NODES:
            raise ValueError("a column is too long")
        rows = self.inputs.split()
        if len(rows) != count or any(not 0 <= one < count for row in self.reads() for one in row):
            raise ValueError("the inputs name nodes that do not exist")
        for column in (self.crossings.producer, self.crossings.consumer):
            if any(not -1 <= one < count for one in numbers(column)):
                raise ValueError("a copy names a node that does not exist")

    def reads(self) -> Iterator[list[int]]:
        """Yield, for each node of the table, the numbers of the nodes that it reads."""
        for row in self.inputs.split():
            yield [] if row == "-" else [_number(one) for one in row.split(",")][:INPUTS]


class NodeTables(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node tables of a model before and after its steps.

    ``after`` is ``None`` if no step changed it, or if a step refused it.
    """

    before: NodeTable
    after: NodeTable | None = None
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"node tables of format {self.format}; this dmlprep reads {FORMAT}")


def _within(column: str, least: int, end: int, count: int) -> None:
    values = numbers(column)
    if len(values) != count:
        raise ValueError("the length of a column is not the number of nodes")
    if any(not least <= one < end for one in values):
        raise ValueError("a number is outside its table")
