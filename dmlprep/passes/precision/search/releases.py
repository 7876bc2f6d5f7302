"""Release as many blocks of an FP32 model to FP16 as the tolerance allows, beginning with large blocks.

Each round tries each block of the round in FP16, alone, with the others in FP32. It then releases together the blocks
that do the least harm for their gain, as many as the tolerance allows. It splits the others in two, and the next round
tries the halves. The released set meets the tolerance at any time, so the search can stop when its time is over.
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
        remaining: place of each node that stays in FP32 -> its block.
        met: whether any block was released, so that a trial showed that ``remaining`` meets the tolerance.
        tried: every block that was tried in FP16, in order.
        alone: remaining block -> error of the result with this block in FP16, too; blocks that were not tried at the
            end are missing.
    """

    remaining: dict[str, Block]
    met: bool
    tried: list[Block]
    alone: dict[Block, float]

    def why(self, block: Block, error: float, form: str) -> str:
        """Return a clause that says why a block stays: how the error of the result would grow without it.

        ``error``: error of the result; ``form``: the form that was tried ("FP16", "few bits").
        """
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
    """Search for the fewest blocks to keep in FP32, in addition to the nodes in ``base``.

    Args:
        base: place of each node that stays in FP32 in every trial -> why.
        free: places of the nodes that may be released.
        weigh: returns the gain of a node from FP16.
        narrow: whether blocks include nodes without FP32 (or wider) values.
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
        """Measure the error with the blocks ``gone`` in FP16, in addition to those released before."""
        places = [place for one in self.remaining if one not in gone for place in one.places]
        return self.trials.measure([*self.base, *places])

    def _measure(self, blocks: list[Block]) -> None:
        """Try each block alone in FP16, as far as trials are left, and set its ``error``; largest gain first."""
        for block in sorted(blocks, key=lambda one: -one.weight):
            if self.trials.remaining > 0:
                block.error = self._error([block])
                self.tried.append(block)

    def _let_go(self, blocks: list[Block]) -> list[Block]:
        """Release as many of the blocks together as the tolerance allows, and return the others.

        The blocks with the least harm for their gain come first.
        """
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
        """Try each remaining block in FP16 again, and release it if the tolerance is met: errors may cancel out by now.

        Returns:
            block that stays -> the error with this block in FP16, too; blocks that were not tried are missing.
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
        """Split blocks in ``remaining``, in place, and return the halves; a block of one unit is not in the result."""
        new_blocks: list[Block] = []
        for block in blocks:
            halves = block.split(self.weigh)
            if halves:
                at = self.remaining.index(block)
                self.remaining[at : at + 1] = halves
                new_blocks += halves
        return new_blocks
