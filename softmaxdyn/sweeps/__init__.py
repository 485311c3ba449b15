"""Sweeps: any product of problems, methods, step sizes and seeds as one tall table; to stop and go on at any moment."""
