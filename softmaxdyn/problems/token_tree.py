"""The token tree: a response is a sequence of tokens, with one row of logits for each prefix that can still grow."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from softmaxdyn.configs import config, static
from softmaxdyn.errors import check_number
from softmaxdyn.policy import Policy, centred, cumulative_probs, draw, entropy, sample
from softmaxdyn.problems.layout import Layout
from softmaxdyn.problems.protocol import Episode, Listing, Problem
from softmaxdyn.problems.tasks import answer_table, layout_of, prompt_weights, reward_table

LISTED = 2**20
"""Tokens up to which all responses are listed."""


@config
class TokenTree(Problem):
    """Responses of at most `depth` tokens out of `vocabulary`, to one or several prompts; a state is a prefix.

    With `end=True` the last token, A − 1, ends the response; without it every response has `depth` tokens. A length
    |y| counts the end token. The other B tokens make P·Bᵏ states of level k, the prompt the most significant digit.

    rewards      a function of a response (a tuple of tokens without the end), or one for each prompt; an array with
                 one number a response, [A]*depth or [P] + [A]*depth (without `end`); or a table [S, A], in which what
                 is paid before the last token is a process reward
    weights      [P], the distribution of prompts (default 1/P); 1 makes independent ones
    answers      the final answer of a response, for `answer_distribution`: a function that returns anything hashable,
                 or whole numbers in the shape of `rewards`; default: the last token before the end (none: A − 1)
    num_answers  how many answers there are (default: as many as come up)

    With depth 1 and without end it is the Bandit. Raises InputError for tables above 1 GiB, and for what it cannot use.
    """

    rewards: Any
    vocabulary: int = static()
    depth: int = static()
    end: bool = static(default=False)
    weights: Any = None
    answers: Any = None
    num_answers: int | None = static(default=None)

    def __post_init__(self) -> None:
        layout = layout_of(self.rewards, self.vocabulary, self.depth, self.end)
        rewards = reward_table(self.rewards, layout)
        weights = prompt_weights(self.weights, layout.prompts, rewards.dtype)
        answers, count = answer_table(self.answers, self.num_answers, layout)
        fields = {"vocabulary": layout.vocabulary, "depth": layout.depth, "num_answers": count}
        for name, value in {**fields, "rewards": rewards, "weights": weights, "answers": answers}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"TokenTree(P={self.prompts}, A={self.vocabulary}, depth={self.depth}, end={self.end})"

    @property
    def prompts(self) -> int:
        """P."""
        return self.weights.shape[0]

    @property
    def layout(self) -> Layout:
        """Which row is which prefix."""
        return Layout(self.prompts, self.vocabulary, self.depth, self.end)

    @property
    def start(self) -> Any:
        """The weights of the prompts; 0 for longer prefixes."""
        return jnp.pad(jnp.asarray(self.weights), (0, self.shape[0] - self.prompts))

    def sample_start(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """A prompt, drawn in proportion to its weight."""
        return sample(key, jnp.log(jnp.asarray(self.weights)))

    def visits(self, probs: Float[Array, "S A"], start: Float[Array, " S"] | None = None) -> Float[Array, " S"]:
        """d(s) = w_x Π π over the tokens of the prefix s of a response to x, level by level."""
        layout = self.layout
        begins = layout.levels(jnp.asarray(self.start if start is None else start, probs.dtype))
        reached = [begins[0]]
        for here, prob in zip(begins[1:], layout.levels(probs), strict=False):
            reached.append(here + (reached[-1][:, None] * prob[:, : layout.branching]).reshape(-1))
        return jnp.concatenate(reached)

    def ahead(self, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """values of the prefix that the token leads to; 0 where it finishes the response."""
        first, *longer = self.layout.levels(values)
        tables = [jnp.pad(v.reshape(-1, self.layout.branching), ((0, 0), (0, int(self.end)))) for v in longer]
        rest = self.shape[0] - sum(table.shape[0] for table in tables)
        return jnp.concatenate([*tables, jnp.zeros((rest, self.vocabulary), first.dtype)])

    def to_go(self, probs: Float[Array, "S A"], values: Float[Array, " S"]) -> Float[Array, "S A"]:
        """E[Σ values over the longer prefixes after (s, a)], from the last level to the first."""
        layout = self.layout
        levels = list(zip(layout.levels(probs), layout.levels(values), strict=True))
        tables = [jnp.zeros_like(levels[-1][0])]
        for (prob, value), (parent, _) in zip(levels[:0:-1], levels[-2::-1], strict=True):
            after = value + jnp.sum(prob * tables[-1], -1)
            tables.append(jnp.pad(after.reshape(parent.shape[0], -1), ((0, 0), (0, int(self.end)))))
        return jnp.concatenate(tables[::-1])

    def rollout(self, key: Key[Array, ""], logits: Float[Array, "S A"], start: Int[Array, ""] | None = None) -> Episode:
        """One response, `depth` steps long; after its end `taken` is False and the state stays."""
        layout, rewards = self.layout, jnp.asarray(self.rewards, logits.dtype)
        keys, cumulative = jax.random.split(key, self.depth + 1), cumulative_probs(logits)
        first = self.sample_start(keys[0]) if start is None else jnp.asarray(start, jnp.int32)

        def write(carry: Any, act: Any) -> tuple[Any, Episode]:
            state, taken = carry
            token = draw(act, cumulative[state])
            longer = layout.prompts + layout.branching * state + token
            grows = taken & (token < layout.branching) & (longer < layout.shape[0])
            reward = jnp.where(taken, rewards[state, token], 0.0)
            return (jnp.where(grows, longer, state), grows), Episode(state, jnp.where(taken, token, 0), reward, taken)

        _, episode = jax.lax.scan(write, (first, jnp.ones((), bool)), keys[1:])
        return episode

    def listing(self, probs: Float[Array, "S A"]) -> Listing | None:
        """Every response, in the order of `layout`, with weight w_x π(y|x); None above 2²⁰ tokens in all."""
        layout = self.layout
        if layout.prompts * layout.response_count * self.depth > LISTED:
            return None
        state, action, taken = layout.paths()
        reward = jnp.where(taken, jnp.asarray(self.rewards, probs.dtype)[state, action], 0.0)
        weight = layout.finished(self.visits(probs)[:, None] * probs).reshape(-1)
        return Listing(Episode(state, action, reward, taken), weight)

    def sequence_probs(self, probs: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """π(y|x) of the response y that the token finishes, whatever the weight of x; 0 where it finishes none."""
        each = jnp.pad(jnp.ones(self.prompts, probs.dtype), (0, self.shape[0] - self.prompts))
        return self.layout.final(self.visits(probs, each)[:, None] * probs)

    def sequence_log_probs(self, policy: Policy) -> Float[Array, "S A"]:
        """log π(y|x) = Σ log π of its tokens; −∞ for impossible responses and where the token finishes none."""
        return self.layout.final(self.layout.summed(policy.log_prob), -jnp.inf)

    def sequence_rewards(self) -> Float[Array, "S A"]:
        """R(y): all that the response which the token finishes is paid; 0 where it finishes none."""
        return self.layout.final(self.layout.summed(jnp.asarray(self.rewards)))

    def prompt_values(
        self, probs: Float[Array, "S A"], rewards: Float[Array, "S A"] | None = None
    ) -> Float[Array, " P"]:
        """E[Σ of rewards | x] of each prompt x, of the problem's own rewards or of others."""
        return jnp.sum(probs * self.action_values(probs, rewards), -1)[: self.prompts]

    def pass_at(self, probs: Float[Array, "S A"], k: Any = 1) -> Float[Array, " P"]:
        """pass@k = 1 − (1 − p_x)ᵏ, p_x = P(R(y) > ½ | x): at least one of k responses is right; k a number ≥ 1.

        By expm1 and log1p, so that rare successes keep their digits. Raises InputError for k < 1.
        """
        check_number("k", k, 1.0)
        right = self.layout.final((self.sequence_rewards() > 0.5).astype(probs.dtype))
        p = self.prompt_values(probs, right)
        return jnp.where(p < 1.0, -jnp.expm1(k * jnp.log1p(-jnp.where(p < 1.0, p, 0.0))), 1.0)

    def length_distribution(self, probs: Float[Array, "S A"]) -> Float[Array, " L"]:
        """P(|y| = n) for n = 0 … depth, over all prompts."""
        ended = self.layout.final(self.visits(probs)[:, None] * probs)
        lengths = jnp.stack([jnp.sum(rows) for rows in self.layout.levels(ended)])
        return jnp.pad(lengths / self.episodes_at_once.astype(probs.dtype), (1, 0))

    def answer_distribution(self, probs: Float[Array, "S A"]) -> Float[Array, "P C"]:
        """P(answer c | x) of each prompt x and each of the `num_answers` answers."""
        label, prob = self.layout.finished(self.answers), self.layout.finished(self.sequence_probs(probs))
        rows = jax.lax.broadcasted_iota(jnp.int32, label.shape, 0)
        return jnp.zeros((self.prompts, self.num_answers or 1), prob.dtype).at[rows, label].add(prob)

    def normalised_covariance(self, policy: Policy) -> Float[Array, ""]:
        """Σ_x w_x Cov(log π(y|x)/|y|, R(y) | x), as Σ_s d(s) Cov_π(F, Q), F(s, a) = E[log π(y|x)/|y| | s, a].

        The second form is the law of total covariance along the tree, in which no two large terms cancel.
        """
        layout, known = self.layout, policy.log_prob > -jnp.inf
        sums = layout.summed(jnp.where(known, policy.log_prob, 0.0))
        each = jnp.concatenate([rows / (level + 1) for level, rows in enumerate(layout.levels(sums))])
        mean = centred(policy, self.action_values(policy.prob, layout.final(each)))
        gain = centred(policy, self.action_values(policy.prob))
        return jnp.sum(self.visits(policy.prob) * jnp.sum(policy.prob * mean * gain, -1))

    def measures(self, policy: Policy) -> dict[str, Any]:
        """What a trace also records of responses; entropies in nats, means over prompts by weight.

        position_entropy  [depth]  Σ d H / Σ d over the prefixes of one length; 0 where no response gets there
        response_entropy  Σ_s d(s) H(s): the entropy of the whole response given the prompt (chain rule)
        answer_entropy    the entropy of the final answer given the prompt
        mean_length       tokens of a response, the end token included
        """
        weights = jnp.asarray(self.weights, policy.prob.dtype)
        visits, total = self.visits(policy.prob), jnp.sum(weights)
        reached = jnp.stack([jnp.sum(d) for d in self.layout.levels(visits)])
        spread = jnp.stack([jnp.sum(dh) for dh in self.layout.levels(visits * policy.entropy)])
        answer = self.answer_distribution(policy.prob)
        known = answer > 0.0
        log_answer = jnp.where(known, jnp.log(jnp.where(known, answer, 1.0)), -jnp.inf)
        return {
            "position_entropy": jnp.where(reached > 0.0, spread / jnp.where(reached > 0.0, reached, 1.0), 0.0),
            "response_entropy": jnp.sum(spread) / total,
            "answer_entropy": jnp.sum(weights * entropy(log_answer)) / total,
            "mean_length": jnp.sum(reached) / total,
        }
