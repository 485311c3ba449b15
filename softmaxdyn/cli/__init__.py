"""The command line. Heavy libraries load after the arguments are checked; every error is one line on stderr."""

from softmaxdyn.cli import compare, methods, run, verify
from softmaxdyn.cli.group import main
from softmaxdyn.cli_diagnose import diagnose

main.add_command(diagnose)

__all__ = ["compare", "diagnose", "main", "methods", "run", "verify"]
