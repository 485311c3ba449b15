"""`softmaxdyn methods`: the named methods and their numbers."""

from __future__ import annotations

from softmaxdyn.cli.group import main, print_table
from softmaxdyn.methods import METHODS


@main.command()
def methods() -> None:
    """List the methods that `run --method` and `compare` know, with their numbers and defaults."""
    numbers = ["  ".join(f"{key}={value:g}" for key, value in method.numbers.items()) for method in METHODS.values()]
    summaries = [method.summary for method in METHODS.values()]
    print_table({"method": list(METHODS), "policy gradient with …": summaries, "numbers": numbers}, left=3)
