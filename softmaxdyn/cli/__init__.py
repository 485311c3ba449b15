"""The command line. Heavy libraries load after the arguments are checked; every error is one line on stderr."""

from softmaxdyn.cli import compare, diagnose, methods, run, sweep, verify
from softmaxdyn.cli.group import main

__all__ = ["compare", "diagnose", "main", "methods", "run", "sweep", "verify"]
