"""Compare heads, layers, vocabulary, sizes and lengths of the models with the numbers of the config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.genai.config import GenaiConfig, section_place
from dmlprep.genai.names import layers_of, named
from dmlprep.record import Finding, finding
from dmlprep.record.findings import Severity

_ATTENTION = {
    "com.microsoft::GroupQueryAttention": ("num_heads", "kv_num_heads"),
    "com.microsoft::MultiHeadAttention": ("num_heads", ""),
    "com.microsoft::DecoderMaskedMultiHeadAttention": ("num_heads", ""),
}
_CACHES = {"com.microsoft::GroupQueryAttention": 7, "com.microsoft::RotaryEmbedding": 2}
"""Index of the input that is the table of cosines, by operator (ContribOperators.md). Its rows are positions."""


def longest(config: GenaiConfig) -> int | None:
    """Return the length in tokens of the longest sequence that a config allows; ``None`` if it is not known.

    It is ``search.max_length``, or else ``model.context_length``.
    """
    return config.number("search.max_length") or config.number("model.context_length") or None


def geometry_findings(config: GenaiConfig, section: str, file: str, graph: GraphFacts) -> Iterator[Finding]:
    """Yield a finding for each number in the config that a model contradicts: heads, layers, sizes, lengths.

    Args:
        section: the section of the model. If it is a stage of a pipeline, only the numbers that the stage has are
            compared.
        file: name of the model's file, for messages.
        graph: facts about the model's graph.
    """
    nodes = [node for inner in graph.all_graphs() for node in inner.nodes]
    head = section.partition(".pipeline.")[0]
    if head in ("decoder", "encoder"):
        yield from _heads(config, head, file, nodes)
    yield from _hidden(config, head, file, graph)
    if head != "decoder":
        return
    yield from _cache(config, section, file, graph)
    yield from _vocabulary(config, section, file, graph)
    yield from _positions(config, file, nodes)


def _heads(config: GenaiConfig, head: str, file: str, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Yield findings if heads or head size of no attention node are as in the config (layers may differ).

    ``head``: the section of the config, ``decoder`` or ``encoder``.
    """
    heads, groups, sizes = dict[int, str](), dict[int, str](), dict[int, str]()
    for node in nodes:
        if node.key not in _ATTENTION:
            continue
        for name, by_number in zip(_ATTENTION[node.key], (heads, groups), strict=True):
            number = node.attribute(name, 0) if name else 0
            if number > 0:
                by_number.setdefault(number, node.path)
        size = _head_size(node)
        if size:
            sizes.setdefault(size, node.path)
    place = section_place(head)
    for key, by_number in (("num_attention_heads", heads), ("num_key_value_heads", groups), ("head_size", sizes)):
        written = config.number(f"{place}.{key}")
        if written is not None and by_number and written not in by_number:
            number, node_path = next(iter(by_number.items()))
            text, remedy = f"{place}.{key} is {written}, but the attention of {file} has {number}", f"write {number}"
            yield finding(
                "DP851", text, node=node_path, remedy=remedy, file=file, configured=written, has=list(by_number)
            )


def _head_size(node: NodeFacts) -> int:
    """Return the size of a head of an attention node, in elements; 0 if the node's shapes do not show it."""
    heads = int(node.attribute(_ATTENTION[node.key][0], 0))
    query = node.input(0)
    width = query.shape[-1] if query is not None and query.shape else None
    if not isinstance(width, int) or heads <= 0 or query is None or len(query.shape or ()) != 3:
        return 0
    if node.input(1) is not None:
        return width // heads
    # Packed: queries, keys and values are in one tensor, one after another.
    group = _ATTENTION[node.key][1]
    return width // (heads + 2 * max(0, int(node.attribute(group, 0)))) if group else 0


def _cache(config: GenaiConfig, section: str, file: str, graph: GraphFacts) -> Iterator[Finding]:
    """Yield findings if layers, heads or head size of the cache inputs differ from the config."""
    values = {value.name: value for value in graph.inputs if not value.initializer}
    layers = layers_of(config, section, values)
    place = "model.decoder"
    written = config.number(f"{place}.num_hidden_layers")
    numbers = sorted(layers.keys)
    some = bool(config.value(f"{place}.layer_types") or ".pipeline." in section)
    beyond = [number for number in numbers if written is not None and number >= written]
    if written is not None and numbers and (beyond or (not some and len(numbers) != written)):
        text = f"{place}.num_hidden_layers is {written}, but {file} has a cache for {len(numbers)} layers"
        text += f", {numbers[0]} to {numbers[-1]}" if numbers != list(range(len(numbers))) else ""
        yield finding("DP850", text, node=f"{place}.num_hidden_layers", remedy=f"write {numbers[-1] + 1}", file=file)
    for axis, key in ((1, "num_key_value_heads"), (3, "head_size")):
        want = config.number(f"{place}.{key}")
        sizes = {number: _axis(values[name], axis) for number, name in sorted(layers.keys.items())}
        known = {number: size for number, size in sizes.items() if size is not None}
        if want is not None and known and want not in known.values():
            number, size = next(iter(known.items()))
            text = f"{place}.{key} is {want}, but the cache of {file} has {size}"
            yield finding("DP851", text, node=layers.keys[number], remedy=f"write {size}", file=file, configured=want)


def _axis(value: Value, axis: int) -> int | None:
    shape = value.shape
    size = shape[axis] if shape is not None and len(shape) == 4 else None
    return size if isinstance(size, int) and size > 0 else None


def _last(value: Value | None) -> int | None:
    size = value.shape[-1] if value is not None and value.shape else None
    return size if isinstance(size, int) else None


def _vocabulary(config: GenaiConfig, section: str, file: str, graph: GraphFacts) -> Iterator[Finding]:
    name = named(config, "decoder", "outputs", "logits")
    has = _last(next((value for value in graph.outputs if value.name == name), None))
    written = config.number("model.vocab_size")
    if written is not None and has is not None and written != has:
        text = f"model.vocab_size is {written}, but {name} of {file} has {has}"
        yield finding(
            "DP852", text, node="model.vocab_size", remedy=f"write {has}", file=file, configured=written, has=has
        )


def _hidden(config: GenaiConfig, head: str, file: str, graph: GraphFacts) -> Iterator[Finding]:
    """Yield a finding if the width of embeddings or encoder states differs from ``hidden_size`` in the config.

    ``head``: the model's section in the config, without a stage of its pipeline.
    """
    rows = {
        "decoder": ("inputs", "inputs_embeds", "decoder"),
        "embedding": ("outputs", "inputs_embeds", "decoder"),
        "encoder": ("outputs", "encoder_hidden_states", "encoder"),
    }
    if head not in rows:
        return
    side, key, of = rows[head]
    name = named(config, head, side, key)
    values = graph.inputs if side == "inputs" else graph.outputs
    has = _last(next((value for value in values if value.name == name), None))
    written = config.number(f"model.{of}.hidden_size")
    if written is not None and has is not None and written != has:
        text = f"model.{of}.hidden_size is {written}, but {name} of {file} has {has}"
        yield finding("DP854", text, node=f"model.{of}.hidden_size", remedy=f"write {has}", file=file)


def _positions(config: GenaiConfig, file: str, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Yield a finding if a table of rotary positions is shorter than the sequences that the config allows."""
    rows: dict[int, str] = {}
    for node in nodes:
        table = node.input(_CACHES[node.key]) if node.key in _CACHES else None
        length = table.shape[0] if table is not None and table.constant and table.shape else None
        if isinstance(length, int):
            rows.setdefault(length, table.name if table is not None else "")
    if not rows:
        return
    fewest = min(rows)
    severities: tuple[tuple[str, int | None, Severity], ...] = (
        ("search.max_length", longest(config), "error"),
        ("model.context_length", config.number("model.context_length"), "warning"),
    )
    for place, written, severity in severities:
        if written is not None and written > fewest:
            text = f"{place} is {written}, but the table of positions {rows[fewest]} of {file} ends at {fewest}"
            where = place if config.value(place) is not None else "model.context_length"
            yield finding("DP853", text, node=where, severity=severity, remedy=f"write at most {fewest}")
            return
