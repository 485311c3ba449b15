"""Named Markov decision processes, each from the uniform policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmaxdyn.errors import check_integer
from softmaxdyn.problems.mdp import MDP
from softmaxdyn.problems.mdp_input import check_size
from softmaxdyn.problems.setting import Setting, setting

_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


def gridworld(size: int = 4, discount: float | int = 0.95) -> Setting:
    """A square of size² cells, from one corner; entering the opposite one pays 1 and ends the episode.

    Actions are up, right, down, left; a bump leaves the cell as it is. The shortest way has 2(size − 1) moves, so the
    best J is γ^(2 size − 3).
    """
    size = check_integer("size", size, 2)
    goal = size * size - 1
    after = _grid(size, size)
    note = f"gridworld: {size} × {size} cells, the far corner pays 1, discount {discount:g}, uniform start"
    return _uniform(after, (after == goal).astype(float), discount, (goal,), note)


def chain(states: int = 6, discount: float | int = 0.9) -> Setting:
    """Left or right from state 0: at the far end right pays 1, at the near end left pays a distracting 0.1, for ever.

    With γ = 0.9 the way to the far end is worth 10 · 0.9^(states − 1) and the distractor 1: go right up to 22 states.
    """
    states = check_integer("states", states, 2)
    here = np.arange(states)
    after = np.stack([np.maximum(here - 1, 0), np.minimum(here + 1, states - 1)], 1)
    rewards = np.zeros((states, 2))
    rewards[0, 0], rewards[-1, 1] = 0.1, 1.0
    note = f"chain: {states} states, the far end pays 1, the near end 0.1, discount {discount:g}, uniform start"
    return _uniform(after, rewards, discount, (), note)


def cliff(discount: float | int = 0.95) -> Setting:
    """Cliff walking: 4 × 12 cells, −1 a move, −100 and back to the start for a step off the bottom row's edge.

    From the lower left corner to the lower right, which ends the episode; actions are up, right, down, left.

    source  Sutton and Barto, Reinforcement Learning, 2nd edition, example 6.6, which does not discount
    """
    start, goal = 36, 47
    after = _grid(4, 12)
    falls = (after > start) & (after < goal)
    note = f"cliff: 4 × 12 cells, −1 a move, −100 for a fall, discount {discount:g}, uniform start"
    return _uniform(np.where(falls, start, after), np.where(falls, -100.0, -1.0), discount, (goal,), note, start)


def river_swim(discount: float | int = 0.95) -> Setting:
    """Six states in a river; left (with the current) is sure and pays 0.0005 at its end, right pays 1 where it holds.

    Right: forward 0.3, back 0.1, else stay; in the first state forward 0.3, else stay; in the last stay 0.3 (pays),
    else back. Rewards are in units of 10,000, and the episode begins in the second or third state.

    source  Strehl and Littman 2008 (Journal of Computer and System Sciences 74), figure 1: rewards 5 and 10,000
    """
    transitions = np.zeros((6, 2, 6))
    here = np.arange(6)
    transitions[here, 0, np.maximum(here - 1, 0)] = 1.0
    transitions[here[:-1], 1, here[1:]] = 0.3
    transitions[here[1:-1], 1, here[:-2]] = 0.1
    transitions[here, 1, here] = [0.7, 0.6, 0.6, 0.6, 0.6, 0.3]
    transitions[5, 1, 4] = 0.7
    rewards = np.zeros((6, 2, 6))
    rewards[0, 0, 0], rewards[5, 1, 5] = 0.0005, 1.0
    start = np.array([0.0, 0.5, 0.5, 0.0, 0.0, 0.0])
    note = f"river_swim: six states, 1 upstream, 0.0005 downstream, discount {discount:g}, uniform start"
    return setting(MDP(transitions, rewards, discount, start), np.zeros((6, 2)), note)


def _grid(rows: int, columns: int) -> np.ndarray:
    """The cell after each move, [S, 4]."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    to = [
        np.clip(row + down, 0, rows - 1) * columns + np.clip(column + right, 0, columns - 1) for down, right in _MOVES
    ]
    return np.stack(to, 1)


def _uniform(
    after: np.ndarray, rewards: np.ndarray, discount: Any, terminal: tuple[int, ...], note: str, start: int = 0
) -> Setting:
    """The deterministic MDP in which a in s leads to after[s, a]."""
    check_size("transitions", (*after.shape, len(after)))
    transitions = np.zeros((*after.shape, len(after)))
    np.put_along_axis(transitions, after[..., None], 1.0, -1)
    return setting(MDP(transitions, rewards, discount, start, terminal), np.zeros(after.shape), note)
