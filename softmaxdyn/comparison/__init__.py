"""Methods beside others and their controls: paths of many runs, kinds of methods, report cards."""

from softmaxdyn.comparison.card import Card, Row, expected_step, report_card
from softmaxdyn.comparison.controls import Shuffled
from softmaxdyn.comparison.intervals import interval
from softmaxdyn.comparison.kinds import classify
from softmaxdyn.comparison.paths import Paths, crossing, paths

__all__ = [
    "Card",
    "Paths",
    "Row",
    "Shuffled",
    "classify",
    "crossing",
    "expected_step",
    "interval",
    "paths",
    "report_card",
]
