"""What the sweep engine is to reach, as ratios of what was measured in one process, and whether it does."""

from collections.abc import Iterator
from typing import Any, NamedTuple

SIMPLE, ACCURATE = "engine: H and a covariance", "engine: and exact ΔH, remainder"
PURE = "engine, pure JAX: H and a covariance"
ALL, THIN = "engine: all fields", "engine: all fields, every 100th step"
FLOOR, FLOOR_ACCURATE = "C: H and a covariance", "C: and exact ΔH, remainder"
NUMPY, USER, NUMBA, TORCH, COMPILED = "NumPy", "jit(vmap(scan))", "numba", "torch", "torch.compile"
FAST = "unsafe_rbg"  # a generator of jax.random
DTYPES, CORES = ("float64", "float32"), ("1 core", "2 cores")


class Target(NamedTuple):
    """A number that is to be at least `goal`, or at most with `most`."""

    what: str
    value: float | None  # None: a peer is not installed
    goal: float
    most: bool = False
    unit: str = ""

    @property
    def verdict(self) -> str:
        """Met, missed, or not measured."""
        if self.value is None:
            return "not measured"
        return "met" if (self.value <= self.goal if self.most else self.value >= self.goal) else "missed"

    def __str__(self) -> str:
        goal = f"{'≤' if self.most else '≥'} {self.goal:g}{self.unit}"
        value = "–" if self.value is None else f"{self.value:.3g}{self.unit}"
        return f"{self.what:68} {goal:>10} {value:>10}  {self.verdict}"


def targets(report: dict[str, Any]) -> list[Target]:
    """Every target, from the report of performance.py."""
    return [*_exact(report["ns"]), *_rest(report)]


def _ratio(ns: dict[str, Any], upper: str, lower: str, case: str, cores: str, upper_cores: str = "") -> float | None:
    above, below = ns[case][upper_cores or cores].get(upper), ns[case][cores].get(lower)
    return above / below if above is not None and below is not None else None


def _share(ns: dict[str, Any], road: str, case: str, cores: str) -> float | None:
    return _ratio(ns, FLOOR, road, case, cores)


def _exact(ns: dict[str, Any]) -> Iterator[Target]:
    shapes = [(f"K = 10, {dtype}", cores) for cores in CORES for dtype in DTYPES] + [("K = 100, float64", "1 core")]
    for case, cores in shapes:
        goal = 0.3 if "100" in case else 0.45 if cores == "1 core" else 0.43
        native = PURE in ns[case][cores]
        yield Target(
            f"share of the C loop, pure JAX, {case}, {cores}", _share(ns, PURE if native else SIMPLE, case, cores), goal
        )
        goal = 0.8 if "100" in case else 0.85
        value = _share(ns, SIMPLE, case, cores) if native else None
        yield Target(f"share of the C loop, native kernel, {case}, {cores}", value, goal)
    for dtype in DTYPES:
        value = _ratio(ns, ACCURATE, SIMPLE, f"K = 10, {dtype}", "1 core")
        yield Target(f"with exact ΔH and remainder over without, K = 10, {dtype}", value, 1.5, most=True)
    for cores, goals in zip(CORES, ((10.0, 22.0), (18.0, 40.0)), strict=True):
        for dtype, goal in zip(DTYPES, goals, strict=True):
            value = _ratio(ns, NUMPY, SIMPLE, f"K = 10, {dtype}", cores, "1 core")
            yield Target(f"times as fast as NumPy, K = 10, {dtype}, {cores}", value, goal)
    for peer, goal in ((TORCH, 13.0), (COMPILED, 8.0)):
        yield Target(f"times as fast as {peer}, K = 10, least of all", _least(ns, peer, "K = 10,"), goal)
        yield Target(f"never slower than {peer}: least of all shapes", _least(ns, peer, "K ="), 1.0)
    for dtype, goal in zip(DTYPES, (9.0, 45.0), strict=True):
        value = _ratio(ns, USER, SIMPLE, f"K = 10, {dtype}", "1 core")
        yield Target(f"times as fast as jit(vmap(scan)), K = 10, {dtype}", value, goal)
    for dtype in DTYPES:
        value = _ratio(ns, SIMPLE, SIMPLE, f"K = 10, {dtype}", "2 cores", "1 core")
        yield Target(f"two devices over one, K = 10, {dtype}", value, 1.7)


def _least(ns: dict[str, Any], peer: str, prefix: str) -> float | None:
    cases = [(case, cores) for case in ns if case.startswith(prefix) for cores in CORES]
    found = [ratio for case, cores in cases if (ratio := _ratio(ns, peer, SIMPLE, case, cores)) is not None]
    return min(found, default=None)


def _rest(report: dict[str, Any]) -> Iterator[Target]:
    yield Target("share of the results whose bits are the same on two devices", report["same_bits"], 1.0)
    sizes = report["sizes"]
    value = sizes["100,000 contexts"] / sizes["1,000 contexts"]
    yield Target("ns a number at 100,000 contexts over 1,000", value, 1.25, most=True)
    ns = report["sampled"]
    torch = ns.get("kl_cov, torch")
    for generator, goal in (("", 4.0), (f", {FAST}", 10.0)):
        value = None if torch is None else torch / ns[f"kl_cov{generator}"]
        yield Target(f"KL-Cov step: times as fast as torch{generator}", value, goal)
    first = report["first_result"]
    names = ("first result", "first result, warm compilation cache")
    for name, goal in zip(names, (1.0, 0.75), strict=True):
        yield Target(f"{name}, 1 × 10, from a cold Python", first["median"][name], goal, most=True, unit=" s")
    compiled = first["compiled by a second length"]
    yield Target("programs that a second length compiles", compiled, 0.0, most=True)
