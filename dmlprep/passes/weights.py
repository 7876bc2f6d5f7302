"""Weights: those of MatMul and Gemm in 4 or 8 bits, as com.microsoft::MatMulNBits."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

import msgspec

from dmlprep.bounds import MOST_SIZE
from dmlprep.model import Model
from dmlprep.passes.base import Context, Options, Pass
from dmlprep.precision.user_selection import Selection, select
from dmlprep.precision.weights import Blocks, Choice, Done, write_matmuls, write_rows
from dmlprep.record import finding

__all__ = ["WeightsOptions", "WeightsPass"]

_SHOWN = 3


class WeightsOptions(Options, frozen=True, kw_only=True):
    """Options of ``weights``.

    Attributes:
        bits: of each number.
        block_size: numbers along the depth that share a scale; where it does not divide the depth, the next smaller
            size does.
        symmetric: no zero points: the file is 3 % smaller, and the error 5 % larger.
        last_layer: what becomes of the layer whose result is an output of the model: ``keep``, ``same``, or ``8`` bits.
        embeddings: tables that Gather reads rows of: ``keep``, or ``int8`` with a scale a row.
        keep_nodes: names of nodes that stay as they are.
        keep_patterns: regular expressions; nodes whose name matches stay.
        least: elements that a weight has at least.
    """

    bits: Literal[4, 8] = 4
    block_size: Literal[16, 32, 64, 128, 256] = 32
    symmetric: bool = True
    last_layer: Literal["keep", "same", "8"] = "same"
    embeddings: Literal["keep", "int8"] = "keep"
    keep_nodes: list[str] = msgspec.field(default_factory=list)
    keep_patterns: list[str] = msgspec.field(default_factory=list)
    least: Annotated[int, msgspec.Meta(ge=1, le=MOST_SIZE)] = 65_536


class WeightsPass(Pass[WeightsOptions]):
    """Round weights to few bits."""

    name = "weights"
    summary = "weights of MatMul and Gemm in 4 or 8 bits, in blocks that share a scale"
    options_type = WeightsOptions
    gives = frozenset({"few-bits"})
    bound = "few-bits"

    def run(self, model: Model, context: Context) -> bool:
        """Round the weights of ``model`` in place; numbers are computed while they are saved.

        Raises:
            RecipeError: an option names what the model does not have.
        """
        options = self.options
        chosen = Selection(nodes=tuple(options.keep_nodes), patterns=tuple(options.keep_patterns))
        blocks = Blocks(options.bits, options.block_size, options.symmetric)
        last = {"keep": None, "same": blocks, "8": Blocks(8, options.block_size, options.symmetric)}
        choice = Choice(blocks, last[options.last_layer], options.least, select(model, chosen, "keep"))
        done = write_matmuls(model.ir, choice, model.budget)
        if options.embeddings == "int8":
            write_rows(model.ir, options.least, done, model.budget)
        self._report(done, context)
        return bool(done.written or done.rows)

    def _report(self, done: Done, context: Context) -> None:
        forms = Counter(f"{b.bits} bits in blocks of {b.size}" for b in done.written.values())
        for form, count in sorted(forms.items()):
            text = f"{count} {'product' if count == 1 else 'products'} with weights of {form}"
            context.report(finding("DP416", text, count=count))
        if done.rows:
            context.report(finding("DP416", f"{len(done.rows)} x Gather of rows of 8 bits", count=len(done.rows)))
        by_reason: dict[str, list[str]] = {}
        for name, why in done.left.items():
            by_reason.setdefault(why, []).append(name)
        for why, names in sorted(by_reason.items()):
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            context.report(
                finding("DP417", f"stays as it is: {', '.join(names[:_SHOWN])}{more}: {why}", count=len(names))
            )
        context.facts |= {
            "products": len(done.written),
            "tables": len(done.rows),
            "weight_bytes_before": done.before,
            "weight_bytes_after": done.after,
        }
