"""Which products and convolutions keep their weights, so that the outputs stay within a bound: the fewest bytes. The
trials are those of the island search (``precision/search``), with weights as they were or in few bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import label
from dmlprep.passes.precision.search.releases import release
from dmlprep.passes.precision.search.trials import Feeds, Setting, Trial, Trials, keep_nodes_lines
from dmlprep.passes.precision.weights.convolutions import convolutions_to_round
from dmlprep.passes.precision.weights.matmuls import Choice, to_round

if TYPE_CHECKING:
    from dmlprep.graph.model.runner import Runner


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        met: whether the bound is met with at least one weight in few bits.
        error: of the outputs with the result, or the least of all trials where the bound is not met.
        whole: the error with every weight in few bits.
        tolerance: that the search held to: what was asked, or what the proof allows, where that is less.
        keep: label of each node that keeps its weight -> why, with numbers.
        kept_bytes, all_bytes: of the weights that stay, and of all that could be rounded.
    """

    met: bool
    error: float
    whole: float
    tolerance: float
    keep: Mapping[str, str] = field(default_factory=dict)
    kept_bytes: int = 0
    all_bytes: int = 0
    trials: Sequence[Trial] = ()
    seconds: float = 0.0

    def recipe_lines(self) -> str:
        """TOML for the step that gives this result without a search; what the user keeps by name is not in it."""
        return keep_nodes_lines(self.keep)


def find_sensitive(
    model: Model,
    write: Callable[[Model, Mapping[int, str]], object],
    choice: Choice,
    runner: Runner,
    feeds: Sequence[Feeds],
    setting: Setting,
) -> Found:
    """Search for the nodes of the main graph that have to keep their weights; ``model`` is not changed.

    Args:
        write: rounds the weights of a copy in place, but for those of the nodes given by ``id(node)``.
        choice: what ``write`` rounds where nothing more is kept.
        feeds: inputs by name, one mapping a run; the worst of them counts.
        setting: with ``few_bits`` set.

    Raises:
        ModelRefused: the model does not run, or a weight cannot be rounded.
        InputError: ``setting.journal`` is some other file.
    """
    trials = Trials(model, write, runner, list(feeds), setting)
    sizes = to_round(model.ir, choice) | (convolutions_to_round(model.ir, choice) if choice.convolutions else {})
    total = sum(sizes.values())
    by_label = {label(node): count for node, count in sizes.items()}
    whole = error = trials.measure(())
    met, keep = whole <= trials.tolerance, dict[str, str]()
    if not met and sizes:
        released = release(trials, {}, by_label, lambda node: sizes.get(node, 0) / total, narrow=True)
        met = released.met
        error = trials.measure(released.kept) if met else min(trial.error for trial in trials.done)
        for place, block in released.kept.items() if met else ():
            keep[place] = released.why(block, error, "few bits")
    kept = sum(by_label[place] for place in keep)
    return Found(met, error, whole, trials.tolerance, keep, kept, total, trials.done, trials.seconds)
