"""Problems: exact visits, values and returns of a policy, and episodes to play."""

from softmaxdyn.problems.bandit import Bandit
from softmaxdyn.problems.mdp import MDP
from softmaxdyn.problems.named import NAMED
from softmaxdyn.problems.protocol import Episode, Listing, Problem
from softmaxdyn.problems.setting import Setting
from softmaxdyn.problems.token_tree import TokenTree

__all__ = ["MDP", "NAMED", "Bandit", "Episode", "Listing", "Problem", "Setting", "TokenTree"]
