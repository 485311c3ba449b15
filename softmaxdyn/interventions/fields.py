"""Fields: pushes over the whole table, one row a state, weighted like the tokens of that state."""

from __future__ import annotations

from jaxtyping import Array, Key

from softmaxdyn.configs import Number, config
from softmaxdyn.interventions.protocol import Intervention
from softmaxdyn.policy import Policy
from softmaxdyn.tokens import Push, Tokens, state_mass


@config
class EntropyBonus(Intervention):
    """Adds α ∂H/∂z = −α π (log π + H) to the push of every visited state; on a bandit PG then tends to π ∝ e^{r/α}."""

    coefficient: Number = 1e-3  # α, reward per nat

    def __call__(self, key: Key[Array, ""] | None, tokens: Tokens, policy: Policy, push: Push) -> Push:
        mass = state_mass(tokens, policy.entropy.shape[0])[:, None]
        return push._replace(field=push.field - self.coefficient * mass * policy.prob * policy.centred_log_prob)
