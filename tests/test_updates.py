"""Updates: the step each makes of a gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from softmaxdyn import Algorithm, Bandit, NaturalPG, VanillaPG
from softmaxdyn.policy import centred, probs, softmax
from softmaxdyn.simulation import step
from softmaxdyn.theory import proposition_1
from tests.compiled import compiled
from tests.oracles import moves

EPS = np.finfo(float).eps
LEAST_WEIGHT = np.finfo(float).tiny ** 0.8  # 1e-246: what a token weighs at least, so that its advantage is not lost
REWARDS = np.array([[0.3, 1.0, -0.5], [0.0, 0.2, 0.9]])
WEIGHTS = np.array([0.25, 0.75])
LOGITS = jnp.array([[0.5, -1.0, 0.2], [2.0, 0.0, -0.3]])
VISITS = jnp.asarray(WEIGHTS)
outer_step = compiled(lambda problem, update, logits: step(problem, Algorithm(update), softmax(logits))[0])


@given(moves(sizes=(3,)), moves(sizes=(3,)))
def test_the_step_of_vanilla_pg_is_proposition_1_with_the_step_size_of_each_context(first, second):
    logits = jnp.stack([first[0], second[0]])
    expected = fast_proposition_1(logits, jnp.asarray(REWARDS), 0.7 * VISITS)
    found = outer_step(Bandit(REWARDS, WEIGHTS), VanillaPG(0.7), logits)
    scale = jnp.max(abs(expected), -1, keepdims=True)  # each entry is a difference of terms of this size
    assert (abs(found - expected) <= 16 * EPS * scale + 2 * LEAST_WEIGHT).all()


fast_proposition_1 = compiled(proposition_1)


@given(moves(sizes=(3,)), moves(sizes=(3,)))
def test_the_step_of_natural_pg_is_the_advantage_whatever_the_visits(first, second):
    logits = jnp.stack([first[0], second[0]])
    found = outer_step(Bandit(REWARDS, WEIGHTS), NaturalPG(0.7), logits)
    assert jnp.allclose(found, 0.7 * fast_centred(logits), rtol=0.0, atol=1e-14)


fast_centred = compiled(lambda logits: centred(softmax(logits), jnp.asarray(REWARDS)))


@pytest.mark.parametrize("update", [VanillaPG(0.7), NaturalPG(0.7)])
def test_a_common_reward_changes_nothing(update):
    binary = np.array([[0.25, 1.0, -0.5], [0.0, 0.5, 0.75]])  # so that adding 4 is exact
    plain, raised = (outer_step(Bandit(binary + b, WEIGHTS), update, LOGITS) for b in (0.0, 4.0))
    assert jnp.array_equal(plain, raised)


@pytest.mark.parametrize("update", [VanillaPG(0.7), NaturalPG(0.7)])
def test_a_context_that_never_comes_stays_where_it_is(update):
    delta = outer_step(Bandit(REWARDS, [1.0, 0.0]), update, LOGITS)
    assert (delta[1] == 0.0).all()
    assert (delta[0] != 0.0).all()


@pytest.mark.parametrize("update", [VanillaPG(0.7), NaturalPG(0.7)])
def test_a_masked_action_is_not_moved(update):
    delta = outer_step(Bandit(REWARDS, WEIGHTS), update, LOGITS.at[0, 1].set(-jnp.inf))
    assert delta[0, 1] == 0.0
    assert jnp.isfinite(delta).all()


@pytest.mark.parametrize("update", [VanillaPG(0.0), NaturalPG(0.0)])
def test_step_size_zero_moves_nothing(update):
    assert (outer_step(Bandit(REWARDS, WEIGHTS), update, LOGITS) == 0.0).all()


def test_natural_pg_takes_any_push_through_the_inverse_of_the_fisher_matrix():
    push = jnp.array([[1.0, -3.0, 2.0], [0.5, 0.5, -1.0]])  # rows add up to 0, as of any gradient of a softmax
    delta, _ = NaturalPG(0.7)(push, softmax(LOGITS), VISITS)
    p = probs(LOGITS)
    back = VISITS[:, None] * p * (delta - jnp.sum(p * delta, -1, keepdims=True))  # F δ
    assert jnp.allclose(back, 0.7 * push, rtol=1e-14, atol=0.0)


def test_natural_pg_keeps_the_advantage_of_an_action_too_rare_to_be_a_number():
    delta = outer_step(Bandit([[1.0, 0.0, 0.5]]), NaturalPG(1.0), jnp.array([[0.0, -1e4, -800.0]]))
    assert jnp.allclose(delta, jnp.array([[0.0, -1.0, -0.5]]), rtol=0.0, atol=1e-14)


def test_a_step_size_may_be_traced():
    sizes = jnp.array([0.0, 0.5])
    steps = jax.vmap(lambda eta: outer_step(Bandit(REWARDS, WEIGHTS), VanillaPG(eta), LOGITS))(sizes)
    assert jnp.array_equal(steps[1], outer_step(Bandit(REWARDS, WEIGHTS), VanillaPG(0.5), LOGITS))
