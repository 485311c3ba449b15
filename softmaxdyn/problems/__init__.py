"""Problems: exact visits, values and returns of a policy, and episodes to play."""

from softmaxdyn.problems.bandit import Bandit
from softmaxdyn.problems.named import NAMED, Setting
from softmaxdyn.problems.protocol import Episode, Problem

__all__ = ["NAMED", "Bandit", "Episode", "Problem", "Setting"]
