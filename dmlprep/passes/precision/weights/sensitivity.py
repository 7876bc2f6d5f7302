"""Search for the nodes that must keep their weights so that the outputs stay within a bound; the fewest bytes win.

The nodes are products (MatMul, Gemm) and convolutions. The trials work like those of the island search
(``precision/search``): each node has its original weight or a weight in few bits.
"""

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
class SearchResult:
    """The result of ``find_sensitive``.

    Attributes:
        met: whether the bound is met with at least one weight in few bits.
        error: error of the outputs with the result; the smallest of all trials if the bound is not met.
        whole: the error with every weight in few bits.
        tolerance: the search's bound: the requested one, or the proof's if that is smaller.
        keep: label of each node that keeps its weight -> why, with numbers; empty if the bound is not met.
        kept_bytes, all_bytes: size in bytes of the weights of the nodes in ``keep``, and of all weights that could be
            rounded.
        trials: the trials, in order.
        seconds: duration of the search.
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
        """The option ``keep_nodes`` as TOML, with which the step gives this result without a search.

        Nodes that the user keeps by name are not included.
        """
        return keep_nodes_lines(self.keep)


def find_sensitive(
    model: Model,
    write: Callable[[Model, Mapping[int, str]], object],
    choice: Choice,
    runner: Runner,
    feeds: Sequence[Feeds],
    setting: Setting,
) -> SearchResult:
    """Search for the nodes of the main graph that must keep their weights; ``model`` is unchanged.

    Args:
        write: rounds the weights of a copy of the model in place, except those of the nodes in its map of ``id(node)``
            -> why.
        choice: the weights that ``write`` rounds if that map is empty.
        runner: runs models.
        feeds: inputs by name, one mapping for each run; the worst run counts.
        setting: the settings of the search; ``few_bits`` must be true.

    Raises:
        ModelRefused: the model does not run, or a weight cannot be rounded.
        InputError: ``setting.journal`` cannot be read, or is another kind of file.
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
        error = trials.measure(released.remaining) if met else min(trial.error for trial in trials.done)
        for place, block in released.remaining.items() if met else ():
            keep[place] = released.why(block, error, "few bits")
    kept_bytes = sum(by_label[place] for place in keep)
    return SearchResult(met, error, whole, trials.tolerance, keep, kept_bytes, total, trials.done, trials.seconds)
