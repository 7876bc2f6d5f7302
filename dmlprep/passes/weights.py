"""The weights step: weights of MatMul and Gemm in 4 or 8 bits (MatMulNBits), and tables and convolutions in 8 bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes_by_path
from dmlprep.passes.base import Context, Options, Pass
from dmlprep.passes.precision.search.trials import Setting
from dmlprep.passes.precision.user_selection import Selection, select
from dmlprep.passes.precision.weights import (
    Blocks,
    Choice,
    Done,
    SearchResult,
    find_sensitive,
    write_convolutions,
    write_matmuls,
    write_rows,
)
from dmlprep.portable.bounds import MOST_FEEDS, MOST_SECONDS, MOST_SIZE, MOST_TRIALS, MOST_VALUE
from dmlprep.record.steps import Trial

_SHOWN = 3

DEQUANTIZE = "com.microsoft::DequantizeLinear"
"""The operator that reads the 8-bit weight of a convolution, as the tables of DirectML's kernels name it."""


class WeightsOptions(Options, frozen=True, kw_only=True):
    """Options of the step ``weights``.

    Attributes:
        bits: number of bits of each element of a MatMul's or Gemm's weight.
        block_size: how many elements along the depth (the summed axis) share a scale. If it does not divide the depth,
            the next smaller size that does is used.
        symmetric: use no zero points. The file is then 3 % smaller, and the error 5 % larger.
        last_layer: weight of the layer whose result is an output of the model: unchanged (``keep``), like all others
            (``same``), or in 8 bits (``8``).
        embeddings: tables from which Gather reads rows: unchanged (``keep``), or ``int8`` with a scale for each row.
        convolutions: weights of Conv and ConvTranspose: unchanged (``keep``), or ``int8`` with a scale for each output
            channel.
        keep_nodes: names of MatMul, Gemm, convolution and Gather nodes that stay unchanged.
        keep_patterns: regular expressions; such nodes whose name matches stay unchanged.
        least: the smallest weight to round, in elements.
        search: ``auto`` searches for the nodes that must keep their weights so that the outputs meet ``tolerance``.
        tolerance: the largest error that the search may leave: max|difference| / max|reference| of an output.
        feeds: number of feeds (sets of inputs) that the search uses.
        max_trials: the largest number of trials, each a run of the model.
        max_seconds: time limit of the search in seconds; the first 24 trials ignore it.
        journal: path of a file that stores trials, so that an interrupted search can continue; empty for none.
    """

    bits: Literal[4, 8] = 4
    block_size: Literal[16, 32, 64, 128, 256] = 32
    symmetric: bool = True
    last_layer: Literal["keep", "same", "8"] = "same"
    embeddings: Literal["keep", "int8"] = "keep"
    convolutions: Literal["keep", "int8"] = "keep"
    keep_nodes: list[str] = msgspec.field(default_factory=list)
    keep_patterns: list[str] = msgspec.field(default_factory=list)
    least: Annotated[int, msgspec.Meta(ge=1, le=MOST_SIZE)] = 65_536
    search: Literal["off", "auto"] = "off"
    tolerance: Annotated[float, msgspec.Meta(gt=0, le=MOST_VALUE)] = 0.1
    feeds: Annotated[int, msgspec.Meta(ge=1, le=MOST_FEEDS)] = 2
    max_trials: Annotated[int, msgspec.Meta(ge=1, le=MOST_TRIALS)] = 100
    max_seconds: Annotated[float, msgspec.Meta(gt=0, le=MOST_SECONDS)] = 120.0
    journal: str = ""


class WeightsPass(Pass[WeightsOptions]):
    """Round weights to 4 or 8 bits."""

    name = "weights"
    summary = "weights of MatMul and Gemm in 4 or 8 bits, in blocks that share a scale"
    options_type = WeightsOptions
    gives = frozenset({"few-bits"})
    bound = "few-bits"

    def run(self, model: Model, context: Context) -> bool:
        """Replace weights of ``model`` by weights in few bits, in place, and return whether any were replaced.

        The numbers are only computed when the model runs or is saved. A weight with infinity or NaN is refused then
        (DP415).

        Raises:
            ModelRefused: a search cannot run the model, or finds no weight that can be rounded within the tolerance
                (DP419).
            RecipeError: an option names a node that the model does not have, or a wrong pattern.
            InputError: a search's journal cannot be read, or a feed does not fit the model.
            CheckNotRun: a search has no feeds, or a run needs more memory or time than its limits allow.
        """
        options = self.options
        chosen = Selection(nodes=tuple(options.keep_nodes), patterns=tuple(options.keep_patterns))
        blocks = Blocks(options.bits, options.block_size, options.symmetric)
        last = {"keep": None, "same": blocks, "8": Blocks(8, options.block_size, options.symmetric)}
        keep = select(model, chosen, "keep")
        choice = Choice(blocks, last[options.last_layer], options.least, keep, self._convolutions(context))
        searched: dict[int, str] = {}
        if options.search == "auto":
            searched = self._sensitive(model, context, choice)
            choice = replace(choice, keep={**choice.keep, **searched})
        done = self._write(model, choice)
        self._report(done, set(searched.values()), context)
        return bool(done.written or done.rows or done.convolutions)

    def _convolutions(self, context: Context) -> bool:
        """Return whether weights of convolutions are rounded: if the options say so, and the target can read them.

        If the target cannot, DP417 is reported.
        """
        if self.options.convolutions == "keep":
            return False
        target = context.target
        if not target.opset_only and DEQUANTIZE in target.tables.dml:
            return True
        text = f"convolutions keep their weights: {target.title} has no kernel of DirectML's for {DEQUANTIZE}"
        context.report("DP417", text)
        return False

    def _write(self, model: Model, choice: Choice) -> Done:
        done = write_matmuls(model.ir, choice, model.budget)
        if choice.convolutions:
            write_convolutions(model.ir, choice, done, model.budget)
        if self.options.embeddings == "int8":
            write_rows(model.ir, choice, done, model.budget)
        return done

    def _sensitive(self, model: Model, context: Context, choice: Choice) -> dict[int, str]:
        """Search for the nodes that must keep their weights, report them, and return ``id(node)`` -> why.

        Raises:
            ModelRefused: the pipeline cannot run models, or no weight can be rounded within the tolerance (DP419).
        """
        options = self.options
        if context.runner is None:
            text = 'search = "auto" must run the model, but this pipeline runs no models'
            raise ModelRefused(text, code="DP419", fix='set search = "off", and list the nodes in keep_nodes')
        places = {id(node): place for place, node in nodes_by_path(model.ir).items()}

        def write(one: Model, keep: Mapping[int, str]) -> None:
            there = nodes_by_path(one.ir)
            mine = {id(there[places[node]]): why for node, why in choice.keep.items() if node in places}
            self._write(one, replace(choice, keep={**mine, **keep}))

        setting = Setting(
            options.tolerance,
            max_trials=options.max_trials,
            max_seconds=options.max_seconds,
            journal=Path(options.journal) if options.journal else None,
            conversion=str(msgspec.structs.replace(options, journal="", max_trials=1, max_seconds=1.0, feeds=1)),
            rules=context.rules,
            progress=context.progress,
            few_bits=True,
        )
        feeds = context.runner.feeds(model, options.feeds)
        result = find_sensitive(model, write, choice, context.runner, feeds, setting)
        self._tell(result, context)
        by_place = nodes_by_path(model.ir)
        return {id(by_place[place]): why for place, why in result.keep.items()}

    def _tell(self, result: SearchResult, context: Context) -> None:
        facts = context.facts
        facts.trials = [Trial(len(t.keep), t.error, round(t.seconds, 2)) for t in result.trials]
        facts.search_seconds = round(result.seconds, 1)
        facts.error_of_all, facts.error = result.whole, result.error
        if not result.met:
            text = f"no weight was found in {len(result.trials)} trials that can be rounded within an error of "
            text += f"{result.tolerance:g}; with all of them rounded it is {result.whole:.2g}"
            fix = "raise tolerance, max_trials or max_seconds, or use bits = 8 or a smaller block_size"
            raise ModelRefused(text, code="DP419", fix=fix)
        for name, why in result.keep.items():
            context.report("DP418", f"{name} keeps its weight: {why}", node=name)
        facts.kept_weights, facts.keep_recipe = dict(result.keep), result.recipe_lines()
        facts.kept_bytes, facts.bytes_to_round = result.kept_bytes, result.all_bytes

    def _report(self, done: Done, searched: set[str], context: Context) -> None:
        forms = Counter(f"{b.bits} bits in blocks of {b.size}" for b in done.written.values())
        for form, count in sorted(forms.items()):
            text = f"{count} {'product' if count == 1 else 'products'} with weights of {form}"
            context.report("DP416", text, count=count)
        if done.rows:
            context.report("DP416", f"{len(done.rows)} x Gather of rows of 8 bits", count=len(done.rows))
        if count := len(done.convolutions):
            text = f"{count} {'convolution' if count == 1 else 'convolutions'} with weights of 8 bits"
            context.report("DP416", text, count=count)
        by_reason: dict[str, list[str]] = {}
        for name, why in done.unchanged.items():
            if why not in searched:  # DP418 has reported those
                by_reason.setdefault(why, []).append(name)
        for why, names in sorted(by_reason.items()):
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            context.report("DP417", f"unchanged: {', '.join(names[:_SHOWN])}{more}: {why}", count=len(names))
        facts = context.facts
        facts.products, facts.tables, facts.convolutions = len(done.written), len(done.rows), len(done.convolutions)
        facts.weight_bytes_before, facts.weight_bytes_after = done.before, done.after
