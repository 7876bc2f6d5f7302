"""FP16: weights and arithmetic in half precision, with FP32 where it is needed."""

from __future__ import annotations

from typing import Literal

import msgspec

from dmlprep.errors import RecipeError
from dmlprep.model import Model
from dmlprep.passes.base import Context, Options, Pass
from dmlprep.passes.catalog import suggest
from dmlprep.precision.borrowed import convert_with_onnxconverter_common
from dmlprep.precision.convert import convert
from dmlprep.precision.selection import Selection, select

__all__ = ["Fp16Options", "Fp16Pass"]


class Fp16Options(Options, frozen=True):
    """Options of the step.

    Attributes:
        engine: ``own`` (dmlprep's converter), or ``onnxconverter-common``.
        policy: how careful the rules are: ``fast``, ``balanced`` or ``safe``.
        keep_io: whether graph inputs and outputs keep their types; or the names of those that do.
        keep_nodes: names of nodes that stay FP32.
        keep_operators: operator types that stay FP32 (``Softmax``, ``com.microsoft::Gelu``).
        keep_patterns: regular expressions; nodes whose name matches stay FP32.
        keep_between: pairs of values; the nodes on the way from the first to the second stay FP32.
        convert_nodes, convert_operators, convert_patterns, convert_between: converted against the policy, where
            FP16 kernels exist.
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


class Fp16Pass(Pass[Fp16Options]):
    """Convert a model to FP16."""

    name = "fp16"
    summary = "half precision: FP16 weights and arithmetic, FP32 where it is needed"
    options_type = Fp16Options
    gives = frozenset({"fp16"})
    bound = "fp16"
    changes_signature = True

    def run(self, model: Model, context: Context) -> bool:
        """Convert ``model`` in place.

        Raises:
            ModelRefused: a part of the model has no FP16 form (DP403).
            RecipeError: an option names what the model does not have.
        """
        options = self.options
        keep = select(model, _selection(options, "keep"), "keep")
        bytes_before = model.statistics().nbytes
        if options.engine == "own":
            changed = self._own(model, context, keep)
        else:
            changed = self._borrowed(model, context, keep)
        if changed:
            context.facts |= {
                "engine": options.engine,
                "bytes_before": bytes_before,
                "bytes_after": model.statistics().nbytes,
            }
        return changed

    def _own(self, model: Model, context: Context, keep: dict[int, str]) -> bool:
        options = self.options
        keep_io: bool | set[str] = options.keep_io if isinstance(options.keep_io, bool) else set(options.keep_io)
        if not isinstance(keep_io, bool):
            known = {v.name or "" for v in (*model.ir.graph.inputs, *model.ir.graph.outputs)}
            for name in sorted(keep_io - known):
                raise RecipeError(
                    f"the model has no input or output {name!r}", where="keep_io", fix=suggest(name, list(known))
                )
        convert_anyway = select(model, _selection(options, "convert"), "convert")
        done = convert(
            model,
            context.target,
            level=options.policy,
            keep_io=keep_io,
            keep=keep,
            convert_anyway=convert_anyway,
        )
        for one in done.findings:
            context.report(one)
        context.facts |= {"casts": done.casts, "kept_fp32": done.kept, "kept_by_rule": done.rules}
        return done.changed

    def _borrowed(self, model: Model, context: Context, keep: dict[int, str]) -> bool:
        options = self.options
        if not isinstance(options.keep_io, bool):
            raise RecipeError(
                "this engine keeps all inputs and outputs, or none",
                where="step fp16: keep_io",
                fix='say true or false, or use engine = "own"',
                code="DP901",
            )
        findings = convert_with_onnxconverter_common(
            model, keep_io=options.keep_io, keep_operators=set(options.keep_operators), keep=keep
        )
        for one in findings or ():
            context.report(one)
        return findings is not None


def _selection(options: Fp16Options, field: Literal["keep", "convert"]) -> Selection:
    return Selection(
        tuple(getattr(options, f"{field}_nodes")),
        tuple(getattr(options, f"{field}_operators")),
        tuple(getattr(options, f"{field}_patterns")),
        tuple(getattr(options, f"{field}_between")),
    )
