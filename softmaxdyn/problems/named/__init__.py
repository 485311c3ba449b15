"""Every named setting by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.problems.named.bandits import best_mode, mei, mei_plateau, mirror, pool, sign_flip, testbed, wrong_peak
from softmaxdyn.problems.named.mdps import chain, cliff, gridworld, river_swim
from softmaxdyn.problems.named.trees import distractor, final_token, parity, rare_path, several_paths
from softmaxdyn.problems.setting import Setting

NAMED: dict[str, Callable[..., Setting]] = {
    function.__name__: function
    for function in (
        *(testbed, mei, mei_plateau, wrong_peak, mirror, sign_flip, best_mode, pool),
        *(parity, final_token, several_paths, rare_path, distractor),
        *(gridworld, chain, cliff, river_swim),
    )
}


def named(name: str, seed: int = 0, **options: Any) -> Setting:
    """`NAMED[name](**options)`; `seed` goes to the settings that are drawn. Hyphens may stand for underscores.

    Raises InputError for an unknown name or option, which suggests the nearest.
    """
    function = NAMED[check_choice("problem", name.replace("-", "_"), NAMED)]
    seeded = {"seed": seed} if "seed" in inspect.signature(function).parameters else {}
    known = list(_options(function))
    for option in options:
        if not known:
            raise InputError(f"{function.__name__} takes no options; {option!r} came")
        check_choice(f"option of {function.__name__}", option, known)
    return function(**seeded, **options)


def named_options() -> dict[str, dict[str, inspect.Parameter]]:
    """Every option of a named setting, and as what each setting takes it: {option: {setting: parameter}}."""
    found: dict[str, dict[str, inspect.Parameter]] = {}
    for name, function in NAMED.items():
        for option, parameter in _options(function).items():
            found.setdefault(option, {})[name] = parameter
    return found


def _options(function: Callable[..., Setting]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function, eval_str=True).parameters
    return {name: parameter for name, parameter in parameters.items() if name != "seed"}
