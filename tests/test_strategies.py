"""Strategies: what they cover, that they fit together, and that they shrink to what a person would write."""

import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import softmaxdyn
from softmaxdyn import Bandit, InputError, remainder, remainder_bound
from softmaxdyn.strategies import NUM_ACTIONS, bandits, logits, masks, moves, policies, steps

SEARCH = settings(max_examples=2000, derandomize=True, database=None)
GLANCE = settings(SEARCH, phases=[Phase.generate])

probs = jax.jit(softmaxdyn.probs)
sample_effect = jax.jit(softmaxdyn.sample_effect)
entropy_change = jax.jit(softmaxdyn.entropy_change)


def simplest(strategy, condition=lambda x: True):
    return find(strategy, condition, settings=SEARCH)


def occurs(strategy, condition):
    find(strategy, condition, settings=GLANCE)  # raises NoSuchExample otherwise


def fails(law):
    def condition(x):
        try:
            law(x)
        except AssertionError:
            return True
        return False

    return condition


@given(policies(), steps())
def test_the_remainder_never_exceeds_its_bound(logits, delta):
    assert abs(remainder(logits, delta)) <= remainder_bound(logits, delta) * (1 + 1e-12)


@settings(max_examples=100)  # Hypothesis's own default
@given(policies())
def rewarding_an_action_of_above_uniform_probability_lowers_the_entropy(logits):
    above = probs(logits) > 1 / NUM_ACTIONS + 1e-9
    assert (sample_effect(logits)[above] <= 1e-12).all()


def test_the_strategies_find_the_counterexample_to_a_false_theorem():
    with pytest.raises(AssertionError):
        rewarding_an_action_of_above_uniform_probability_lowers_the_entropy()


def test_the_counterexample_shrinks_to_two_zeros_and_two_small_round_logits():
    law = rewarding_an_action_of_above_uniform_probability_lowers_the_entropy.hypothesis.inner_test
    found = simplest(policies(), fails(law))
    assert np.sort(found)[:2].tolist() == [0.0, 0.0]
    assert (found % 0.5 == 0).all()
    assert found.max() <= 3.0


def test_the_simplest_policy_is_uniform_and_unmasked():
    assert simplest(policies(mask=masks)).tolist() == [0.0] * NUM_ACTIONS


def test_the_simplest_step_is_none():
    assert simplest(steps()).tolist() == [0.0] * NUM_ACTIONS


def test_the_simplest_move_that_changes_the_entropy_has_two_actions_and_moves_one_logit():
    logits, delta = simplest(moves(), lambda move: abs(entropy_change(*move)) > 1e-3)
    assert (logits.size, np.count_nonzero(delta), abs(delta).sum()) == (2, 1, 1.0)


def test_the_simplest_bandit_rewards_nothing_and_the_next_one_thing():
    assert simplest(bandits()).rewards.tolist() == [[0.0, 0.0]]
    assert np.sort(simplest(bandits(), lambda b: b.rewards.any()).rewards).tolist() == [[0.0, 1.0]]


def test_the_simplest_mask_that_hides_hides_one_action():
    assert simplest(masks(), lambda allowed: not allowed.all()).sum() == NUM_ACTIONS - 1


def gap(z):
    z = np.sort(z[np.isfinite(z)])
    return z[-1] - z[0]


CORNERS = {
    "uniform": lambda z: gap(z) == 0,
    "near-uniform": lambda z: 0 < gap(z) < 1e-7,
    "ties": lambda z: len(set(z.tolist())) == 2,
    "gap": lambda z: np.diff(np.sort(z))[-1] >= 40,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("corner", CORNERS)
def test_policies_reach_the_corner(corner, dtype):
    occurs(policies(dtype=dtype), CORNERS[corner])


@pytest.mark.parametrize(("dtype", "rarest"), [("float32", 1.01e-30), ("float64", 1.01e-300)])
def test_policies_reach_the_rarest_probability(dtype, rarest):
    occurs(policies(dtype=dtype), lambda z: probs(z).min() < rarest)


@given(st.one_of(policies(dtype="float32"), policies(dtype="float64")))
def test_no_probability_underflows(logits):
    assert probs(logits).min() > 0


@pytest.mark.parametrize(
    "corner",
    [
        lambda x: not x.any(),
        lambda x: np.count_nonzero(x) == 1,
        lambda x: x[0] != 0 and (x == x[0]).all(),
        lambda x: 0 < np.abs(x).max() <= 1e-11,
        lambda x: np.abs(x).max() >= 9,
    ],
    ids=["none", "one logit", "constant", "tiny", "large"],
)
def test_steps_reach_the_corner(corner):
    occurs(steps(), corner)


def test_bandits_are_binary_or_real_with_one_or_two_contexts():
    occurs(bandits(), lambda b: set(np.unique(b.rewards)) == {0.0, 1.0})
    occurs(bandits(), lambda b: (b.rewards % 1 != 0).any())
    occurs(bandits(), lambda b: b.shape == (2, 10))


@given(logits(3, 5, mask=masks))
def test_every_row_of_a_table_keeps_an_action(table):
    assert table.shape == (3, 5)
    assert jnp.isfinite(table).any(-1).all()


@given(moves((2, 100), dtype="float32", mask=masks))
def test_a_move_has_one_size_and_one_dtype(move):
    logits, delta = move
    assert logits.shape == delta.shape
    assert logits.dtype == delta.dtype == jnp.float32


@given(bandits(2, (3,), dtype="float32"))
def test_a_bandit_is_one_that_the_package_takes(bandit):
    assert isinstance(bandit, Bandit)
    assert (bandit.shape, bandit.rewards.dtype) == ((2, 3), jnp.float32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: policies(0), "num_actions is 0; wanted a whole number ≥ 1"),
        (lambda: steps(2.5), r"num_actions is 2\.5; wanted a whole number ≥ 1"),
        (lambda: masks([]), r"num_actions is \[\]; wanted a whole number ≥ 1"),
        (lambda: moves((3, -1)), "num_actions is -1; wanted a whole number ≥ 1"),
        (lambda: logits(num_states=0), "num_states is 0; wanted a whole number ≥ 1"),
        (lambda: bandits(dtype="float16"), "unknown dtype 'float16'; did you mean 'float64'.*known: float64, float32"),
        (lambda: policies(dtype=int), "unknown dtype 'int64'"),
    ],
)
def test_a_strategy_that_cannot_be_made_says_so_at_once(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_without_hypothesis_the_import_says_what_to_type(monkeypatch):
    monkeypatch.delitem(sys.modules, "softmaxdyn.strategies")
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    message = r"^softmaxdyn.strategies needs hypothesis; type pip install 'softmaxdyn\[strategies\]'$"
    with pytest.raises(ModuleNotFoundError, match=message):
        importlib.import_module("softmaxdyn.strategies")


def test_float64_is_refused_while_it_is_off():
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(InputError, match=r"float64.*off in JAX; type jax.config.update\('jax_enable_x64', True\)"):
            policies(dtype="float64")
        assert simplest(policies()).dtype == jnp.float32
    finally:
        jax.config.update("jax_enable_x64", True)
