"""The command line. Heavy libraries load after the arguments are checked; every error is one line on stderr."""

from softmaxdyn.cli import compare, diagnose, law, methods, play, reproduce, run, sweep, verify
from softmaxdyn.cli.group import main

__all__ = ["compare", "diagnose", "law", "main", "methods", "play", "reproduce", "run", "sweep", "verify"]
