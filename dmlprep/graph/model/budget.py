"""Limits on the data and nodes that dmlprep creates for one model: a small file must not grow beyond all memory.

dmlprep counts everything that it adds to the content of the model's files:

- bytes of constants that the file stores in a few numbers: sparse weights that become dense, tables for a rewriting,
  folded values;
- nodes that replace a call of a function or a newer operator.

Sizes are computed and counted before memory is allocated. A budget belongs to a model and counts over its whole life in
a run. A trial copy has a copy of the budget, and its costs count when the copy replaces the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Annotated

import msgspec

from dmlprep.core.errors import ModelRefused
from dmlprep.portable.bounds import MOST_SECONDS

BYTES, BYTES_PER_BYTE = 512 << 20, 8
"""Bytes that dmlprep may create for any model, and further bytes for each byte of its files.

512 MiB is a table of cosines for 11,585 points, or a mask for 16,384 tokens in FP16. 8 is the factor by which weights
grow if 4 % of them are not zero (12 bytes each).
"""

NODES, NODES_PER_NODE = 6_000, 64
"""Nodes that any model may grow by, and further nodes for each of its own nodes.

A layer exported as a function has some 100 nodes and is called 100 times at most: these 200 nodes may become 18,800.
Each costs about a millisecond of ``check`` or ``prepare``. Of ONNX's 1,294 own node tests of opset 18 or later, 475
need other operators at opset 13, 21 nodes on average.
"""

ELEMENTS = 1 << 26
"""Most elements computed for one inference of a model's shapes: 64 masks of 1024 x 1024.

Beyond it, values stay unknown; the model is not refused.
"""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table ``[limits]`` of a recipe.

    Attributes:
        made_bytes: bytes of constants that dmlprep may create for a model; by default 512 MiB plus 8 bytes for each
            byte of its files.
        made_nodes: nodes that a model may grow by when its functions and operators are expanded; by default 6,000 plus
            64 for each of its own nodes.
        folded_elements: elements that dmlprep computes for each inference of the model's shapes.
        run_bytes: bytes of memory for a session of the model; by default computed from the size of its files and inputs
            (``process.allowance``).
        run_seconds: seconds of processor time for one load or run; by default computed likewise.
    """

    made_bytes: Count | None = None
    made_nodes: Count | None = None
    folded_elements: Count = ELEMENTS
    run_bytes: Count | None = None
    run_seconds: Annotated[float, msgspec.Meta(gt=0, le=MOST_SECONDS)] | None = None


_DEFAULT = Limits()
_in_force: ContextVar[Limits] = ContextVar("limits for one model", default=_DEFAULT)


def in_force() -> Limits:
    """Return the limits that apply now (see ``limited``)."""
    return _in_force.get()


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Apply limits to models that are opened, inferred or run inside the ``with`` block.

    Fields with their default do not change.
    """
    before = _in_force.get()
    overrides = {f: v for f in limits.__struct_fields__ if (v := getattr(limits, f)) != getattr(_DEFAULT, f)}
    token = _in_force.set(msgspec.structs.replace(before, **overrides))
    try:
        yield
    finally:
        _in_force.reset(token)


class Budget:
    """The limits of one model, and how much of them is used.

    Attributes:
        made_bytes, made_nodes: bytes and nodes created so far.
        most_bytes, most_nodes: bytes and nodes allowed in total.
        file_bytes: bytes of the model's files, its data files among them.
    """

    def __init__(self, limits: Limits | None = None, *, file_bytes: int = 0, file_nodes: int = 0) -> None:
        self.limits = limits or in_force()
        self.made_bytes = self.made_nodes = 0
        self.file_bytes, self._nodes = file_bytes, file_nodes

    @property
    def most_bytes(self) -> int:
        """The bytes allowed in total: the limit, or by default a number that grows with the model's files."""
        limit = self.limits.made_bytes
        return BYTES + BYTES_PER_BYTE * self.file_bytes if limit is None else limit

    @property
    def most_nodes(self) -> int:
        """The nodes allowed in total: the limit, or by default a number that grows with the model's nodes."""
        limit = self.limits.made_nodes
        return NODES + NODES_PER_NODE * self._nodes if limit is None else limit

    def fork(self) -> Budget:
        """Return an independent budget with the same limits and the same use, for a copy of the model."""
        other = Budget(self.limits, file_bytes=self.file_bytes, file_nodes=self._nodes)
        other.made_bytes, other.made_nodes = self.made_bytes, self.made_nodes
        return other

    def affords(self, nbytes: int = 0, nodes: int = 0) -> bool:
        """Return True if so many more bytes and nodes are allowed; they are not counted as used."""
        return self.made_bytes + nbytes <= self.most_bytes and self.made_nodes + nodes <= self.most_nodes

    def require(self, shape: Sequence[int], itemsize: int, what: str, where: str) -> None:
        """Raise if an array would exceed the limit, before it is computed; the array is not counted as used.

        Raises:
            ModelRefused: DP014, the array would exceed the limit.
        """
        self._hold(prod(shape) * itemsize, 0, f"{what} of shape {list(shape)}", where)

    def require_nodes(self, nodes: int, what: str, where: str) -> None:
        """Raise if so many new nodes would exceed the limit; they are not counted as used.

        Raises:
            ModelRefused: DP014, the nodes would exceed the limit.
        """
        self._hold(0, nodes, what, where)

    def spend(self, nbytes: int = 0, nodes: int = 0, *, what: str, where: str) -> None:
        """Count bytes and nodes that are about to be created as used.

        Args:
            what: a name for the error: ``its sparse weights, made dense``.
            where: the node or tensor.

        Raises:
            ModelRefused: DP014, they would exceed the limit; nothing is counted then.
        """
        self._hold(nbytes, nodes, what, where)
        self.made_bytes += nbytes
        self.made_nodes += nodes

    def _hold(self, nbytes: int, nodes: int, what: str, where: str) -> None:
        if self.affords(nbytes, nodes):
            return
        if self.made_nodes + nodes > self.most_nodes:
            name, needed, so_far = "made_nodes", self.made_nodes + nodes, self.made_nodes and _count(self.made_nodes)
            text = f"{what} would be {_count(nodes)} nodes: {_count(self.most_nodes)} nodes"
        else:
            name, needed, so_far = "made_bytes", self.made_bytes + nbytes, self.made_bytes and _bytes(self.made_bytes)
            text = f"{what} would take {_bytes(nbytes)}: {_bytes(self.most_bytes)}"
        raise ModelRefused(
            f"{text} are the limit for this model" + (f", of which {so_far} are used" if so_far else ""),
            where=where,
            code="DP014",
            fix=f"raise the limit if you trust the model: dmlprep --limit {name}={_enough(needed)} COMMAND, "
            f"or {name} in [limits] of a recipe",
        )


def _bytes(count: int) -> str:
    for unit, size in (("EB", 10**18), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 1000 * size else f"over 1000 {unit}"
    return f"{count} bytes"


def _count(count: int) -> str:
    return f"{count:,}" if count < 10**12 else f"over {10**12:,}"


def _enough(count: int) -> str:
    """Return ``count`` rounded up to two significant digits, as text; ``N`` above the largest limit."""
    step = 10 ** max(0, len(str(count)) - 2)
    return str(-(-count // step) * step) if count <= 1 << 60 else "N"
