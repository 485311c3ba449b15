"""A claim of the literature, what was found when it was tried, and the verdict that follows from the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from softmaxdyn.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOLDS = "holds"
FAILS = "fails"
ONLY_WHEN = "holds only when"
THEOREM = "theorem"
UNDECIDED = "undecided at this size"
CANNOT = "the toy cannot decide"
VERDICTS = (THEOREM, HOLDS, ONLY_WHEN, FAILS, UNDECIDED, CANNOT)


class Statistic(NamedTuple):
    """A number with its 95 % interval (`statistics` makes them) and the closed range that the claim wants it in.

    One without seeds has value = low = high. `deciding` is False for a number that stands beside the verdict: a second
    threshold, a control.
    """

    name: str
    value: float
    low: float
    high: float
    at_least: float = -np.inf
    at_most: float = np.inf
    seeds: int = 0
    deciding: bool = True

    @property
    def inside(self) -> bool:
        """Whether the whole interval lies in the range."""
        return bool(self.at_least <= self.low and self.high <= self.at_most)

    @property
    def outside(self) -> bool:
        """Whether no part of the interval lies in the range, or there is no number."""
        return not (self.high >= self.at_least and self.low <= self.at_most)


@dataclass(frozen=True)
class Finding:
    """What an experiment found.

    statistics      the numbers that decide, and those beside them
    says            what was found, in a sentence or two with the numbers
    boundary        where the statement stops holding, as measured
    meaning         what that means for someone who trains a model
    only_when       the measured condition, where the statement fails as it stands and holds under a condition
    cannot          why tabular policies cannot speak to the claim; there is no verdict then
    counterexample  the smallest one, where the verdict contradicts the source
    table           the numbers behind the figure: columns of one length
    panels          the figure: each draws on the Axes that it gets, 7 in by 2.6 in for all of them
    """

    statistics: tuple[Statistic, ...] = ()
    says: str = ""
    boundary: str = ""
    meaning: str = ""
    only_when: str = ""
    cannot: str = ""
    counterexample: str = ""
    table: Mapping[str, Any] = field(default_factory=dict)
    panels: tuple[Callable[[Axes], Any], ...] = ()


@dataclass(frozen=True)
class Size:
    """How much is tried: the full number of seeds, steps and prompts, or a quick one."""

    quick: bool = False

    def __call__(self, full: int, quick: int) -> int:
        """`full`, or `quick` in a quick run."""
        return quick if self.quick else full

    @property
    def seeds(self) -> int:
        """Runs of whatever is random."""
        return self(20, 10)

    @property
    def name(self) -> str:
        """The word for it in a ledger."""
        return "quick" if self.quick else "full"


@dataclass(frozen=True)
class Claim:
    """A statement with its source, the threshold that was fixed before it was tried, and the function that tries it."""

    id: str
    statement: str
    source: str
    threshold: str
    function: Callable[[Size], Finding]
    proved: bool = False

    @property
    def number(self) -> int:
        """16 for C16."""
        return int(self.id[1:])

    @property
    def experiment(self) -> str:
        """How it is tried: the docstring of the function."""
        import inspect

        return inspect.getdoc(self.function) or ""


def claim(
    id: str, statement: str, *, source: str, threshold: str, proved: bool = False
) -> Callable[[Callable[[Size], Finding]], Claim]:
    """Makes a function of a `Size` a `Claim`; its docstring says how the claim is tried. `proved`: it is a theorem."""
    return lambda function: Claim(id, statement, source, threshold, function, proved)


def verdict(made: Claim, finding: Finding) -> str:
    """One of `VERDICTS`: it holds where every deciding interval lies in its range, and fails where one lies outside."""
    if finding.cannot:
        return CANNOT
    deciding = [statistic for statistic in finding.statistics if statistic.deciding]
    if not deciding:
        raise InputError(f"{made.id} has no deciding statistic; wanted one, or `cannot` that says why there is none")
    if all(statistic.inside for statistic in deciding):
        return THEOREM if made.proved else HOLDS
    if not any(statistic.outside for statistic in deciding):
        return UNDECIDED
    return ONLY_WHEN if finding.only_when else FAILS
