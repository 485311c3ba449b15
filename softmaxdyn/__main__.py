"""`python -m softmaxdyn` is the command `softmaxdyn`."""

from softmaxdyn.cli import main

main()
