"""The fp16 step: weights and arithmetic in half precision, with FP32 where it is needed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused, RecipeError
from dmlprep.graph.model import Model
from dmlprep.graph.model.runner import Runner
from dmlprep.graph.model.walk import label, nodes, nodes_by_path
from dmlprep.metrics import holds_fp16
from dmlprep.passes.base import Context, Options, Pass
from dmlprep.passes.catalog import suggest
from dmlprep.passes.precision.convert.converter import Converted, convert, count_casts, inline_calls
from dmlprep.passes.precision.convert.norms import write_norms
from dmlprep.passes.precision.convert.onnxconverter_common import convert_with_onnxconverter_common
from dmlprep.passes.precision.convert.rewrite import shares_weights
from dmlprep.passes.precision.convert.squares import sum_squares
from dmlprep.passes.precision.gain import gained, little_gain, smaller_question
from dmlprep.passes.precision.lift import has_half, lift
from dmlprep.passes.precision.policy.forms import own_island
from dmlprep.passes.precision.search.islands import Islands, Setting, find_islands
from dmlprep.passes.precision.search.profile import Range
from dmlprep.passes.precision.search.trials import Convert, Feeds, Trials
from dmlprep.passes.precision.types import solve_types
from dmlprep.passes.precision.user_selection import Selection, select
from dmlprep.passes.precision.view import View
from dmlprep.portable.bounds import MOST_FEEDS, MOST_SECONDS, MOST_TRIALS, MOST_VALUE
from dmlprep.record.steps import Block, KeepReason, Profile, Trial, Worst

_Run = Callable[[Model, Mapping[int, str], Mapping[int, str], bool], Converted]
"""A function that converts a model in place. Its arguments are the model, the nodes to keep in FP32, and the nodes to
convert against the policy. The last one says whether weights that FP32 and FP16 nodes share are stored in FP16 only."""


class Fp16Options(Options, frozen=True):
    """Options of the step ``fp16``.

    Attributes:
        engine: ``own`` (dmlprep's converter), or ``onnxconverter-common``.
        policy: how careful the rules are: ``fast``, ``balanced`` or ``safe``.
        keep_io: true if all graph inputs and outputs keep their types; or the names of those that keep them.
        keep_nodes: names of nodes that stay in FP32.
        keep_operators: operators that stay in FP32 (``Softmax``, ``com.microsoft::Gelu``).
        keep_patterns: regular expressions; nodes whose name matches stay in FP32.
        keep_between: pairs of values; the nodes on the way from the first to the second stay in FP32.
        convert_nodes, convert_operators, convert_patterns, convert_between: nodes to convert although the policy keeps
            them in FP32, if FP16 kernels exist.
        half_weights: whether a large weight that both FP32 and FP16 nodes read is stored in FP16 only, not in both
            types. ``auto``: only if a search meets the tolerance this way.
        lift: whether FP16 nodes of the input model count as FP32 nodes, so that they may stay in FP32. ``auto``: only
            if a search does not meet the tolerance otherwise.
        islands: ``auto`` searches for the smallest set of further nodes to keep in FP32, with the FP16 emulation.
        tolerance: the largest error that the search may leave: max|difference| / max|reference| of an output.
        rounding, accumulation: settings of the FP16 emulation (see ``precision.emulation``).
        feeds: number of feeds (sets of inputs) that the search uses.
        max_trials: the largest number of trials, each a run of the emulation.
        max_seconds: time limit of the search in seconds; the first 24 trials ignore it.
        journal: path of a file that stores trials, so that an interrupted search can continue; empty for none.
        allow: with ``little-gain``, a model that gains little from FP16 gives a warning, not a refusal.
    """

    engine: Literal["own", "onnxconverter-common"] = "own"
    policy: Literal["fast", "balanced", "safe"] = "balanced"
    keep_io: bool | list[str] = True
    keep_nodes: list[str] = msgspec.field(default_factory=list)
    keep_operators: list[str] = msgspec.field(default_factory=list)
    keep_patterns: list[str] = msgspec.field(default_factory=list)
    keep_between: list[tuple[str, str]] = msgspec.field(default_factory=list)
    convert_nodes: list[str] = msgspec.field(default_factory=list)
    convert_operators: list[str] = msgspec.field(default_factory=list)
    convert_patterns: list[str] = msgspec.field(default_factory=list)
    convert_between: list[tuple[str, str]] = msgspec.field(default_factory=list)
    half_weights: bool | Literal["auto"] = "auto"
    lift: bool | Literal["auto"] = "auto"
    islands: Literal["off", "auto"] = "off"
    tolerance: Annotated[float, msgspec.Meta(gt=0, le=MOST_VALUE)] = 0.01
    rounding: Literal["nearest", "toward-zero"] = "nearest"
    accumulation: Literal["storage", "everywhere"] = "storage"
    feeds: Annotated[int, msgspec.Meta(ge=1, le=MOST_FEEDS)] = 2
    max_trials: Annotated[int, msgspec.Meta(ge=1, le=MOST_TRIALS)] = 100
    max_seconds: Annotated[float, msgspec.Meta(gt=0, le=MOST_SECONDS)] = 120.0
    journal: str = ""
    allow: list[Literal["little-gain"]] = msgspec.field(default_factory=list)


class Fp16Pass(Pass[Fp16Options]):
    """Convert a model to FP16, with FP32 where it is needed."""

    name = "fp16"
    summary = "half precision: FP16 weights and arithmetic, FP32 where it is needed"
    options_type = Fp16Options
    gives = frozenset({"fp16"})
    bound = "fp16"

    def keeps_type(self, name: str) -> bool:
        """Return whether the input or output ``name`` keeps its type, as the option ``keep_io`` says."""
        keep_io = self.options.keep_io
        return keep_io if isinstance(keep_io, bool) else name in keep_io

    def run(self, model: Model, context: Context) -> bool:
        """Convert ``model`` in place, and return whether it changed.

        Raises:
            ModelRefused: a part of the model has no FP16 form (DP403), a search does not meet its tolerance (DP404), or
                FP16 gains nothing or little (DP406, DP409).
            RecipeError: an option names a node or value that the model does not have, or the engine does not support an
                option.
            InputError: a search's journal cannot be read, or a feed does not fit the model.
            CheckNotRun: a search has no feeds, or a run needs more memory or time than its limits allow.
        """
        options = self.options
        context.facts.engine = options.engine
        if options.engine == "own":
            changed = self._own(model, context)
        else:
            changed = self._borrowed(model, context, select(model, _selection(options, "keep"), "keep"))
        if write_norms(model):
            changed, context.after, context.facts.casts = True, None, count_casts(model.ir)
        self._judge(model, context)
        return changed

    def _judge(self, model: Model, context: Context) -> None:
        """Check that the converted model gains enough from FP16.

        If it does not, but the option ``allow`` permits it, or the user keeps more than half of the FP32 nodes, a
        finding is reported.

        Raises:
            ModelRefused: no node became FP16 (DP406), or FP16 gains little (DP409).
        """
        facts, gain = context.facts, gained(model, context.after)
        if not holds_fp16(model):
            floats = any(v.dtype == ir.DataType.FLOAT for n in nodes(model.ir) for v in n.outputs)
            code, text = "DP406", "no node became FP16: all of them stay in FP32" if floats else ""
        else:
            code, text = "DP409", little_gain(gain)
        if not text:
            return
        text += gain.mostly_quantised
        fp32_nodes = facts.kept_fp32
        rules = Counter("search" if name in facts.islands else one.rule for name, one in fp32_nodes.items())
        if rules:
            text += f" (nodes in FP32: {', '.join(f'{rule} {count}' for rule, count in rules.most_common())})"
        if "little-gain" in self.options.allow or 2 * rules["user"] > len(fp32_nodes):
            context.report(code, text, fp32_nodes=len(fp32_nodes))
            return
        fix = smaller_question(facts, self.options.tolerance)
        anyway = 'allow = ["little-gain"] in step.fp16 writes the file anyway'
        raise ModelRefused(text, code=code, fix=f"{fix}; {anyway}")

    def _own(self, model: Model, context: Context) -> bool:
        options = self.options
        keep_io: bool | set[str] = options.keep_io if isinstance(options.keep_io, bool) else set(options.keep_io)
        if not isinstance(keep_io, bool):
            known = {v.name or "" for v in (*model.ir.graph.inputs, *model.ir.graph.outputs)}
            for name in sorted(keep_io - known):
                text = f"the model has no input or output {name!r}"
                raise RecipeError(text, where="keep_io", fix=suggest(name, list(known)))
        keep, convert_anyway, inlined = self._chosen(model)

        def run(one: Model, fp32_nodes: Mapping[int, str], anyway: Mapping[int, str], half: bool) -> Converted:
            rewritten = sum_squares(one, fp32_nodes, context.target, options.policy)
            done = convert(
                one,
                context.target,
                level=options.policy,
                keep_io=keep_io,
                keep=fp32_nodes,
                convert_anyway=anyway,
                half_weights=half,
            )
            return replace(done, changed=done.changed or rewritten)

        def lifted() -> bool | set[str]:
            keep.update((id(node), why) for node, why in own_island(View.of(model.ir, context.target)))
            ends = {v.name or "" for v in (*model.ir.graph.inputs, *model.ir.graph.outputs)}
            return (ends if keep_io is True else keep_io or set()) - lift(model)

        searches = options.islands == "auto" and context.runner is not None
        feeds: list[Feeds] = [*context.runner.feeds(model, options.feeds)] if context.runner and searches else []
        tried: dict[bool, tuple[Model, Converted]] = {}
        lifts = options.lift is True
        if options.lift == "auto" and searches and has_half(model):
            search = self._search(model, context, run, keep, convert_anyway, False, feeds, tried)
            lifts = not Trials(*search[:-1], replace(search[-1], journal=None)).meets(())
        before = model.snapshot() if lifts else None
        if lifts:
            keep_io = lifted()
            tried.clear()
            context.facts.island_recipe = "\nlift = true"
        half = options.half_weights is True
        if options.islands == "auto":
            half = half or (options.half_weights == "auto" and shares_weights(model))
            with model.held(None if inlined or lifts else context.before):
                islands = find_islands(*self._search(model, context, run, keep, convert_anyway, half, feeds, tried))
            if half and (islands.whole or not islands.met) and options.half_weights == "auto":
                half = False
                islands = find_islands(*self._search(model, context, run, keep, convert_anyway, half, feeds, tried))
            island_nodes = self._islands(model, context, islands)
            keep |= island_nodes
            if island_nodes:
                tried.clear()
            if half:
                context.facts.island_recipe += "\nhalf_weights = true"
        if half in tried:  # the search has converted a copy in the same way
            converted, done = tried[half]
            model.become(converted)
        else:
            done = run(model, keep, convert_anyway, half)
        context.findings += done.findings
        facts, context.after = context.facts, done.frozen
        facts.casts, facts.kept_fp32, facts.kept_by_rule = done.casts, done.kept_fp32, done.rules
        changed = done.changed if before is None else not model.snapshot().same_as(before)
        return changed or inlined

    def _chosen(self, model: Model) -> tuple[dict[int, str], dict[int, str], bool]:
        """Inline model-local functions in place, and return the nodes that the options choose.

        Options may use names from before or after the inlining.

        Returns:
            the nodes to keep in FP32, the nodes to convert against the policy (both ``id(node)`` -> why), and whether
            functions were inlined.
        """
        picks: list[dict[int, str]] = []
        rests: list[Selection] = []
        known = {*nodes_by_path(model.ir), *(name for n in nodes(model.ir) for name in (label(n), n.name))}
        for field in _FIELDS:
            selection = _selection(self.options, field)
            late = tuple(n for n in selection.nodes if n not in known) if model.ir.functions else ()
            early = tuple(n for n in selection.nodes if n not in late)
            picks.append(select(model, replace(selection, nodes=early), field))
            rests.append(Selection(nodes=late))
        inlined = inline_calls(model, *picks)
        for field, pick, rest in zip(_FIELDS, picks, rests, strict=True):
            pick |= select(model, rest, field)
        return picks[0], picks[1], inlined

    def _search(
        self,
        model: Model,
        context: Context,
        run: _Run,
        keep: dict[int, str],
        convert_anyway: dict[int, str],
        half: bool,
        feeds: list[Feeds],
        tried: dict[bool, tuple[Model, Converted]],
    ) -> tuple[Model, Convert, Runner, list[Feeds], Setting]:
        """Return the arguments with which ``find_islands`` searches for the nodes to keep in FP32.

        ``tried`` gets the copy that a trial converts without nodes of the search, by ``half``.

        Raises:
            ModelRefused: the pipeline cannot run models (DP403).
        """
        options = self.options
        if context.runner is None:
            text = 'islands = "auto" must run the model, but this pipeline runs no models'
            raise ModelRefused(text, code="DP403", fix='set islands = "off", and list the nodes in keep_nodes')
        by_place = nodes_by_path(model.ir).items()

        def trial(one: Model, fp32_nodes: Mapping[int, str]) -> None:
            places = nodes_by_path(one.ir)
            mine, anyway = (
                {id(places[p]): chosen[id(n)] for p, n in by_place if id(n) in chosen}
                for chosen in (keep, convert_anyway)
            )
            done = run(one, {**mine, **fp32_nodes}, anyway, half)
            if not fp32_nodes and (len(mine), len(anyway)) == (len(keep), len(convert_anyway)):
                tried[half] = one, done

        plain = msgspec.structs.replace(options, journal="", max_trials=1, max_seconds=1.0, feeds=1, allow=[])
        setting = Setting(
            options.tolerance,
            options.accumulation,
            options.rounding,
            options.max_trials,
            options.max_seconds,
            Path(options.journal) if options.journal else None,
            f"{context.target.name} {plain} {half}",
            context.rules,
            context.progress,
        )
        return model, trial, context.runner, feeds, setting

    def _islands(self, model: Model, context: Context, islands: Islands) -> dict[int, str]:
        """Report the result of a search, and return the nodes to keep in FP32: ``id(node)`` -> why.

        The facts of the step get the trials and the lines for a recipe without a search; findings name the nodes.

        Raises:
            ModelRefused: no set of nodes meets the tolerance, or only the whole model in FP32 (DP404).
        """
        options = self.options
        facts = context.facts
        facts.emulation = f"{options.accumulation}, {options.rounding}"
        facts.trials = [Trial(len(t.keep), t.error, round(t.seconds, 2)) for t in islands.trials]
        facts.blocks = [Block(name, error, count) for name, count, error in islands.blocks]
        facts.outputs_in_fp16 = {**islands.outputs}
        facts.search_seconds = round(islands.seconds, 1)
        facts.worst_values, facts.profile = _worst(islands.ranges.values()), _along(islands.ranges.values())
        if not islands.met or islands.whole:
            best = (
                f"only the whole model in FP32 has an error of at most {islands.tolerance:g}"
                if islands.met
                else f"after {len(islands.trials)} trials no set of nodes in FP32 brings the error below "
                f"{islands.tolerance:g}; at best it is {islands.error:.2g}"
            )
            text = f"{best}; with all of FP16 it is {islands.trials[0].error:.2g}"
            raise ModelRefused(text, code="DP404", fix=smaller_question(facts, islands.tolerance))
        for name, why in islands.computing.items():
            context.report("DP405", f"{name} stays in FP32: {why}", node=name)
        facts.islands, facts.islands_computing = islands.keep, islands.computing
        facts.island_recipe, facts.emulation_error = islands.recipe_lines() + facts.island_recipe, islands.error
        places = nodes_by_path(model.ir)
        return {id(places[name]): why for name, why in islands.keep.items()}

    def _borrowed(self, model: Model, context: Context, keep: dict[int, str]) -> bool:
        options = self.options
        if not isinstance(options.keep_io, bool):
            text, fix = (
                "this engine keeps all inputs and outputs or none",
                'set true or false, or use engine = "own"',
            )
            raise RecipeError(text, where="keep_io", fix=fix, code="DP901")
        for field, used in (
            ("convert_*", _selection(options, "convert") != Selection()),
            ("islands", options.islands != "off"),
            ("lift", options.lift is True),
            ("policy", options.policy != "balanced"),
            ("half_weights", options.half_weights is True),
        ):
            if used:
                fix = 'remove it (islands = "off"), or use engine = "own"'
                raise RecipeError("this engine does not support it", where=field, fix=fix, code="DP901")
        asked = [(n, keep[id(n)]) for n in nodes(model.ir) if id(n) in keep]
        findings = convert_with_onnxconverter_common(
            model, keep_io=options.keep_io, keep_operators=set(options.keep_operators), keep=keep
        )
        context.findings += findings or ()
        casts = [n for n in nodes(model.ir) if n.op_type == "Cast" and n.attributes["to"].value in _FLOATS]
        # The engine names nodes that have no name, so read their names only now.
        why = {label(n): reason for n, reason in asked}
        facts = context.facts
        facts.casts, facts.kept_fp32 = len(casts), _left_in_fp32(model, why)
        facts.kept_by_rule = dict(Counter(one.rule for one in facts.kept_fp32.values()))
        return findings is not None


def _left_in_fp32(model: Model, asked: Mapping[str, str]) -> dict[str, KeepReason]:
    """The nodes that compute in FP32 after onnxconverter-common's conversion, by label, with the reason.

    ``asked``: label of each node that the user keeps -> why. The others are kept by the engine's own list.
    """
    types = solve_types(model.ir)
    wide, listed = ir.TensorType(ir.DataType.FLOAT), KeepReason("engine", "the engine keeps this operator in FP32")
    return {
        label(n): KeepReason("user", asked[label(n)]) if label(n) in asked else listed
        for n in nodes(model.ir)
        if n.op_type not in ("Cast", "Constant") and any(types.get(v) == wide for v in n.outputs)
    }


_FLOATS = (ir.DataType.FLOAT.value, ir.DataType.FLOAT16.value)


def _worst(ranges: Iterable[Range]) -> list[Worst]:
    """The worst values of a range profile: the 10 largest, and up to 5 with most elements below FP16's normal range.

    Infinite values are left out.
    """
    finite = [r for r in ranges if math.isfinite(r.peak)]
    largest = sorted(finite, key=lambda r: -r.peak)[:10]
    smallest = [r for r in sorted(finite, key=lambda r: -r.small)[:5] if r.small > 0 and r not in largest]
    return [Worst(r.value, r.peak, r.small) for r in [*largest, *smallest]]


def _along(ranges: Iterable[Range]) -> Profile:
    """The peaks of the values of a range profile, in the order of the model: the 2000 largest, if there are more.

    Infinite values are left out.
    """
    finite = [r for r in ranges if math.isfinite(r.peak)]
    least = sorted((r.peak for r in finite), reverse=True)[:_PROFILED][-1:] or [0.0]
    shown = [r for r in finite if r.peak >= least[0]][:_PROFILED]
    return Profile([r.node for r in shown], [float(f"{r.peak:.4g}") for r in shown], len(finite) - len(shown))


_PROFILED = 2_000
"""The largest number of values in the range profile of a record."""

_KINDS = ("nodes", "operators", "patterns", "between")
_FIELDS: tuple[Literal["keep", "convert"], ...] = ("keep", "convert")


def _selection(options: Fp16Options, field: Literal["keep", "convert"]) -> Selection:
    return Selection(*(tuple(getattr(options, f"{field}_{kind}")) for kind in _KINDS))
