"""Sweeps: any product of problems, methods, step sizes and seeds as one tall table; to stop and go on at any moment."""

from softmaxdyn.sweeps.grid import sweep
from softmaxdyn.sweeps.loop import execute
from softmaxdyn.sweeps.spec import plan_of, read_spec

__all__ = ["execute", "plan_of", "read_spec", "sweep"]
