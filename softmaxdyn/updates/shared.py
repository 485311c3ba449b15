"""Updates of policies whose states share parameters: z = z₀ + Φθ, Φ [S, A, F] (`softmaxdyn.updates.features`)."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from softmaxdyn.configs import Number, config
from softmaxdyn.errors import InputError, check_number
from softmaxdyn.policy import Policy
from softmaxdyn.updates.compatible import fit
from softmaxdyn.updates.features import check_features, check_fit, check_kernel, to_logits, to_parameters
from softmaxdyn.updates.protocol import Update
from softmaxdyn.updates.tabular import TRPO, NaturalPG, natural_gradient


@config
class KernelPG:
    """δ = η K ∂J/∂z: gradient ascent in θ where K = ΦΦᵀ. Give `features` Φ [S, A, F] or `kernel` K [S, A, S, A].

    With features the kernel is never formed: δ = η Φ(Φᵀ ∂J/∂z). The step of a state depends on the gradients of all,
    so Theorem 1 with the state's own A no longer predicts it; Lemma 1, which is given δ, does. η ≥ 0.
    Raises InputError for both or none of the two, a wrong shape, NaN, a kernel that is not symmetric or has a negative
    eigenvalue, and for features or a kernel that cannot move the policy.
    """

    step_size: Number = 1.0
    features: Any = None
    kernel: Any = None

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0)
        if (self.features is None) == (self.kernel is None):
            given = "neither features nor kernel" if self.kernel is None else "both features and kernel"
            raise InputError(
                f"KernelPG has {given}; wanted one: KernelPG(0.1, features=...) or KernelPG(0.1, kernel=...)"
            )
        if self.features is not None:
            object.__setattr__(self, "features", check_features(self.features))
        else:
            object.__setattr__(self, "kernel", check_kernel(self.kernel))

    def __repr__(self) -> str:
        name = "kernel" if self.features is None else "features"
        return f"KernelPG(step_size={self.step_size!r}, {name}={list(np.shape(getattr(self, name)))})"

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """No state. Raises InputError where the shape does not fit the logits."""
        name = "kernel" if self.features is None else "features"
        check_fit(name, getattr(self, name), logits)
        return self

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
        if self.features is not None:
            return self.step_size * to_logits(self.features, to_parameters(self.features, gradient), policy), self
        delta = jnp.einsum("satb,tb->sa", self.kernel, gradient, precision="highest")
        return self.step_size * jnp.where(policy.log_prob > -jnp.inf, delta, 0.0), self


@config
class Shared:
    """δ = Φ Δθ, Δθ the step that `update` makes of ∂J/∂θ = Φᵀ ∂J/∂z [F]; its memory is in the space of parameters.

    `update` is VanillaPG, Momentum, Adam, Restarted of these, or your own that takes a gradient of any shape.
    Raises InputError for an update that needs the table of logits: NaturalPG (use SharedNaturalPG), TRPO, KernelPG.
    """

    update: Any
    features: Any

    def __post_init__(self) -> None:
        inner = self.update
        while hasattr(inner, "update") and not isinstance(inner, Shared):  # Restarted
            inner = inner.update
        if isinstance(inner, NaturalPG | TRPO | KernelPG | Shared | SharedNaturalPG):
            raise InputError(
                f"Shared cannot hold {type(inner).__name__}, which needs the table of logits; "
                "wanted VanillaPG, Momentum or Adam, or SharedNaturalPG(step_size, features)"
            )
        if isinstance(inner, type) or not isinstance(inner, Update):
            raise InputError(f"update is {inner!r}; wanted VanillaPG, Momentum or Adam: Shared(Adam(0.01), features)")
        object.__setattr__(self, "features", check_features(self.features))

    def __repr__(self) -> str:
        return f"Shared(update={self.update!r}, features={list(np.shape(self.features))})"

    @property
    def step_size(self) -> Number:
        """That of the update."""
        return self.update.step_size

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """With the update's state, for θ [F]. Raises InputError where the features do not fit the logits."""
        check_fit("features", self.features, logits)
        return dataclasses.replace(self, update=self.update.init(jnp.zeros(self.features.shape[2], logits.dtype)))

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
        move, update = self.update(to_parameters(self.features, gradient), policy, visits)
        return to_logits(self.features, move, policy), dataclasses.replace(self, update=update)


@config
class SharedNaturalPG:
    """δ = Φ Δθ, Δθ = η F_θ⁺ Φᵀ ∂J/∂z, F_θ = ΦᵀFΦ, F the Fisher matrix, block s: d(s)(diag π − ππᵀ). η ≥ 0.

    Δθ/η is the d(s)π(a|s)-weighted least-squares fit of the advantage by features centred in each state (`compatible`,
    which states the cutoff of the rank). Features that can express any policy give the step of NaturalPG, whatever
    their kernel. Raises InputError for features of the wrong shape, with NaN, or that cannot move the policy.
    source  Kakade 2002; Agarwal et al. 2021 (arXiv:1908.00261), section 6
    """

    step_size: Number
    features: Any

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0)
        object.__setattr__(self, "features", check_features(self.features))

    def __repr__(self) -> str:
        return f"SharedNaturalPG(step_size={self.step_size!r}, features={list(np.shape(self.features))})"

    def init(self, logits: Float[Array, "S A"]) -> Self:
        """No state. Raises InputError where the features do not fit the logits."""
        check_fit("features", self.features, logits)
        return self

    def __call__(
        self, gradient: Float[Array, "S A"], policy: Policy, visits: Float[Array, " S"]
    ) -> tuple[Float[Array, "S A"], Self]:
        move = fit(self.features, natural_gradient(gradient, policy, visits), policy, visits)
        return self.step_size * to_logits(self.features, move, policy), self
