"""Masks of tokens: is it those of high covariance that lower the entropy, or would any others do?"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from softmaxdyn.configs import Number, config
from softmaxdyn.interventions.covariance import batch_score
from softmaxdyn.interventions.protocol import Selection
from softmaxdyn.ledger import Finding, claim, mean, over_seeds
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.tokens import mix, top_share

from .controls import ABOVE_0, CUI, REVIEW, SOLVED, band, entropy_curves, kept, percent, run, text, tokens, train

TOP, RANDOM, BOTTOM = 1e6, 0.0, -1e6  # tilts
FRACTIONS = np.array([1e-3, 1e-2, 5e-2, 0.2])


@config
class Mask(Selection):
    """w = 0 for a `fraction` of the tokens, drawn without replacement with chances ∝ exp(tilt · C) (Gumbel's trick).

    tilt 0 is a choice at random, ±10⁶ the highest or the lowest covariance scores.
    """

    fraction: Number = 2e-3
    tilt: Number = 0.0

    def rank(self, key, tokens):
        """The tokens are taken from the largest of these numbers on."""
        score = batch_score(key, tokens)
        return self.tilt * score + jax.random.gumbel(key, score.shape, score.dtype)

    def choose(self, key, tokens):
        """The first of the order, at least one."""
        return top_share(self.rank(key, tokens), tokens, self.fraction, population=False)


@config
class NormMask(Mask):
    """Mask of as many tokens as together have the gradient norm of the `fraction` of the highest scores.

    The norm of a token's push is weight |w| ‖e_a − π‖. The last token that fits in is the last; none without a norm.
    """

    def __call__(self, key, tokens, policy, push):
        p = policy.prob[tokens.state]
        away = 1.0 - 2.0 * jnp.exp(tokens.log_prob) + jnp.sum(p * p, -1)
        norm = tokens.weight * jnp.abs(push.score) * jnp.sqrt(jnp.maximum(away, 0.0))
        top = top_share(batch_score(key, tokens), tokens, self.fraction, population=False)
        order = jnp.argsort(-jnp.where(norm > 0.0, self.rank(key, tokens), -jnp.inf))
        fits = jnp.cumsum(norm[order]) <= jnp.sum(norm * top) * (1.0 + 1e-9)
        chosen = jnp.zeros_like(norm).at[order].set(fits * (norm[order] > 0.0))
        return push._replace(score=mix(chosen, jnp.zeros_like(push.score), push.score), selected=chosen)


@cache
def masked(size, kind, fraction, tilt):
    """The runs of GRPO without a clip under a mask."""
    return train(size, kind(max(fraction, 1.0 / tokens(size)), tilt))


def removed(each, size):
    """Tokens removed in a batch on average [N]."""
    return tokens(size) * each.selected[:, :-1, 0].mean(1)


def per_token(each, base, size):
    """Entropy at the end above that of `base`, a removed token [N], nats."""
    return (each.end - base.end) / removed(each, size)


@claim(
    "C30",
    "Controlling 1e-4 to 1e-3 of the tokens, those of the highest covariance, is enough to turn the whole entropy "
    "curve.",
    source=f"{CUI}, sections 4.2 and 4.5",
    threshold="effect on H per removed token above that of random tokens of equal gradient norm; and, for the whole "
    "curve, half of the lost entropy kept with 1e-3 of the tokens",
)
def few_tokens_turn_the_curve(size):
    """Pools of 200 prompts (quick: 24), K = 10, one correct action, logits N(0, 1), one pool a seed; sampled GRPO, 128
    (16) prompts of 8 answers a batch, 8 inner steps, 64 (40) outer ones, no PPO clip. In every inner step the tokens
    of the highest covariance score are removed, 1e-3 (at least one), 1e-2, 5e-2 and .2 of them; or random tokens until
    the same gradient norm is gone. Statistics: the share of the entropy lost by plain GRPO that the smallest mask
    keeps, and the entropy kept per removed token at 5e-2, top minus random. Both masks beside each other at every
    size, and where J first reaches .8.
    """
    base = run(size)
    top, other = ([masked(size, NormMask, x, tilt) for x in FRACTIONS] for tilt in (TOP, RANDOM))
    share = [kept(each, base) for each in (top, other)]
    gap = 1e3 * (per_token(top[2], base, size) - per_token(other[2], base, size))
    smallest = mean("share of the lost entropy kept, 1e-3 of the tokens", share[0][:, 0], at_least=0.5)
    specific = mean("effect per token, top − random, 5e-2 (10⁻³ nats)", gap, at_least=ABOVE_0)
    largest = mean("share kept, .2 of the tokens", share[0][:, -1], deciding=False)
    random = mean("share kept, random of equal norm as .2", share[1][:, -1], deciding=False)
    at_return = mean(
        f"rise of H at J = {SOLVED}, 5e-2, top − random (nats)",
        top[2].entropy_at() - other[2].entropy_at(),
        deciding=False,
    )

    curves = entropy_curves({"none": base, "1e-3": top[0], ".2": top[-1], ".2, random": other[-1]}, 4)

    def response(ax):
        band(ax, 100 * share[0], COLOURS[1], "highest covariance", 100 * FRACTIONS)
        band(ax, 100 * share[1], COLOURS[3], "random, equal norm", 100 * FRACTIONS, DASHES[1])
        ax.set_xscale("log")
        labelled(ax, "removed tokens (% of a batch)", "entropy kept (% of the loss)")

    return Finding(
        (smallest, specific, largest, random, at_return),
        counterexample=f"1e-3 of the tokens, at least one of {tokens(size)}: H ends at {top[0].end.mean():.4f} nats, "
        f"and at {base.end.mean():.4f} without a mask.",
        says=f"1e-3 of the tokens keep {percent(smallest)} of the entropy that is lost. Token for token those of high "
        f"covariance do more than random ones of the same norm, by {text(specific)} thousandths of a nat.",
        boundary=f"A fifth of the tokens keeps {percent(largest)}, random tokens of equal norm {percent(random)}: "
        "those of high covariance do more because each is heavier.",
        meaning="The covariance finds heavy tokens, and their number bounds what controlling them "
        "can do where prompts share no parameters. A turned curve from 1e-3 of the tokens needs that sharing.",
        table={"fraction": FRACTIONS, "kept_top": share[0].mean(0), "kept_random": share[1].mean(0)}
        | {
            f"tokens_{name}": [removed(x, size).mean() for x in each]
            for name, each in (("top", top), ("random", other))
        },
        panels=(curves, response),
    )


def band_of_rows(ax, values, label, style):
    """Means and 95 % intervals of several samples, one a row."""
    for row, x in enumerate(values):
        error = 1.96 * x.std(ddof=1) / np.sqrt(len(x))
        name = label if row == 0 else None
        ax.errorbar(x.mean(), row, xerr=error, color=COLOURS[style], marker="os"[style], markersize=3, label=name)


@claim(
    "C56",
    "That high-covariance tokens cause the collapse is not shown: masks of as many, or equally heavy, random tokens "
    "do as much.",
    source=REVIEW,
    threshold="interaction of mask and choice, H with the top masked − H with random tokens masked ≤ 0",
)
def random_masks_do_as_much(size):
    """The runs of C30 with 5 % of the tokens removed in every inner step, chosen in five ways: the highest covariance
    scores; random tokens, as many, or until the same gradient norm is gone; the lowest scores, as many, or of the same
    norm. As the mask and the choice are a design of two by two whose unmasked half is one run, the interaction is the
    difference of the entropies at the end, top minus random. Beside it the same where J first reaches .8, so that a
    slower run does not count, and against the lowest scores.
    """
    base, share = run(size), FRACTIONS[2]
    top = masked(size, NormMask, share, TOP)
    others = {
        "random, as many": masked(size, Mask, share, RANDOM),
        "random, same norm": masked(size, NormMask, share, RANDOM),
        "lowest, as many": masked(size, Mask, share, BOTTOM),
        "lowest, same norm": masked(size, NormMask, share, BOTTOM),
    }
    effects = {
        name: mean(f"H at the end, top − {name} (nats)", top.end - each.end, **_wanted(name))
        for name, each in others.items()
    }
    later = {
        name: mean(
            f"H at J = {SOLVED}, top − {name} (nats)", top.entropy_at() - others[name].entropy_at(), deciding=False
        )
        for name in others
        if "random" in name
    }
    ratio = over_seeds(
        "effect, top over random of the same norm", _gain, top.end, others["random, same norm"].end, base.end
    )
    rows = {"highest": top, **others}

    def rise(ax):
        band_of_rows(ax, [each.end - base.end for each in rows.values()], "at the end", 0)
        gains = [each.entropy_at() - base.entropy_at() for name, each in rows.items() if "lowest" not in name]
        band_of_rows(ax, gains, f"at J = {SOLVED}", 1)
        ax.axvline(0.0, color="0.7", linewidth=0.6)
        ax.set_yticks(range(len(rows)), list(rows))
        ax.invert_yaxis()
        labelled(ax, "H above that without a mask (nats)", "")

    return Finding(
        (*effects.values(), *later.values(), ratio._replace(deciding=False)),
        only_when="the random tokens have the same gradient norm and runs are compared after equally many steps"
        if effects["random, same norm"].inside
        else "",
        counterexample=f"5 % masked: H ends at {top.end.mean():.4f} nats with the highest covariance, at "
        f"{others['random, as many'].end.mean():.4f} with as many random tokens.",
        says=f"Top minus random, H at the end differs by {text(effects['random, as many'])} nats for as many tokens "
        f"and by {text(effects['random, same norm'])} for the same gradient norm, where the effect is {text(ratio)} "
        "times as large.",
        boundary=f"At equal return (J = {SOLVED}) it is {text(later['random, same norm'])} nats for the same norm and "
        f"{text(later['random, as many'])} for as many: a mask of the same norm also slows the learning, and at the "
        "end that counts as entropy.",
        meaning="High-covariance tokens are a cause in the toy, where the counterfactual can be run, but after equal "
        "steps a slower run looks the same. The control to ask for is a random mask of the same norm, at equal return.",
        table={"mask": list(rows), "entropy_end": [x.end.mean() for x in rows.values()]}
        | {"return_end": [x.final_return.mean() for x in rows.values()]}
        | {"tokens": [removed(x, size).mean() for x in rows.values()]},
        panels=(rise,),
    )


def _wanted(name):
    return {"at_most": 0.0} if "random" in name else {"deciding": False}


def _gain(top, other, base):
    return (top - base).mean() / (other - base).mean()
