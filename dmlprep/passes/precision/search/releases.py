"""From a model in FP32 to as few FP32 nodes as the tolerance allows: release blocks to FP16, large blocks first.

Each round tries every remaining block alone in FP16. It releases together the blocks that do the least harm for their
gain, as many as the tolerance allows. It splits the others in two, and the next round tries the halves. The remaining
set meets the tolerance at any time, so the search can stop when its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from dmlprep.passes.precision.search.blocks import Block, first_blocks
from dmlprep.passes.precision.search.trials import Trials


@dataclass(frozen=True)
class Released:
    """The result of a search by blocks.

    Attributes:
        remaining: the places of the remaining blocks, each with its block.
        met: whether any block was released, so that ``remaining`` was measured to meet the tolerance.
        tried: every block that was tried in FP16, in order.
        alone: remaining block -> error of the result with this block in FP16 as well; blocks after the last trial have
            none.
    """

    remaining: dict[str, Block]
    met: bool
    tried: list[Block]
    alone: dict[Block, float]

    def why(self, block: Block, error: float, form: str) -> str:
        """Return why a block stays: how the ``error`` of the result would grow with it in ``form`` (FP16, few bits)."""
        if (alone := self.alone.get(block)) is not None:
            return f"{block.name} in {form} would raise the error of the result from {error:.2g} to {alone:.2g}"
        if block.error is not None:
            return f"an earlier trial with {block.name} in {form} had an error of {block.error:.2g}"
        return f"the search ended before a trial with {block.name} in {form}"


def release(
    trials: Trials,
    base: Mapping[str, str],
    free: Iterable[str],
    weigh: Callable[[ir.Node], float],
    *,
    narrow: bool = False,
) -> Released:
    """Search for the fewest blocks to keep in FP32, in addition to ``base``.

    Args:
        free: places of the nodes that may be released.
        weigh: the gain from FP16 at a node.
        narrow: whether to include nodes without FP32 values.
    """
    return _Release(trials, base, weigh).run(first_blocks(trials.model, free, weigh, narrow=narrow))


class _Release:
    def __init__(self, trials: Trials, base: Mapping[str, str], weigh: Callable[[ir.Node], float]) -> None:
        self.trials, self.base, self.weigh = trials, base, weigh
        self.tolerance = trials.tolerance
        self.remaining: list[Block] = []
        self.error = 0.0
        self.tried: list[Block] = []

    def run(self, blocks: list[Block]) -> Released:
        self.remaining = list(blocks)
        count = sum(len(block.places) for block in blocks)
        while blocks and self.trials.remaining > 0:
            self._measure(blocks)
            blocks = self._halves(self._let_go(blocks))
        alone = self._once_more()
        by_place = {place: block for block in self.remaining for place in block.places}
        return Released(by_place, len(by_place) < count, self.tried, alone)

    def _error(self, gone: Sequence[Block]) -> float:
        """The error with these blocks in FP16 as well."""
        places = [place for one in self.remaining if one not in gone for place in one.places]
        return self.trials.measure([*self.base, *places])

    def _measure(self, blocks: list[Block]) -> None:
        """Measure the error with each block alone in FP16, those with the largest gain first."""
        for block in sorted(blocks, key=lambda one: -one.weight):
            if self.trials.remaining > 0:
                block.error = self._error([block])
                self.tried.append(block)

    def _let_go(self, blocks: list[Block]) -> list[Block]:
        """Release the blocks that the tolerance allows, least harm for their gain first, and return the others."""
        harm = {b: b.error for b in blocks if b.error is not None and b.error <= self.tolerance}
        ranked = sorted(harm, key=lambda b: (harm[b] ** 2 - self.error**2) / b.weight)
        count = len(ranked)
        while count > 1 and (self.trials.remaining <= 0 or self._error(ranked[:count]) > self.tolerance):
            count //= 2
        gone = ranked[:count]
        if gone:
            self.error = self._error(gone)
            self.remaining = [b for b in self.remaining if b not in gone]
        return [b for b in blocks if b not in gone]

    def _once_more(self) -> dict[Block, float]:
        """Try each remaining block in FP16 again, because errors may cancel out by now.

        Blocks with the largest gain come first.

        Returns:
            each block that stays -> the error with it in FP16.
        """
        before, alone = 0, dict[Block, float]()
        while before != (before := len(self.remaining)):
            for block in sorted(self.remaining, key=lambda one: -one.weight):
                if self.trials.remaining > 0:
                    alone[block] = self._error([block])
                    if alone[block] <= self.tolerance:
                        self.remaining.remove(block)
                        alone.clear()
        return alone

    def _halves(self, blocks: list[Block]) -> list[Block]:
        """Replace the blocks that can be split by their halves."""
        new_blocks: list[Block] = []
        for block in blocks:
            halves = block.split(self.weigh)
            if halves:
                at = self.remaining.index(block)
                self.remaining[at : at + 1] = halves
                new_blocks += halves
        return new_blocks
