"""What a run leaves behind."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array, Float, Int

from softmaxdyn.configs import config, static

if TYPE_CHECKING:
    import xarray


@config
class Trace:
    """What `simulate` recorded: T rows, each about the policy before a step and the change that this step made.

    step             [T]     number of the step
    expected_return  [T]     J before the step
    visits           [T, S]  d(s) before the step
    entropy          [T, S]  H(s) before the step, nats
    entropy_change   [T, S]  exact ΔH(s) of the step
    lemma_1          [T, S]  −Cov(log π, δ), δ the step that was made
    theorem_1        [T, S]  −η d(s) Cov(log π, π∘A): vanilla PG's prediction, η the step size × inner steps
    theorem_2        [T, S]  −η Cov(log π, A): natural PG's prediction (0 where d(s) = 0)
    remainder        [T, S]  entropy_change − lemma_1, computed without cancellation
    bound            [T, S]  certified bound on |remainder|
    kl               [T, S]  KL(π'‖π) of the step
    selected         [T, I]  share of the tokens that each intervention touched, mean over the inner steps
    trajectory_entropy     [T]  H̄ = Σ_s d(s) H(s) before the step: the entropy of all actions of an episode
    trajectory_change      [T]  exact ΔH̄ = local_change + visitation_change (T19)
    local_change           [T]  Σ_s d(s) ΔH(s): the visits frozen, what the theorems predict
    visitation_change      [T]  Σ_s Δd(s) H'(s): what they leave out
    visitation_prediction  [T]  Σ_s d(s) Cov(Q_H, δ): its first order
    action_covariance, sequence_covariance, normalised_covariance, token_covariance  [T]  see `trajectories.Covariances`
    logits           [S, A]  at the end; final_expected_return and final_entropy [S] belong to them
    measures         by name, [T, …]: what the kind of problem records besides (`Problem.measures`)
    """

    step: Int[np.ndarray | Array, " T"]
    expected_return: Float[np.ndarray | Array, " T"]
    visits: Float[np.ndarray | Array, "T S"]
    entropy: Float[np.ndarray | Array, "T S"]
    entropy_change: Float[np.ndarray | Array, "T S"]
    lemma_1: Float[np.ndarray | Array, "T S"]
    theorem_1: Float[np.ndarray | Array, "T S"]
    theorem_2: Float[np.ndarray | Array, "T S"]
    remainder: Float[np.ndarray | Array, "T S"]
    bound: Float[np.ndarray | Array, "T S"]
    kl: Float[np.ndarray | Array, "T S"]
    selected: Float[np.ndarray | Array, "T I"]
    trajectory_entropy: Float[np.ndarray | Array, " T"]
    trajectory_change: Float[np.ndarray | Array, " T"]
    local_change: Float[np.ndarray | Array, " T"]
    visitation_change: Float[np.ndarray | Array, " T"]
    visitation_prediction: Float[np.ndarray | Array, " T"]
    action_covariance: Float[np.ndarray | Array, " T"]
    sequence_covariance: Float[np.ndarray | Array, " T"]
    normalised_covariance: Float[np.ndarray | Array, " T"]
    token_covariance: Float[np.ndarray | Array, " T"]
    logits: Float[np.ndarray | Array, "S A"]
    final_expected_return: Float[np.ndarray | Array, ""]
    final_entropy: Float[np.ndarray | Array, " S"]
    measures: dict[str, Any] = dataclasses.field(default_factory=dict)
    provenance: tuple[tuple[str, str], ...] = static(default=())

    def to_xarray(self) -> xarray.Dataset:
        """The trace as an xarray.Dataset with dimensions step, state, action, intervention; units in the attributes."""
        from softmaxdyn import results

        return results.to_xarray(self)

    def save(self, path: str | Path) -> Path:
        """Writes the trace as netCDF-4 (whole or not at all); `xarray.open_dataset(path)` reads it."""
        from softmaxdyn import results

        return results.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """The trace that `save` wrote. Raises InputError for a file that is missing, damaged or something else."""
        from softmaxdyn import results

        return results.load(path)
