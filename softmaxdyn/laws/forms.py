"""Four forms of reward against entropy: predicted reward, slope, derivative by the coefficients, least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.special import xlogy

Array: TypeAlias = Float[np.ndarray, " N"]
Coefficients: TypeAlias = Float[np.ndarray, " P"]

SMALLEST, LARGEST = 0.05, 20.0  # exponents of the power form; towards 0 it becomes b − a log H
_GRID = np.geomspace(SMALLEST, LARGEST, 61)


@dataclass(frozen=True)
class Form:
    """R as a function of H, linear in its coefficients unless it says otherwise."""

    name: ClassVar[str]
    formula: ClassVar[str]
    symbols: ClassVar[tuple[str, ...]]

    def jacobian(self, coefficients: Coefficients, entropy: Array) -> Float[np.ndarray, "N P"]:
        """∂R/∂coefficients, a column each."""
        raise NotImplementedError

    def slope(self, coefficients: Coefficients, entropy: Array) -> Array:
        """dR/dH."""
        raise NotImplementedError

    def predict(self, coefficients: Coefficients, entropy: Array) -> Array:
        """R; infinite where it is beyond float64."""
        with np.errstate(over="ignore"):
            return self.jacobian(coefficients, entropy) @ coefficients

    def solve(self, entropy: Array, reward: Array) -> Coefficients:
        """The coefficients of least squares; 0 for what does not change."""
        return pseudoinverse(self.jacobian(np.zeros(len(self.symbols)), entropy)) @ reward


class Exponential(Form):
    name = "exponential"
    formula = "R = −a exp(H) + b"
    symbols = ("a", "b")

    def jacobian(self, coefficients: Coefficients, entropy: Array) -> Float[np.ndarray, "N P"]:
        return np.stack([-np.exp(entropy), np.ones_like(entropy)], 1)

    def slope(self, coefficients: Coefficients, entropy: Array) -> Array:
        return -coefficients[0] * np.exp(entropy)


class Linear(Form):
    name = "linear"
    formula = "R = −a H + b"
    symbols = ("a", "b")

    def jacobian(self, coefficients: Coefficients, entropy: Array) -> Float[np.ndarray, "N P"]:
        return np.stack([-entropy, np.ones_like(entropy)], 1)

    def slope(self, coefficients: Coefficients, entropy: Array) -> Array:
        return np.full_like(entropy, -coefficients[0])


class Quadratic(Form):
    name = "quadratic"
    formula = "R = −a H − c H² + b"
    symbols = ("a", "b", "c")

    def jacobian(self, coefficients: Coefficients, entropy: Array) -> Float[np.ndarray, "N P"]:
        return np.stack([-entropy, np.ones_like(entropy), -(entropy**2)], 1)

    def slope(self, coefficients: Coefficients, entropy: Array) -> Array:
        return -coefficients[0] - 2.0 * coefficients[2] * entropy


class Power(Form):
    """Not linear in c, which is sought in [0.05, 20]; c = 1 is the linear form, and towards c = 0 it is b − a log H."""

    name = "power"
    formula = "R = −a H^c + b"
    symbols = ("a", "b", "c")

    def predict(self, coefficients: Coefficients, entropy: Array) -> Array:
        a, b, c = coefficients
        return b - a * entropy**c

    def jacobian(self, coefficients: Coefficients, entropy: Array) -> Float[np.ndarray, "N P"]:
        a, _, c = coefficients
        power = entropy**c
        return np.stack([-power, np.ones_like(entropy), -a * xlogy(power, np.where(power > 0.0, entropy, 1.0))], 1)

    def slope(self, coefficients: Coefficients, entropy: Array) -> Array:
        a, _, c = coefficients
        with np.errstate(divide="ignore"):  # infinitely steep at H = 0 where c < 1
            return -a * c * entropy ** (c - 1.0)

    def solve(self, entropy: Array, reward: Array) -> Coefficients:
        from scipy.optimize import minimize_scalar

        def left_over(log_c: float) -> float:
            return -_explained(entropy, reward, np.exp([log_c]))[0]

        best = int(np.argmax(_explained(entropy, reward, _GRID)))
        between = np.log(_GRID[[max(best - 1, 0), min(best + 1, len(_GRID) - 1)]])
        refined = minimize_scalar(left_over, bounds=between, method="bounded", options={"xatol": 1e-10})
        c = _GRID[best] if left_over(np.log(_GRID[best])) <= refined.fun else np.exp(refined.x)
        a, b = pseudoinverse(np.stack([-(entropy**c), np.ones_like(entropy)], 1)) @ reward
        return np.array([a, b, c])


EXPONENTIAL, LINEAR, POWER, QUADRATIC = Exponential(), Linear(), Power(), Quadratic()
FORMS: dict[str, Form] = {form.name: form for form in (EXPONENTIAL, LINEAR, POWER, QUADRATIC)}


def pseudoinverse(design: Float[np.ndarray, "N P"]) -> Float[np.ndarray, "P N"]:
    """The pseudoinverse of a design with ones in its column 1 (b), the others centred and scaled to size 1.

    exp(H) may so be of any size, and a column that does not change has the coefficient 0.
    """
    others = np.delete(design, 1, axis=1)
    scale = np.abs(others).max(0)
    changes = np.ptp(others, axis=0) > 1e-12 * scale
    centred = np.where(changes, others - others.mean(0), 0.0) / np.where(changes, scale, 1.0)
    slopes = np.linalg.pinv(centred, rcond=1e-13) / np.where(changes, scale, 1.0)[:, None]
    return np.insert(slopes, 1, 1.0 / len(design) - others.mean(0) @ slopes, axis=0)


def _explained(entropy: Array, reward: Array, exponents: Float[np.ndarray, " C"]) -> Float[np.ndarray, " C"]:
    """The sum of squares that H^c explains, for each c; 0 for a constant entropy."""
    x = (entropy / (entropy.max() or 1.0)) ** exponents[:, None]
    x = x - x.mean(1, keepdims=True)
    square = (x**2).sum(1)
    return np.divide((x @ (reward - reward.mean())) ** 2, square, out=np.zeros_like(square), where=square > 1e-24)
