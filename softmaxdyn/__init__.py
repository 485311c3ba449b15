"""softmaxdyn: exact entropy dynamics of tabular softmax policies under policy gradient, beside what theory predicts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from softmaxdyn import advantages, aggregation, change, policy, rewards, theory, trajectories
from softmaxdyn.advantages import *  # noqa: F403
from softmaxdyn.advantages import __all__ as _advantages
from softmaxdyn.aggregation import (
    SequenceMeanTokenMean,
    SequenceMeanTokenSum,
    SequenceMeanTokenSumNorm,
    TokenMean,
    TokenSum,
)
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.change import entropy_change, remainder
from softmaxdyn.configs import config, static
from softmaxdyn.errors import InputError
from softmaxdyn.estimators import AEPO, Exact, OffPolicy, Sampled
from softmaxdyn.policy import entropy, kl_divergence, log_probs, probs, sample
from softmaxdyn.problems import MDP, Bandit, Episode, Problem, TokenTree
from softmaxdyn.simulation import simulate
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
from softmaxdyn.trace import Trace
from softmaxdyn.updates import TRPO, Adam, KernelPG, Momentum, NaturalPG, Shared, SharedNaturalPG, VanillaPG

if TYPE_CHECKING:
    from softmaxdyn import interventions
    from softmaxdyn.interventions import *  # noqa: F403
    from softmaxdyn.interventions import Intervention
    from softmaxdyn.methods import METHODS, build
    from softmaxdyn.sweeps import sweep

__version__ = "0.1.0"

__all__ = [
    "AEPO",
    "MDP",
    "METHODS",
    "TRPO",
    "Adam",
    "Algorithm",
    "Bandit",
    "Episode",
    "Exact",
    "InputError",
    "Intervention",
    "KernelPG",
    "Momentum",
    "NaturalPG",
    "OffPolicy",
    "Problem",
    "Push",
    "Sampled",
    "SequenceMeanTokenMean",
    "SequenceMeanTokenSum",
    "SequenceMeanTokenSumNorm",
    "Shared",
    "SharedNaturalPG",
    "TokenMean",
    "TokenSum",
    "TokenTree",
    "Tokens",
    "Trace",
    "VanillaPG",
    "advantages",
    "aggregation",
    "build",
    "certified_step_size",
    "change",
    "config",
    "entropy",
    "entropy_change",
    "interventions",
    "kl_divergence",
    "lemma_1",
    "log_probs",
    "policy",
    "probs",
    "proposition_1",
    "remainder",
    "remainder_bound",
    "rewards",
    "sample",
    "sample_effect",
    "second_order",
    "simulate",
    "static",
    "sweep",
    "theorem_1",
    "theorem_2",
    "theory",
    "trajectories",
]
__all__ += _advantages


def __getattr__(name: str) -> Any:
    """The interventions, the named methods and `sweep`, which load when one is asked for."""
    if name in ("METHODS", "build"):
        return getattr(import_module("softmaxdyn.methods"), name)
    if name == "sweep":
        return import_module("softmaxdyn.sweeps").sweep
    if not name.startswith("_"):
        interventions = import_module("softmaxdyn.interventions")
        if name in interventions.__all__:
            return getattr(interventions, name)
    raise AttributeError(f"module 'softmaxdyn' has no attribute {name!r}")
