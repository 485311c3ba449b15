"""Updates: how the gradient table becomes a step of the logits."""

from softmaxdyn.updates.features import blended_kernel, random_features, tied_features, tied_over_time
from softmaxdyn.updates.protocol import Update, with_step_size
from softmaxdyn.updates.shared import KernelPG, Shared, SharedNaturalPG
from softmaxdyn.updates.stateful import Adam, Momentum, Restarted
from softmaxdyn.updates.tabular import TRPO, NaturalPG, VanillaPG, natural_gradient

__all__ = [
    "TRPO",
    "Adam",
    "KernelPG",
    "Momentum",
    "NaturalPG",
    "Restarted",
    "Shared",
    "SharedNaturalPG",
    "Update",
    "VanillaPG",
    "blended_kernel",
    "natural_gradient",
    "random_features",
    "tied_features",
    "tied_over_time",
    "with_step_size",
]
