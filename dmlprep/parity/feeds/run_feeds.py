"""The feeds of one run: the user's, or seeded ones. Steps that run the model and the proof use the same feeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from dmlprep.core.errors import InputError
from dmlprep.graph.model import Model
from dmlprep.graph.model.pinned import Value, pinned_array, pinned_values
from dmlprep.metrics import OutputGroup, choose_tolerance, degenerate, tells_something
from dmlprep.parity.feeds.files import GivenFeed
from dmlprep.parity.feeds.graph_feeds import Feed, fit_feeds, fit_shapes, make_feeds, static_sizes
from dmlprep.parity.feeds.sizes import free_dimensions, graph_inputs, is_length, resolve_shapes
from dmlprep.portable.arrays import Array
from dmlprep.portable.measure import FLOOR


class RunFeeds:
    """Feeds for the original, and for every model that is prepared from it.

    Seeded feeds are generated at the first request, for the sizes that the requesting model fixes. They stay the same
    for every later model of these sizes: a search and the proof of its result use the same numbers.

    Args:
        original: the original model.
        user_feeds: the user's feeds; if empty, feeds are generated from seeds.
        sizes: sizes for dimensions that stay free, by name or by ``input:axis``.
        values: values that pins fix for inputs, by input name. The user's feeds may lack these inputs.
        rough: the default of ``rough`` in ``of``: True if seeded pictures with an odd seed are noise.

    Raises:
        InputError: a user's feed does not fit the original, or contradicts a pinned value; or the original does not
            have the dimension of a size (checked only without user feeds).
    """

    def __init__(
        self,
        original: Model,
        user_feeds: Sequence[Mapping[str, Array]] = (),
        sizes: Mapping[str, int] | None = None,
        *,
        values: Mapping[str, Value] | None = None,
        rough: bool = False,
    ) -> None:
        self.original = original
        self._user_feeds = fit_feeds(original, user_feeds, "feeds", values or {})
        for feed in self._user_feeds:
            check_values(feed, values or {})
        self._sizes = dict(sizes or {})
        self._rough = rough
        self._key: object = None
        self._seeded_feeds: list[Feed] = []
        self._others: list[dict[str, int]] | None = None
        self._instead: dict[str, int] = {}
        if not self._user_feeds:
            check_sizes(original, self._sizes)

    def of(self, model: Model, count: int, *, rough: bool | None = None) -> list[Feed]:
        """Return the user's feeds, at most ``count`` of them, or ``count`` seeded ones in the original's element types.

        Inputs that a user's feed lacks have the values that ``model`` pins.

        Args:
            model: the original, or a model prepared from it. Seeded feeds have its fixed sizes, and respect the limits
                of indices that are known for it.
            rough: as in ``make_feeds``; ``None``: the default of this object.

        Raises:
            InputError: a user's feed does not fit the model in its present state.
            UsageError: too many or too large seeded feeds are requested.
            CheckNotRun: no feed can be generated for an input.
        """
        inputs = self.original.ir.graph.inputs
        noted = pinned_values(model.ir, inputs)
        fixed = {v.name or "": pinned_array(v, noted[v.name or ""]) for v in inputs if v.name in noted}
        if self._user_feeds:
            filled = [with_values(feed, fixed) for feed in self._user_feeds[:count]]
            fit_shapes(model, filled, "feeds")
            return filled
        noise = self._rough if rough is None else rough
        wanted = {**self._instead, **self.fixed_sizes(model), **self._sizes}
        key = (wanted, noise, noted)
        if key != self._key:
            self._key, self._seeded_feeds = key, []
        done, missing = len(self._seeded_feeds), count - len(self._seeded_feeds)
        if missing > 0:
            self._seeded_feeds += make_feeds(
                self.original, wanted, missing, seed=done, like=model, rough=noise, values=fixed
            )
        return self._seeded_feeds[:count]

    def fixed_sizes(self, model: Model) -> dict[str, int]:
        """Return the sizes by ``input:axis`` of all axes that ``model`` fixes."""
        return static_sizes(model)

    @property
    def user_count(self) -> int:
        """The number of the user's feeds; 0 if the feeds are seeded."""
        return len(self._user_feeds)

    @property
    def source(self) -> Literal["given", "seeded"]:
        """The origin of the feeds: ``given`` by the user, or ``seeded``."""
        return "given" if self.user_count else "seeded"

    def other_sizes(self, model: Model) -> bool:
        """Choose other sizes for later seeded feeds, for a model that does not run on the default sizes.

        Each call takes the next choice for sizes that are not set: batch 1, then also 4 and 16 times the length. A
        model may run with batch 1 alone although its batch is free, and convolutions without padding need some length.

        Returns:
            True if there was another choice. False for the user's feeds, or if all were tried: later feeds have the
            default sizes again.
        """
        if self._others is None:
            self._others = [] if self.user_count else self._unset_sizes({**self.fixed_sizes(model), **self._sizes})
        more = bool(self._others)
        self._instead = self._others.pop(0) if more else {}
        return more

    def _unset_sizes(self, fixed: Mapping[str, int]) -> list[dict[str, int]]:
        inputs = graph_inputs(self.original)
        shapes = resolve_shapes(inputs, fixed)
        free = [
            (one, axis, dim)
            for one in inputs
            for axis, dim in enumerate(one.dims or ())
            if not isinstance(dim, int) and dim not in fixed and f"{one.name}:{axis}" not in fixed
        ]
        ones = {f"{one.name}:0": 1 for one, axis, _ in free if axis == 0}
        lengths = {f"{i.name}:{axis}": shapes[i.name][axis] for i, axis, dim in free if is_length(i, axis, dim)}
        longer = [{**ones, **{key: size * times for key, size in lengths.items()}} for times in _TIMES if lengths]
        fit = [one for one in longer if sum(map(math.prod, resolve_shapes(inputs, {**one, **fixed}).values())) <= _MOST]
        return ([ones] if ones else []) + fit


def sizes_text(feed: Mapping[str, Array]) -> str:
    """Return the shapes of a feed's first three inputs as text, for messages."""
    shown = [f"{name} {list(array.shape)}" for name, array in feed.items()]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def check_values(feed: Feed, values: Mapping[str, Value]) -> None:
    """Check that a user's feed agrees with the values that pins fix for inputs; a feed may lack these inputs.

    Raises:
        InputError: the feed has another value for such an input.
    """
    for name, value in values.items():
        if name in feed and not np.all(feed[name] == np.asarray(value).astype(feed[name].dtype)):
            what = f"the feed has another value for input {name!r} than its pinned value {value}"
            fix = "remove the input from the feed, or pin the value in the feed"
            raise InputError(what, where=getattr(feed, "source", "feeds"), code="DP705", fix=fix)


def with_values(feed: Feed, fixed: Mapping[str, Array]) -> Feed:
    """Return the feed, completed with ``fixed`` values of inputs that it lacks."""
    filled = {**fixed, **feed}
    return GivenFeed(filled, feed.source) if isinstance(feed, GivenFeed) else filled


def check_sizes(model: Model, sizes: Mapping[str, int]) -> None:
    """Check that each size is for a dimension that an input of the model has, by name or by ``input:axis``.

    Raises:
        InputError: a size is for an unknown dimension.
    """
    known = free_dimensions(graph_inputs(model))
    for name in sizes:
        if name not in known:
            what, fix = f"no input has a dimension {name!r}", f"it has: {', '.join(sorted(known)) or 'none'}"
            raise InputError(what, where=str(model.path or ""), code="DP203", fix=fix)


_TIMES = (4, 16)
"""Factors for the lengths of seeded inputs, tried if the model does not run on the default lengths."""

_MOST = 1 << 24
"""Largest number of elements in a seeded feed with longer inputs."""

_FEWEST = 8
"""Fewest elements of an input that counts as data; a smaller one may be a scale, a size or a bound."""

_UPPER, _LOWER = ("max", "upper", "high"), ("min", "lower", "low")


def silent(groups: Sequence[OutputGroup], outputs: Sequence[Mapping[str, Array]]) -> set[str]:
    """Return the names of outputs that prove nothing on these feeds: they do not vary, or have no finite numbers.

    Args:
        groups: the outputs in the groups in which they are compared.
        outputs: outputs by name, for each feed.
    """
    # The widest tolerance: an output that is not constant by it is not constant by any other.
    widest = choose_tolerance("auto", fp16=True, quantized=True, device="cpu")
    mute = {name for name in outputs[0] if not any(tells_something(feed[name]) for feed in outputs if name in feed)}
    return mute | degenerate(groups, outputs, widest).keys()


def vanishes(outputs: Mapping[str, Array]) -> bool:
    """Return True if any floating-point output is zero up to rounding in all elements."""
    floats = [a for a in outputs.values() if a.size and a.dtype.kind == "f"]
    return any(np.all(np.isfinite(a)) and float(np.max(np.abs(a))) <= FLOOR for a in floats)


def variations(feed: Mapping[str, Array], frozen: Collection[str]) -> Iterator[dict[str, Array]]:
    """Yield up to three variations of a seeded feed on which more outputs may vary: values of one sign, wider bounds.

    Shapes and types are the same, and inputs whose names are in ``frozen`` stay as they are.
    """
    data = [n for n, a in feed.items() if a.dtype.kind == "f" and a.size >= _FEWEST and n not in frozen]
    bounds = {n: _wider(n, a) for n, a in feed.items() if a.size == 1 and a.dtype.kind in "fi" and n not in frozen}
    wide = {**feed, **{name: array for name, array in bounds.items() if array is not None}}
    if any(array is not None for array in bounds.values()):
        yield dict(wide)
    if not data:
        return
    for change in (np.abs, lambda a: -np.abs(a)):
        yield {**wide, **{name: change(feed[name]) for name in data}}


def _wider(name: str, bound: Array) -> Array | None:
    """Return a wider bound: 1000 times an upper one (by its name), or 0 for a lower one; ``None`` for other inputs."""
    called = name.lower()
    upper, lower = (any(word in called for word in words) for words in (_UPPER, _LOWER))
    if upper == lower:
        return None
    return np.asarray(bound * 1000 if upper else bound * 0).astype(bound.dtype).reshape(bound.shape)
