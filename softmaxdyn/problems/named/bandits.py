"""Named bandits: the problem, the policy it starts from, and one line that says what it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmaxdyn.errors import InputError, check_integer, check_number
from softmaxdyn.problems.bandit import Bandit
from softmaxdyn.problems.setting import Setting, generator_of, setting


def testbed(seed: int = 0, arms: int = 10, runs: int = 1) -> Setting:  # noqa: PT028
    """The ten-armed testbed: q*(a) ~ N(0, 1), uniform start; `runs` independent bandits (weights 1, J is their sum).

    source  Sutton and Barto, Reinforcement Learning, 2nd edition, section 2.3; the rewards are the means q*
    """
    shape = check_integer("runs", runs, 1), check_integer("arms", arms, 1)
    rewards = generator_of(seed).standard_normal(shape)
    note = f"testbed, seed {seed}: {runs} × {arms} arms with q* ~ N(0, 1), uniform start"
    return setting(Bandit(rewards, weights=1.0), np.zeros(shape), note)


testbed.__test__ = False  # type: ignore[attr-defined]  # its name makes pytest collect it


def mei() -> Setting:
    """r = (1, .9, .1) from π = (.05, .01, .94): vanilla PG (η = 2/5) has the best arm in front after 35 steps.

    source  Mei et al. 2020 (arXiv:2005.06392), the good one of two starts; `mei_plateau` is the other
    """
    note = "mei: from the worst of three arms vanilla PG goes straight to the best (mei_plateau: it does not)"
    return _one([1.0, 0.9, 0.1], np.log([0.05, 0.01, 0.94]), note)


def mei_plateau() -> Setting:
    """r = (1, .9, .1) from π = (.01, .05, .94): vanilla PG (η = 2/5) stays at the second arm for 7,525 steps.

    source  Mei et al. 2020 (arXiv:2005.06392), the bad one of two starts; `mei` is the other
    """
    note = "mei_plateau: vanilla PG stays at the second best of three arms for thousands of steps"
    return _one([1.0, 0.9, 0.1], np.log([0.01, 0.05, 0.94]), note)


def wrong_peak() -> Setting:
    """r = (1, ½, 0) from π = (.05, .05, .9): under PG and natural PG the entropy rises to a single top, then falls."""
    note = "wrong_peak: starts at 90 % on the worst of three arms; the entropy rises, then falls"
    return _one([1.0, 0.5, 0.0], np.log([0.05, 0.05, 0.9]), note)


def mirror() -> Setting:
    """r = (1, ½, 0) from z = −4r: under natural PG z = (ηt − 4)·r, so that H(ηt = 4 + x) = H(4 − x), H(4) = log 3."""
    rewards = np.array([1.0, 0.5, 0.0])
    note = "mirror: natural PG is uniform at ηt = 4, and the entropy falls as it rose; PG has two tops instead"
    return _one(rewards, -4.0 * rewards, note)


def sign_flip() -> Setting:
    """π = (.504, .063, .063, .370), r = (1, 1, 1, 0): to first order PG lowers the entropy and natural PG raises it."""
    note = "sign_flip: a small step of PG lowers the entropy, one of natural PG raises it"
    return _one([1.0, 1.0, 1.0, 0.0], np.log([0.504, 0.063, 0.063, 0.370]), note)


def best_mode() -> Setting:
    """π = (.42061, .42242, .15697), r = (.0307, .8972, .8774): the mode is the best arm, yet PG raises the entropy."""
    note = "best_mode: the most probable arm has the highest advantage, and the first PG step raises the entropy"
    return _one([0.0307, 0.8972, 0.8774], np.log([0.42061, 0.42242, 0.15697]), note)


def pool(
    seed: int = 0, prompts: int = 200, actions: int = 100, correct: float | int = 0.1, spread: float | int = 1.0
) -> Setting:
    """A pool of prompts: reward 1 for max(1, round(correct · actions)) arms at random places, logits N(0, spread²).

    The same seed gives nested sets of correct arms as `correct` grows, and the same logits but for their scale.
    J is the mean success probability, so a prompt's own PG step is η/prompts.
    """
    shape = check_integer("prompts", prompts, 1), check_integer("actions", actions, 2)
    check_number("correct", correct, 0.0, 1.0, open_low=True)
    check_number("spread", spread, 0.0)
    count = max(1, round(correct * actions))
    if count == actions:
        raise InputError(
            f"correct is {correct}, so all {actions} actions would be; wanted a share ({1 / actions:g}: one)"
        )
    generator = generator_of(seed)
    rank = generator.permuted(np.tile(np.arange(actions), (prompts, 1)), axis=1)
    logits = spread * generator.standard_normal(shape)
    size = f"{prompts} prompts × {actions} actions, {count} correct"
    note = f"pool, seed {seed}: {size}, logits N(0, {spread:g}²); a prompt's own PG step is η/{prompts}"
    return setting(Bandit((rank < count).astype(float)), logits, note)


def _one(rewards: Any, logits: Any, note: str) -> Setting:
    return setting(Bandit(rewards), np.asarray(logits)[None], note)
