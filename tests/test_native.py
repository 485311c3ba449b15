"""The native kernel gives what the formulas in JAX give, row by row, and the same bits in any company."""

import dataclasses
import subprocess
from functools import cache

import jax
import numpy as np
import pytest

from softmaxdyn import Algorithm, Bandit, InputError, NaturalPG, VanillaPG
from softmaxdyn.policy import centred, softmax
from softmaxdyn.problems.setting import Setting
from softmaxdyn.sweeps import native, rows
from softmaxdyn.sweeps.engine import Engine, kernel_of
from softmaxdyn.sweeps.loop import execute
from softmaxdyn.sweeps.plan import Cell, Plan
from tests.sweep_machine import MACHINE, PLAN

UPDATES = [VanillaPG, NaturalPG]
DTYPES = [np.float64, np.float32]
REASON = "no compiler that builds the native kernel here, or SOFTMAXDYN_NATIVE=0"
needs_it = pytest.mark.skipif(native.kernel() == native.JAX, reason=REASON)
ACTIONS, RUNS = 7, 512  # a tile is not full


@cache
def program(run_rows, update, steps, every, sums):
    """(logits, rewards, weights, η) → (logits, sums) after some steps; one compilation a shape and dtype."""

    def run(z, r, w, size):
        problem = jax.tree.unflatten(jax.tree.structure(Bandit(np.zeros(2))), [r, w])
        algorithm = dataclasses.replace(Algorithm(VanillaPG(0.0)), update=update(size))
        length = -(-steps // every)
        (_, _, moved, _), found = run_rows((problem, algorithm, z, None), 0, steps, every, rows=length, sums=sums)
        return moved, found

    return jax.jit(run)


def taken(run_rows, update, tables, steps=1, every=1, sums=rows.SUMS):
    z, found = program(run_rows, update, steps, every, sums)(*tables)
    return np.asarray(z), {name: np.asarray(x) for name, x in found.items()}


def random_tables(dtype, runs=RUNS, states=1, actions=ACTIONS, seed=0):
    """Gaps from 1e-9 to 100, masked actions, steps from 1e-12 to 20, a state without weight."""
    rng = np.random.default_rng(seed)
    shape = (runs, states, actions)
    z = rng.normal(size=shape) * 10.0 ** rng.uniform(-9, 2, (runs, states, 1))
    z[(rng.random(shape) < 0.2) & (np.arange(actions) > 0)] = -np.inf
    w = rng.random((runs, states)) * (np.arange(states) != 1)
    size = 10.0 ** rng.uniform(-12, 1.3, runs)
    return [np.asarray(x, dtype) for x in (z, rng.normal(size=shape), w, size)]


def sizes(z, r, w, eta, update):
    """Σ|terms| of every sum: what rounding errors are relative to, with the remainder's as `_large_step` has them."""
    z, r, w, eta = (np.asarray(x, float) for x in (z, r, w, eta[:, None]))
    policy = softmax(z)
    p, u, gain = (np.asarray(x) for x in (policy.prob, policy.centred_log_prob, centred(policy, r)))
    step = eta[..., None] * (gain if update is NaturalPG else w[..., None] * p * gain)
    d = np.asarray(centred(policy, step))
    psi = np.where(abs(d) < 1e-3, d * d / 2, np.expm1(d) - d)
    linear, curved = np.sum(abs(p * d * u), -1), np.sum(p * psi * (1 + abs(u) + abs(d)), -1)
    slope = np.sum(abs(p * u * gain), -1)
    large = np.max(abs(d), -1) > 0.5
    parts = {
        "entropy": np.asarray(policy.entropy),
        "entropy_change": linear + curved,
        "lemma_1": linear,
        "theorem_1": eta * w * np.sum(abs(p * u) * abs(np.asarray(centred(policy, p * gain))), -1),
        "theorem_2": eta * slope,
        "remainder": curved + large * linear,
        "bound": np.ptp(np.where(np.isinf(z), step.max(-1, keepdims=True), step), -1) ** 2,
        "kl": curved,
        "expected_return": np.sum(abs(p * r), -1),
        "covariance": slope,
    }
    return {name: np.sum(w * x, -1) for name, x in parts.items()}


@needs_it
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("update", UPDATES)
def test_a_step_is_that_of_the_formulas_in_jax(update, dtype):
    tables = random_tables(dtype)
    size, eps = sizes(*tables, update), np.finfo(dtype).eps
    tiny = np.finfo(dtype).tiny ** 0.8
    (z, wanted), (moved, got) = (taken(run, update, tables) for run in (rows.run_rows, native.run_rows))
    np.testing.assert_array_equal(np.isinf(moved), np.isinf(z))
    here = np.isfinite(z)
    scale = np.where(here, np.abs(z), 0.0) + tables[3][:, None, None] * np.ptp(tables[1], -1, keepdims=True)
    assert np.all(np.abs(moved[here] - z[here]) <= 10 * eps * scale[here])
    for name in rows.SUMS:
        assert got[name].dtype == dtype
        error = np.abs(got[name][:, 0].astype(float) - wanted[name][:, 0])
        # two programs, each of them within 5 eps for change, covariance and remainder, ACTIONS + 5 for plain sums
        assert np.max(error / np.maximum(size[name], tiny)) <= 2 * (ACTIONS + 5) * eps, name


@needs_it
@pytest.mark.parametrize(("update", "states", "actions"), [(VanillaPG, 37, 70), (NaturalPG, 5, 3)])
def test_a_walk_is_that_of_the_formulas_in_jax(update, states, actions):
    z, r, w, _ = random_tables(np.float64, 3, states, actions)
    tables = [z * 0.01, r, w, np.array([0.01, 0.3, 3.0])]
    (end, wanted), (moved, got) = (
        taken(run, update, tables, steps=40, every=3) for run in (rows.run_rows, native.run_rows)
    )
    np.testing.assert_allclose(moved, end, rtol=1e-12, atol=1e-12)
    for name, values in wanted.items():
        np.testing.assert_allclose(got[name], values, rtol=0, atol=1e-13 * np.max(np.abs(values)), err_msg=name)


@needs_it
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("states", "actions"), [(1, 3), (5, 3), (40, 3), (3, 65)])
def test_a_run_has_the_same_bits_in_any_place_company_and_cut(dtype, states, actions):
    tables = random_tables(dtype, 9, states, actions)
    end, whole = taken(native.run_rows, NaturalPG, tables, steps=50, every=2)
    order = [4, 8, 0]
    moved, few = taken(native.run_rows, NaturalPG, [x[order] for x in tables], steps=50, every=2)
    assert moved.tobytes() == end[order].tobytes()
    middle, first = taken(native.run_rows, NaturalPG, tables, steps=20, every=2)
    last, second = taken(native.run_rows, NaturalPG, [middle, *tables[1:]], steps=30, every=2)
    assert last.tobytes() == end.tobytes()
    for name, values in whole.items():
        assert few[name].tobytes() == values[order].tobytes(), name
        assert np.concatenate([first[name], second[name]], 1).tobytes() == values.tobytes(), name


@needs_it
@pytest.mark.parametrize("chosen", [("entropy",), ("theorem_1",), ("bound", "lemma_1"), ("kl",), ("covariance",)])
@pytest.mark.parametrize("update", UPDATES)
def test_a_field_has_the_same_bits_alone(update, chosen):
    tables = random_tables(np.float64, 40)
    end, every_field = taken(native.run_rows, update, tables, steps=5)
    moved, got = taken(native.run_rows, update, tables, steps=5, sums=chosen)
    assert set(got) == set(chosen)
    assert moved.tobytes() == end.tobytes()
    for name, values in got.items():
        assert values.tobytes() == every_field[name].tobytes(), name


@needs_it
def test_equal_logits_have_their_first_as_the_mode():
    z, r = np.zeros((1, 1, 4)), np.array([[[1.0, 0.0, 0.0, 0.0]]])
    tables = [z, r, np.ones((1, 1)), np.array([0.1])]
    _, found = taken(native.run_rows, VanillaPG, tables)
    assert abs(found["entropy"].item() - np.log(4)) <= 4 * np.finfo(float).eps
    assert found["expected_return"].item() == 0.25


def plan_of(update=VanillaPG, actions=3):
    cell = Cell({}, Setting(Bandit(np.arange(float(actions))), np.zeros((1, actions)), ""), Algorithm(update(0.1)), 1)
    return Plan((cell,), (0,), 10, 1, "float64", "")


def test_it_is_switched_off_by_the_environment(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "0")
    assert native.kernel() == native.JAX
    assert Engine(plan_of(), [0], block=1).kernel == native.JAX
    assert kernel_of(plan_of()) == native.JAX


def test_without_a_compiler_it_is_jax(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="no compiler"):
        native.library(tmp_path)
    assert native._registered.__wrapped__() == native.JAX


def test_a_compiler_that_fails_leaves_nothing_and_it_is_jax(monkeypatch, tmp_path):
    (tmp_path / "c++").write_text('#!/bin/sh\n[ "$1" = --version ] && echo broken 1.0 || exit 1\n')
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(subprocess.CalledProcessError):
        native.library(tmp_path / "cache")
    assert native._registered.__wrapped__() == native.JAX
    assert not any(path.is_file() for path in (tmp_path / "cache").rglob("*"))


@pytest.mark.parametrize(
    ("begun", "now", "wanted"),
    [
        ("jax", "native 12", r"wanted kernel jax \(SOFTMAXDYN_NATIVE=0\), or a new folder"),
        ("native 12", "jax", r"wanted kernel native 12, or a new folder"),
    ],
)
def test_a_sweep_never_mixes_the_bits_of_two_kernels(monkeypatch, tmp_path, begun, now, wanted):
    monkeypatch.setattr("softmaxdyn.sweeps.layout.BLOCK_BYTES", 3 * PLAN.run_bytes)
    with_kernel = {name: MACHINE._replace(kernel=lambda plan, name=name: name) for name in (begun, now)}
    whole = execute(PLAN, tmp_path, machine=with_kernel[begun]).table.read_bytes()
    for path in (tmp_path / "finished.json", tmp_path / "blocks" / "0-000001.npz"):
        path.unlink()
    with pytest.raises(InputError, match=f"was begun with kernel {begun}, and this is {now}: .*; {wanted}$"):
        execute(PLAN, tmp_path, machine=with_kernel[now])
    assert execute(PLAN, tmp_path, machine=with_kernel[begun]).table.read_bytes() == whole


def test_a_sweep_that_has_no_use_for_it_does_not_ask_for_it(monkeypatch):
    monkeypatch.setattr(native, "kernel", lambda: "native 12")
    cell = plan_of().cells[0]
    assert kernel_of(plan_of()) == "native 12"
    assert kernel_of(plan_of()._replace(cells=(cell._replace(inner_steps=2),))) == native.JAX
