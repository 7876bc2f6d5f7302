"""Run a pass such that it succeeds or changes nothing: take a snapshot, run, check; restore the model on failure."""

from __future__ import annotations

import tempfile
import time
from collections import Counter

import onnx

from dmlprep.core.errors import DmlprepError, InternalError, ModelRefused, OutputError
from dmlprep.graph.analysis.shapes import Inference, refuse_wrong_types
from dmlprep.graph.model import Frozen, Model, thaw
from dmlprep.graph.model.checking import check
from dmlprep.graph.model.sources import Sources, hand_on
from dmlprep.graph.model.walk import nodes
from dmlprep.passes import AnyPass, Context
from dmlprep.passes.framing.frame import check_interface
from dmlprep.record import StepRecord


class Transactions:
    """Runner of steps, one after another, on one model. Between the steps, no other code may change the model.

    Args:
        model: the model, which the steps change in place.
        frozen: the serialized model, if known; ``None``: it is taken before the first step.
        is_forecast: True if the caller only predicts and drops the model. Then new nodes get no source line, and a pass
            that reports no change is believed.

    Attributes:
        within_target: True once a step brought opset and IR version within the target; later steps must keep them so.
    """

    def __init__(
        self, model: Model, frozen: Frozen | None = None, *, within_target: bool = False, is_forecast: bool = False
    ) -> None:
        self._model, self.within_target, self._is_forecast = model, within_target, is_forecast
        self._now = (frozen, model.statistics()) if frozen is not None else None

    @property
    def frozen(self) -> Frozen | None:
        """The serialized model after the last step; ``None`` if that step failed, or it is not serialized yet."""
        return self._now[0] if self._now is not None else None

    def run(self, name: str, step: AnyPass, context: Context, options: dict[str, object] | None = None) -> StepRecord:
        """Run one pass on the model, check its result, and return the record of the step.

        On any error the model is restored to its state before the step.

        Args:
            name: name of the step, for the record and for errors.
            context: context of the pass (target, runner of models); the findings and facts in it go into the record.
            options: options of the step, for the record only.

        Raises:
            OutputError: a temporary file cannot be written.
            ModelRefused: the pass refused the model, or its result is not valid.
            InternalError: the pass broke its contract, or raised an error that is not a ``DmlprepError``.
            DmlprepError: any other error that the pass raised, such as ``CheckNotRun``.
        """
        before, counts = self._now or (self._model.snapshot(), self._model.statistics())
        self._now = None
        context.before, context.after = before, None
        began = time.perf_counter()
        after = self._after(name, step, before, context)
        seconds = time.perf_counter() - began
        changed = after is not before
        self._now = after, self._model.statistics() if changed else counts
        undone = any(f.code == "DP301" for f in context.findings) and not changed
        return StepRecord(
            step=name,
            outcome="undone" if undone else "changed" if changed else "unchanged",
            seconds=round(seconds, 3),
            nodes_before=counts.nodes,
            nodes_after=self._now[1].nodes,
            bytes_before=counts.nbytes,
            bytes_after=self._now[1].nbytes,
            options=dict(options or {}),
            findings=Sources(self._model.ir).locate(context.findings, before.proto),
            facts=context.facts,
        )

    def _after(self, name: str, step: AnyPass, before: Frozen, context: Context) -> Frozen:
        """Run the pass; return the serialized model after it, or ``before`` itself if the pass changed nothing.

        On any error, restore the model to ``before`` first.
        """
        try:
            changed = step.run(self._model, context)
            self.within_target = self.within_target or "opset" in step.promises()
            if not changed and self._is_forecast:
                return before
            if changed and not self._is_forecast and hand_on(self._model.ir, before.proto):
                context.after = None
            return self._held_to_contract(step, before, changed, context)
        except (Exception, KeyboardInterrupt) as error:
            self._model.restore(before)
            where = f"step {name}"
            if isinstance(error, KeyboardInterrupt | MemoryError):
                raise
            if isinstance(error, DmlprepError):
                error.where = f"{where}: {error.where}" if error.where else where
                raise
            if isinstance(error, OSError):
                what = f"a temporary file cannot be written: {error.strerror or error}"
                where = f"{where}: {error.filename or tempfile.gettempdir()}"
                fix = "free some space there, or set TMPDIR to a folder with more space"
                raise OutputError(what, where=where, fix=fix) from error
            fix = "please report this with the model's structure; remove the step for now"
            raise InternalError(f"{type(error).__name__}: {error}", where=where, fix=fix) from error

    def _held_to_contract(self, step: AnyPass, before: Frozen, changed: bool, context: Context) -> Frozen:
        model = self._model
        now = (context.after if changed else None) or model.snapshot()
        if now.same_as(before) == changed:
            claim = "changed something" if changed else "changed nothing"
            raise InternalError(f"the pass reports that it {claim}, but that is wrong", fix="please report this")
        if not changed:
            return before
        if step.keeps_interface:
            _same_signature(step, before, now.proto.graph)
        else:
            check_interface(model.ir)
        if self.within_target:
            target = context.target
            limits = ("opset", model.opset, target.max_opset), ("IR version", model.ir.ir_version, target.max_ir)
            for what, version, most in limits:
                if version > most:
                    text = f"the model has {what} {version}, too new for {target.name}"
                    raise InternalError(text, fix="please report this")
        names = Counter(n.name for n in nodes(model.ir) if n.name)
        doubled = sorted(n for n, times in names.items() if times > 1)
        if doubled:
            names_before = Counter(n.name for n in nodes(thaw(before)) if n.name)
            if any(names_before[name] < 2 for name in doubled):  # otherwise the user's own model has them
                raise InternalError(f"two nodes are named {doubled[0]!r}", fix="please report this")
        if wrong := check(model.ir, frozen=now):
            what = f"the result is not valid: {wrong}"
            raise ModelRefused(what, fix="remove this step, and report the model's structure", code="DP003")
        return now


def _same_signature(step: AnyPass, before: Frozen, new: onnx.GraphProto) -> None:
    old = before.proto.graph
    weights = {t.name for t in old.initializer} | {t.name for t in new.initializer}
    for kind, olds, news in (("inputs", old.input, new.input), ("outputs", old.output, new.output)):
        # Before IR 4 weights are inputs as well; a pass may change that.
        was = [v for v in olds if kind == "outputs" or (v.name not in weights and step.keeps_input(v.name))]
        is_ = [v for v in news if kind == "outputs" or v.name not in weights]
        if [v.name for v in was] != [v.name for v in is_]:
            raise InternalError(f"the pass changed the model's {kind}", fix="please report this")
        for a, b in zip(was, is_, strict=True):
            had, has = _element_type(a.type), _element_type(b.type)
            if had not in (has, "tensor_type:0", "none:0") and step.keeps_type(a.name):
                # A model that declared a wrong output type before the pass is refused: the pass is not to blame.
                original = thaw(before)
                refuse_wrong_types(original.graph, Inference.of(original), bodies=True)
                raise InternalError(f"the pass changed the type of {a.name!r}", fix="please report this")


def _element_type(kind: onnx.TypeProto) -> str:
    """Return the type of a value as text, without its shape: ``sequence_type:tensor_type:1``.

    An unknown element type is 0, and a missing type is ``none:0``.
    """
    which = kind.WhichOneof("value")
    if which is None:
        return "none:0"
    inner = getattr(kind, which)
    if which in ("sequence_type", "optional_type"):
        return f"{which}:{_element_type(inner.elem_type)}"
    return f"{which}:{getattr(inner, 'elem_type', 0)}"
