"""The law R = −a exp(H) + b of reward against entropy on a training curve, beside its rivals.

Everything is NumPy in float64. H is the mean entropy of a token in nats; the rows of a curve are in order of training.
"""

from softmaxdyn.laws.bootstrap import Noise, block_length, noise, resample
from softmaxdyn.laws.curve import Curve, check_curve
from softmaxdyn.laws.fits import Fit, fit
from softmaxdyn.laws.forms import EXPONENTIAL, FORMS, LINEAR, POWER, QUADRATIC, Form
from softmaxdyn.laws.rivals import Comparison, HeldOut, Rival, compare
from softmaxdyn.laws.table import Run, read_runs

__all__ = [
    "EXPONENTIAL",
    "FORMS",
    "LINEAR",
    "POWER",
    "QUADRATIC",
    "Comparison",
    "Curve",
    "Fit",
    "Form",
    "HeldOut",
    "Noise",
    "Rival",
    "Run",
    "block_length",
    "check_curve",
    "compare",
    "fit",
    "noise",
    "read_runs",
    "resample",
]
