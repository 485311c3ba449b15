"""softmaxdyn: exact entropy dynamics of tabular softmax policies under policy gradient, beside what theory predicts."""

from softmaxdyn import change, policy, theory
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.change import entropy_change, remainder
from softmaxdyn.configs import config, static
from softmaxdyn.errors import InputError
from softmaxdyn.estimators import Exact
from softmaxdyn.interventions import Intervention
from softmaxdyn.policy import entropy, kl_divergence, log_probs, probs, sample
from softmaxdyn.problems import Bandit, Episode, Problem
from softmaxdyn.simulation import Trace, simulate
from softmaxdyn.theory import (
    certified_step_size,
    lemma_1,
    proposition_1,
    remainder_bound,
    sample_effect,
    second_order,
    theorem_1,
    theorem_2,
)
from softmaxdyn.tokens import Push, Tokens
from softmaxdyn.updates import NaturalPG, VanillaPG

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Bandit",
    "Episode",
    "Exact",
    "InputError",
    "Intervention",
    "NaturalPG",
    "Problem",
    "Push",
    "Tokens",
    "Trace",
    "VanillaPG",
    "certified_step_size",
    "change",
    "config",
    "entropy",
    "entropy_change",
    "kl_divergence",
    "lemma_1",
    "log_probs",
    "policy",
    "probs",
    "proposition_1",
    "remainder",
    "remainder_bound",
    "sample",
    "sample_effect",
    "second_order",
    "simulate",
    "static",
    "theorem_1",
    "theorem_2",
    "theory",
]
