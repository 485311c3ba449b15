"""GRPO with every control of the entropy in one algorithm: one program runs them all, each by its numbers."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn import interventions as iv
from softmaxdyn.advantages import GRPO
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.comparison import crossing
from softmaxdyn.configs import config
from softmaxdyn.estimators import Exact, Sampled
from softmaxdyn.interventions import Intervention
from softmaxdyn.ledger import correlation_of, over_seeds
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.simulation import advance, quick_options
from softmaxdyn.updates import VanillaPG

from .worlds import PROMPTS, pools, stacked, state_means

ACTIONS = 10
GROUP = 8
INNER = 8
ABOVE_0 = np.finfo(float).tiny
SOLVED = 0.8  # of J, where runs are compared at equal return
CUI = "Cui et al. 2025 (arXiv:2505.22617)"
REVIEW = "public review of arXiv:2505.22617"


class Run(NamedTuple):
    """N runs seen at every step and at the end: mean entropy and J [N, T], shares of the tokens touched [N, T, I]."""

    entropy: np.ndarray
    expected_return: np.ndarray
    selected: np.ndarray

    @property
    def end(self):
        """The entropy at the end [N]."""
        return self.entropy[:, -1]

    @property
    def final_return(self):
        """J at the end [N]."""
        return self.expected_return[:, -1]

    def entropy_at(self, level=SOLVED):
        """The entropy where J first crosses `level` [N]; NaN for a run that does not."""
        return crossing(self.expected_return, level, self.entropy)


class Controls(NamedTuple):
    """The numbers of all controls; by default each is switched off, and the algorithm is GRPO without a clip.

    clip_low, clip_high   PPO's bounds (off: every ratio is inside)
    dropped, low, high    Clip-Cov as printed: the share that it drops of all tokens, its band of C (off: none is there)
    pulled, pull          KL-Cov as released: the share that it pulls back, β (off: β = 0)
    bonus                 α of the entropy bonus
    target, gain          of the controller of an entropy bonus (off: no entropy is below −1)
    reference             β of the KL to the start
    speed                 factor of the step size
    """

    clip_low: float = 1.0
    clip_high: float = 1e9
    dropped: float = 2e-4
    low: float = 1e8
    high: float = 2e8
    pulled: float = 2e-3
    pull: float = 0.0
    bonus: float = 0.0
    target: float = -1.0
    gain: float = 0.0
    reference: float = 0.0
    speed: float = 1.0

    def parts(self):
        """The interventions."""
        return (
            iv.PPOClip(self.clip_low, self.clip_high),
            iv.ClipCov(self.dropped, self.low, self.high),
            iv.KLCov(self.pulled, self.pull),
            iv.EntropyBonus(self.bonus),
            iv.TargetEntropy(self.target, self.gain),
            iv.ReferenceKL(self.reference),
        )


@config
class Salted(Intervention):
    """An intervention with other draws than its own for every other `salt`, while the answers that are drawn stay."""

    intervention: Any
    salt: int

    def __call__(self, key, tokens, policy, push):
        return self.intervention(jax.random.fold_in(key, self.salt), tokens, policy, push)


CLIP, CLIP_COV, KL_COV = range(3)  # their places in `Run.selected`
PPO = Controls(clip_low=0.2, clip_high=0.2)
HIGHER = Controls(clip_low=0.2, clip_high=0.28)


def clip_cov(share):
    """Clip-Cov with the paper's band 1 … 5."""
    return Controls(dropped=share, low=1.0, high=5.0)


def kl_cov(share, pull):
    """KL-Cov as released."""
    return Controls(pulled=share, pull=pull)


def groups(size):
    """Prompts of a batch; each is answered `GROUP` times."""
    return size(128, 16)


def tokens(size):
    """Tokens of a batch."""
    return GROUP * groups(size)


def shares(counts, size):
    """The shares of a batch that are exactly so many tokens."""
    return [(count + 0.5) / tokens(size) for count in counts]


def world(size):
    """The pools: 200 prompts (24 in a quick run), 10 actions, one of them correct, logits N(0, 1); one pool a seed."""
    return pools(size.seeds, size(PROMPTS, 24), ACTIONS)


@cache
def program(steps, hurry):
    """Runs from several starts, seen at every step and at the end; short ones are compiled in a hurry, long ones "
    "well."""

    def one(problem, algorithm, logits, key):
        sizes = {"rows": steps + 1, "inner_steps": INNER, "observe": state_means}
        return advance(problem, algorithm, logits, key, 0, steps + 1, 1, **sizes)[2]

    return jax.jit(jax.vmap(one), compiler_options=quick_options() if hurry else None)


def followed(settings, algorithm, steps, hurry, first_seed=0):
    """The `Run` of an algorithm, one run a setting."""
    problem, logits = stacked(settings)
    keys = jax.random.split(jax.random.key(first_seed), len(settings))
    each = [algorithm.start(table) for table in logits]
    algorithms = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *each)
    seen = program(steps, hurry)(problem, algorithms, logits, keys)
    return Run(**{name: np.asarray(x) for name, x in seen.items()})


def algorithm(size, *parts, speed=1.0):
    """Sampled GRPO with these interventions.

    A batch is 128 (16) prompts answered 8 times; the step size is a push of 30/128 for each unit of advantage.
    """
    step_size = 30.0 / 128 * groups(size) * speed
    return Algorithm(VanillaPG(step_size), Sampled(groups(size), GROUP, GRPO()), parts)


def train(size, *parts, speed=1.0, settings=None, first_seed=0):
    """The `Run` of sampled GRPO with these interventions: 64 outer steps (40 in a quick run) of 8 inner steps."""
    settings = world(size) if settings is None else settings
    return followed(settings, algorithm(size, *parts, speed=speed), size(64, 40), size.quick, first_seed)


@cache
def run(size, controls=Controls()):
    """The runs of GRPO with these controls, one a pool."""
    return train(size, *controls.parts(), speed=controls.speed)


@cache
def scaled_run(size, dropped=0.0, pulled=2e-3, pull=0.0):
    """The runs of the scale-free Clip-Cov, which drops half of the 2 × `dropped` tokens of the highest scores at
    random, and of KL-Cov with the true KL; off at 0.
    """
    top, topmost = (2.0 * dropped, 1e-9) if dropped else (1e-9, 1e-9)
    quantile = iv.ClipCovQuantile(dropped or 1e-9, top, topmost)
    return train(size, quantile, iv.KLCovTrueKL(pulled, pull))


def infinite_batches(*parts):
    """The `Run` of batches of infinite size on 3 pools of 40 prompts, 40 outer steps: a share is met to any digit."""
    return followed(pools(3, 40, ACTIONS), Algorithm(VanillaPG(9.6), Exact(GRPO()), parts), 40, True)


@cache
def infinite_run(controls=Controls()):
    """The same with Clip-Cov or KL-Cov."""
    return infinite_batches(*controls.parts()[1:3])


def rank_correlation(name, numbers, values, **wanted):
    """Spearman's correlation of `numbers` [M] and the mean of `values` [N, M] over the seeds, resampled by seed."""

    def statistic(sample):
        return correlation_of(np.asarray(numbers), sample.mean(0), ranked=True)

    return over_seeds(name, statistic, values, **wanted)


def text(statistic, factor=1.0, unit=""):
    """value unit [low, high]."""
    value, low, high = (factor * x for x in (statistic.value, statistic.low, statistic.high))
    return f"{value:.3g}{unit} [{low:.3g}, {high:.3g}]"


def percent(statistic):
    """A share as per cent."""
    return text(statistic, 100.0, " %")


def ends(runs):
    """The entropies at the end of several runs, [N, M]."""
    return np.stack([each.end for each in runs], 1)


def kept(runs, base):
    """The share of the entropy lost by `base` that each run keeps, [N, M]."""
    return (ends(runs) - base.end[:, None]) / (base.entropy[:, :1] - base.end[:, None])


def drift(each):
    """The standard deviation of the change of entropy from step to step in the last third [N], nats."""
    return np.diff(each.entropy, axis=1)[:, -(each.entropy.shape[1] // 3) :].std(1)


def band(ax, values, colour, label, x=None, dashes="-"):
    """A line of the means over seeds of values [N, T] and the band of their 95 % intervals."""
    x = np.arange(values.shape[1]) if x is None else x
    centre = np.nanmean(values, 0)
    half = 1.96 * np.nanstd(values, 0, ddof=1) / np.sqrt(len(values))
    ax.fill_between(x, centre - half, centre + half, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, centre, color=colour, linestyle=dashes, label=label)


def entropy_curves(shown, columns=2):
    """The panel of the entropy over the steps of some runs, by name."""

    def draw(ax):
        for number, (name, each) in enumerate(shown.items()):
            band(ax, each.entropy, COLOURS[number], name, dashes=DASHES[number % len(DASHES)])
        labelled(ax, "outer step", "entropy, H (nats)", columns=columns)

    return draw
