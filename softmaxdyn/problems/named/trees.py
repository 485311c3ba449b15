"""Named token trees: the problem, the policy it starts from, and one line that says what it is."""

from __future__ import annotations

import numpy as np

from softmaxdyn.errors import InputError, check_integer
from softmaxdyn.problems.layout import check_size
from softmaxdyn.problems.setting import Setting, generator_of, setting
from softmaxdyn.problems.token_tree import TokenTree


def parity(depth: int = 4, vocabulary: int = 2) -> Setting:
    """Reward 1 if the tokens add up to a multiple of `vocabulary`; the answer is the remainder; uniform start.

    Every prefix can still be right by its last token alone, so that at the start only the last token is taught.
    """
    check_integer("vocabulary", vocabulary, 2)
    tree = TokenTree(
        lambda response: sum(response) % vocabulary == 0,
        vocabulary=vocabulary,
        depth=depth,
        answers=lambda response: sum(response) % vocabulary,
    )
    size = f"{depth} tokens out of {vocabulary}"
    return _uniform(tree, f"parity: {size}, reward 1 if they add up to a multiple of {vocabulary}, uniform start")


def final_token(depth: int = 3, vocabulary: int = 4) -> Setting:
    """Reward 1 if the last token is 0, whatever comes before; uniform start: only the last position learns."""
    check_integer("vocabulary", vocabulary, 2)
    tree = TokenTree(lambda response: response[-1] == 0, vocabulary=vocabulary, depth=depth)
    note = f"final_token: {depth} tokens out of {vocabulary}, reward 1 if the last is 0, uniform start"
    return _uniform(tree, note)


def several_paths(seed: int = 0, depth: int = 4, vocabulary: int = 3, paths: int = 3) -> Setting:
    """Reward 1 for `paths` different responses at random places; uniform start.

    The same seed gives nested sets of correct responses as `paths` grows.
    """
    generator = generator_of(seed)
    check_integer("depth", depth, 1)
    check_integer("vocabulary", vocabulary, 2)
    check_size(1, vocabulary, depth, end=False)
    count = vocabulary**depth
    if check_integer("paths", paths, 1) >= count:
        raise InputError(f"paths is {paths}, and there are {count} responses; wanted at most {count - 1}")
    rewards = np.zeros(count)
    rewards[generator.permutation(count)[:paths]] = 1.0
    tree = TokenTree(rewards.reshape((vocabulary,) * depth), vocabulary=vocabulary, depth=depth)
    size = f"{depth} tokens out of {vocabulary}"
    return _uniform(
        tree, f"several_paths, seed {seed}: {paths} of {count} responses of {size} are correct, uniform start"
    )


def rare_path(depth: int = 6, vocabulary: int = 3) -> Setting:
    """The last token ends the response; reward 1 for `depth` tokens 0, of probability (1 + e(A − 1))^−depth.

    The start gives token 0 the logit −1 and the others 0, so that a sample hardly ever meets the reward.
    """
    rare = _rarity(check_integer("depth", depth, 1), check_integer("vocabulary", vocabulary, 2))
    tree = TokenTree(lambda response: response == (0,) * depth, vocabulary=vocabulary, depth=depth, end=True)
    note = f"rare_path: one response of {depth} tokens is correct, with probability {rare:.2g} at the start"
    return setting(tree, _shunned(tree, 0), note)


def distractor(depth: int = 4, vocabulary: int = 3) -> Setting:
    """The last token ends the response; (0, end) pays ½, `depth` tokens 1 pay 1, of probability (1 + e(A − 1))^−depth.

    Vanilla PG, whose steps are weighted with the visits, goes to the short response and stays at J = ½; exact natural
    PG, which learns in every prefix alike, finds the long one. The start gives token 1 the logit −1, the others 0.
    """
    rare = _rarity(check_integer("depth", depth, 3), check_integer("vocabulary", vocabulary, 3))
    pays = {(0,): 0.5, (1,) * depth: 1.0}
    tree = TokenTree(lambda response: pays.get(response, 0.0), vocabulary=vocabulary, depth=depth, end=True)
    paid = f"2 tokens pay 1/2, {depth} tokens of probability {rare:.2g} pay 1"
    note = f"distractor: {paid}; vanilla PG goes to the short response, natural PG to the long one"
    return setting(tree, _shunned(tree, 1), note)


def _rarity(depth: int, vocabulary: int) -> float:
    return float((1.0 + np.e * (vocabulary - 1)) ** -depth)


def _shunned(tree: TokenTree, token: int) -> np.ndarray:
    """Logits −1 for the token, 0 for the others."""
    logits = np.zeros(tree.shape)
    logits[:, token] = -1.0
    return logits


def _uniform(tree: TokenTree, note: str) -> Setting:
    return setting(tree, np.zeros(tree.shape), note)
