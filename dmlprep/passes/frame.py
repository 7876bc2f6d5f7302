"""The frame step adds a frame, the app's pre- and post-processing, to the graph, in operators that DirectML runs."""

from __future__ import annotations

import msgspec

from dmlprep.core.errors import ModelRefused
from dmlprep.core.text.sizes import count_text
from dmlprep.graph.model import Model
from dmlprep.passes.base import Context, Options, Pass
from dmlprep.passes.framing import DetectOptions, Frame, PictureOptions, ResultOptions, frame_of, resolve, write_frame


class FrameOptions(Options, frozen=True, kw_only=True):
    """Options of the step ``frame``.

    Attributes:
        inputs: map from an input's name to the app's pictures for it.
        outputs: map from an output's name to the result that the app needs from it.
        detect: boxes that replace a detector's raw outputs; ``None`` for no detector.
    """

    inputs: dict[str, PictureOptions] = msgspec.field(default_factory=dict)
    outputs: dict[str, ResultOptions] = msgspec.field(default_factory=dict)
    detect: DetectOptions | None = None

    @property
    def empty(self) -> bool:
        """Return whether the options ask for no frame at all."""
        return not (self.inputs or self.outputs or self.detect)


class FramePass(Pass[FrameOptions]):
    """Add a frame to a model. Inputs keep their names, but get the types and shapes of the app's pictures.

    Outputs become the results that the app needs.
    """

    name = "frame"
    summary = (
        "accept the app's pictures (bytes, NHWC, one size of your choice), and return the results that the app needs"
    )
    options_type = FrameOptions
    bound = "rounding"
    keeps_interface = False

    def framed(self, model: Model) -> Frame | None:
        """Return the frame that ``run`` would add to a model in its present form; ``None`` if the options are empty.

        The model is unchanged.

        Raises:
            ModelRefused: DP305, the options do not fit the model.
        """
        if self.options.empty:
            return None
        frame = resolve(model.ir, self.options.inputs, self.options.outputs, self.options.detect)
        return msgspec.structs.replace(frame, table=self._table())

    def _table(self) -> dict[str, object]:
        """Return the options as plain data, as the frame's note in the model's metadata has them."""
        table: dict[str, object] = msgspec.json.decode(msgspec.json.encode(self.options))
        return table

    def run(self, model: Model, context: Context) -> bool:
        """Add the frame to ``model`` in place, and return whether the model changed.

        A model that has this frame already is unchanged.

        Raises:
            ModelRefused: DP305, the options do not fit the model, or it has another frame. DP306, DirectML cannot run a
                part of the frame. DP014, the frame's constants exceed the limit for the model.
        """
        there = frame_of(model.ir)
        if there is not None and there.table == self._table():
            return False
        if there is not None and not self.options.empty:
            fix = "frame the original model instead"
            raise ModelRefused("the model already has a frame with other settings", code="DP305", fix=fix)
        frame = self.framed(model)
        if frame is None:
            return False
        before = set(_on_cpu(model, context))
        new_names = {node.name for node in write_frame(model, frame)}
        on_cpu = [
            f"{name} ({op})" for name, op in _on_cpu(model, context) if (name, op) not in before and name in new_names
        ]
        if on_cpu:
            nodes = count_text(len(on_cpu), "node")
            text = f"{context.target.name} would run {nodes} of the frame on the CPU, first {on_cpu[0]}"
            fix = "prepare for a newer release, or leave this part of the frame to the app"
            raise ModelRefused(text, code="DP306", fix=fix)
        for picture in frame.pictures:
            shape, inner = list(picture.shape), list(picture.model_shape)
            text = f"{picture.name} accepts {picture.type} {shape} ({picture.colour}); the model gets {inner}"
            context.report("DP304", text, node=picture.name, mode=picture.mode, resized=list(picture.resized))
        for result in frame.results:
            what = result.activation if result.take == "all" else result.take
            text = f"{' and '.join(result.outputs)}: {what} of the model output {result.name}"
            context.report("DP304", text, node=result.name)
        if frame.detect is not None:
            count, replaced = frame.detect.table.count, " and ".join(frame.detect.raw_outputs)
            text = f"{count} boxes in pixels of the app's picture replace {replaced}"
            context.report("DP304", text, node=frame.detect.raw_outputs[0])
        context.facts.frame_nodes = len(new_names)
        return True


def _on_cpu(model: Model, context: Context) -> list[tuple[str, str]]:
    return [(node.name, node.operator) for node in context.on_cpu(model, None)] if context.on_cpu is not None else []
