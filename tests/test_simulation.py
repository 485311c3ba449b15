"""Runs: what a trace records, that it is what was done, and that it depends on nothing else."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import softmaxdyn
from softmaxdyn import Algorithm, Bandit, Intervention, NaturalPG, VanillaPG, simulate
from softmaxdyn.change import entropy_change
from softmaxdyn.estimators import Sampled
from softmaxdyn.policy import entropy, log_probs, probs
from softmaxdyn.theory import lemma_1, remainder_bound, theorem_1, theorem_2
from tests.compiled import compiled

EPS = np.finfo(float).eps
REWARDS = np.array([[0.3, 1.0, -0.5], [0.0, 0.2, 0.9]])
WEIGHTS = np.array([0.25, 0.75])
LOGITS = np.array([[0.5, -1.0, 0.2], [2.0, 0.0, -0.3]])
BANDIT = Bandit(REWARDS, WEIGHTS)
UPDATES = [VanillaPG(0.7), NaturalPG(0.7)]
ROWS = [f.name for f in dataclasses.fields(softmaxdyn.Trace)][1:12]


def run(update=UPDATES[0], interventions=(), problem=BANDIT, logits=LOGITS, num_steps=40, **options):
    algorithm = Algorithm(update, interventions=interventions)
    return simulate(problem, algorithm, num_steps=num_steps, logits=logits, **options)


def numbers(trace):
    """The arrays of a trace that are real numbers, by name."""
    return {
        name: np.asarray(getattr(trace, name)) for name in [*ROWS, "logits", "final_entropy", "final_expected_return"]
    }


def policies(trace):
    return probs(jnp.asarray(trace.logits))


@compiled
def formulas(z, delta):
    """The row of a trace, by the public formulas."""
    p = probs(z)
    advantage = REWARDS - jnp.sum(p * REWARDS, -1, keepdims=True)
    return {
        "expected_return": BANDIT.expected_return(p),
        "visits": WEIGHTS,
        "entropy": entropy(z),
        "entropy_change": entropy_change(z, delta),
        "lemma_1": lemma_1(z, delta),
        "theorem_1": theorem_1(z, advantage, 0.7 * jnp.asarray(WEIGHTS)),
        "theorem_2": theorem_2(z, advantage, 0.7),
        "bound": remainder_bound(z, delta),
    }


@pytest.mark.parametrize("update", UPDATES)
def test_each_row_is_what_the_formulas_say_of_that_step(update):
    before = run(update, num_steps=7).logits
    row = {name: x[7] for name, x in numbers(run(update, num_steps=8)).items() if name in ROWS}
    delta = run(update, num_steps=8).logits - before  # so its error is that of rounding the logits
    for name, value in formulas(before, delta).items():
        assert np.allclose(row[name], value, rtol=1e-13, atol=8 * EPS), name
    assert np.allclose(row["remainder"], row["entropy_change"] - row["lemma_1"], rtol=0.0, atol=4 * EPS)


def test_the_prediction_for_each_update_is_its_lemma_1():
    plain, natural = run(UPDATES[0]), run(UPDATES[1])
    assert np.allclose(plain.theorem_1, plain.lemma_1, rtol=1e-13, atol=1e-16)
    assert np.allclose(natural.theorem_2, natural.lemma_1, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("update", UPDATES)
def test_the_recorded_changes_add_up_to_the_change_of_the_run(update):
    trace = run(update, num_steps=200)
    last = np.concatenate([trace.entropy[1:], trace.final_entropy[None]])
    assert np.allclose(trace.entropy + trace.entropy_change, last, rtol=0.0, atol=16 * EPS)
    total = trace.final_entropy - trace.entropy[0]
    assert np.allclose(trace.entropy_change.sum(0), total, rtol=0.0, atol=200 * 4 * EPS)


@pytest.mark.parametrize("update", UPDATES)
def test_the_remainder_stays_within_its_bound_at_every_row(update):
    trace = run(update, num_steps=200)
    assert (np.abs(trace.remainder) <= trace.bound * (1.0 + 1e-12)).all()


def test_the_ends_of_the_trace_belong_to_its_last_policy():
    trace = run()
    assert np.allclose(trace.final_entropy, entropy(jnp.asarray(trace.logits)), rtol=4 * EPS, atol=0.0)
    assert np.allclose(trace.final_expected_return, BANDIT.expected_return(policies(trace)), rtol=4 * EPS, atol=0.0)


@pytest.mark.parametrize("every", [1, 3, 40, 100])
def test_a_thinned_run_has_the_rows_of_the_full_one_bit_for_bit(every):
    full, thin = numbers(run()), numbers(run(every=every))
    assert np.array_equal(run(every=every).step, np.arange(0, 40, every))
    for name in full:
        kept = full[name][::every] if name in ROWS else full[name]
        assert np.array_equal(thin[name], kept), name


def test_a_run_longer_than_its_buffer_is_one_run():
    seen = []
    long, thin = run(num_steps=2500, progress=seen.append), run(num_steps=2500, every=50)
    assert seen[-1] == 2500
    assert len(seen) > 1
    assert np.array_equal(long.entropy[::50], thin.entropy)
    assert np.array_equal(long.logits, thin.logits)


@pytest.mark.parametrize("update", UPDATES)
def test_a_run_can_be_continued(update):
    first = run(update, num_steps=25)
    second, whole = run(update, num_steps=25, logits=first.logits), run(update, num_steps=50)
    assert np.array_equal(second.logits, whole.logits)
    assert np.array_equal(np.concatenate([first.entropy, second.entropy]), whole.entropy)


@pytest.mark.parametrize("update", UPDATES)
def test_contexts_are_independent_runs_with_their_own_step_sizes(update):
    together = run(update)
    for s in range(2):
        eta = update.step_size * (WEIGHTS[s] if isinstance(update, VanillaPG) else 1.0)
        alone = run(type(update)(eta), problem=Bandit(REWARDS[s]), logits=LOGITS[s])
        assert np.allclose(together.entropy[:, s], alone.entropy[:, 0], rtol=0.0, atol=1e-13)
        assert np.allclose(policies(together)[s], policies(alone)[0], rtol=0.0, atol=1e-13)


def test_weights_of_one_are_independent_bandits():
    together = run(problem=Bandit(REWARDS, weights=1))
    for s in range(2):
        alone = run(problem=Bandit(REWARDS[s]), logits=LOGITS[s])
        assert np.allclose(together.entropy_change[:, s], alone.entropy_change[:, 0], rtol=1e-12, atol=1e-16)


@compiled
def surrogate_gradient(z, old, advantage):
    """∂/∂z of Σ_s w_s Σ_a π_old (π/π_old) A_old: what an inner step climbs."""
    return jax.grad(lambda z: jnp.sum(WEIGHTS[:, None] * old * jnp.exp(log_probs(z) - jnp.log(old)) * advantage))(z)


def test_inner_steps_climb_the_surrogate_of_the_policy_that_acted():
    z = jnp.asarray(LOGITS)
    for _ in range(3):
        old = probs(z)
        advantage = REWARDS - jnp.sum(old * REWARDS, -1, keepdims=True)
        for _ in range(4):
            z = z + 0.7 * surrogate_gradient(z, old, advantage)
    trace = run(num_steps=3, inner_steps=4)
    assert np.allclose(policies(trace), probs(z), rtol=0.0, atol=1e-13)
    assert np.allclose(trace.final_entropy - trace.entropy[0], trace.entropy_change.sum(0), rtol=0.0, atol=1e-14)
    assert np.allclose(trace.theorem_1[0], 4 * run(num_steps=1).theorem_1[0], rtol=8 * EPS, atol=0.0)


def test_inner_steps_of_natural_pg_from_the_first_policy_that_acted():
    """F⁺ of the current policy on the surrogate's gradient: π_old (ratio A)/π = A at each inner step."""
    trace = run(UPDATES[1], num_steps=1, inner_steps=4)
    p = probs(jnp.asarray(LOGITS))
    expected = probs(LOGITS + 4 * 0.7 * (REWARDS - jnp.sum(p * REWARDS, -1, keepdims=True)))
    assert np.allclose(policies(trace), expected, rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("update", UPDATES)
def test_masked_actions_stay_masked(update):
    logits = LOGITS.copy()
    logits[0, 1] = -np.inf  # the best arm
    trace = run(update, logits=logits)
    assert trace.logits[0, 1] == -np.inf
    assert np.isfinite(np.delete(trace.logits.ravel(), 1)).all()
    assert np.allclose(trace.entropy[:, 0], run(update, problem=WITHOUT, logits=np.delete(LOGITS, 1, 1)).entropy[:, 0])


WITHOUT = Bandit(np.delete(REWARDS, 1, 1), WEIGHTS)


@pytest.mark.parametrize("update", UPDATES)
def test_contexts_that_never_come_stay_put(update):
    trace = run(update, problem=Bandit(REWARDS, [1.0, 0.0]))
    assert np.array_equal(trace.logits[1], LOGITS[1])
    for name in ("entropy_change", "lemma_1", "theorem_1", "theorem_2", "remainder", "bound", "kl"):
        assert (getattr(trace, name)[:, 1] == 0.0).all(), name


@pytest.mark.parametrize("update", UPDATES)
def test_one_arm_has_no_entropy_and_nothing_to_learn(update):
    trace = run(update, problem=Bandit([[0.3], [0.7]]), logits=None)
    assert np.isfinite(trace.logits).all()
    for name in ("entropy", "entropy_change", "lemma_1", "theorem_1", "theorem_2", "remainder", "bound", "kl"):
        assert (getattr(trace, name) == 0.0).all(), name
    assert np.allclose(trace.expected_return, 0.5, rtol=4 * EPS, atol=0.0)


@pytest.mark.parametrize("kind", [VanillaPG, NaturalPG])
@pytest.mark.parametrize("step_size", [1e5, 1e300])
def test_huge_steps_lead_to_the_greedy_policy(kind, step_size):
    trace = run(kind(step_size), num_steps=20, logits=np.zeros((2, 3)))
    for name, values in numbers(trace).items():
        assert not np.isnan(values).any(), name
    assert np.array_equal(policies(trace), np.eye(3)[REWARDS.argmax(-1)])
    assert np.allclose(trace.entropy[0] + np.cumsum(trace.entropy_change, 0)[-1], trace.final_entropy, atol=1e-13)
    assert np.allclose(trace.final_expected_return, WEIGHTS @ REWARDS.max(-1), rtol=4 * EPS)


@pytest.mark.parametrize("kind", [VanillaPG, NaturalPG])
def test_huge_steps_keep_numbers_in_float32(kind):
    trace = run(kind(1e30), num_steps=20, logits=np.zeros((2, 3), np.float32))
    for name, values in numbers(trace).items():
        assert values.dtype == np.float32
        assert not np.isnan(values).any(), name
    assert np.array_equal(policies(trace), np.eye(3)[REWARDS.argmax(-1)])


@pytest.mark.parametrize("update", UPDATES)
def test_the_dtype_of_a_run_is_that_of_its_logits_or_else_of_its_rewards(update):
    single = run(update, logits=LOGITS.astype(np.float32))
    assert {x.dtype for x in numbers(single).values()} == {np.dtype(np.float32)}
    assert run(update, problem=Bandit(REWARDS.astype(np.float32)), logits=None).entropy.dtype == np.float32
    assert run(update, logits=None).entropy.dtype == np.float64
    double = run(update)
    assert np.allclose(single.entropy, double.entropy, rtol=0.0, atol=1e-5)
    assert np.allclose(single.entropy_change, double.entropy_change, rtol=1e-3, atol=1e-6)


def test_the_start_is_uniform_unless_told_and_one_context_needs_no_table():
    assert np.allclose(run(logits=None).entropy[0], np.log(3.0), rtol=2 * EPS, atol=0.0)
    line, table = run(problem=Bandit(REWARDS[0]), logits=LOGITS[0]), run(problem=Bandit(REWARDS[:1]), logits=LOGITS[:1])
    assert np.array_equal(line.logits, table.logits)


def test_runs_can_be_vmapped_over_step_sizes():
    sizes = jnp.array([0.1, 0.7])
    several = jax.vmap(lambda eta: run(VanillaPG(eta)))(sizes)
    one = run(VanillaPG(0.7))
    assert several.entropy.shape == (2, 40, 2)
    assert np.allclose(several.entropy_change[1], one.entropy_change, rtol=1e-12, atol=1e-16)
    assert np.allclose(several.logits[1], one.logits, rtol=0.0, atol=1e-13)


def test_runs_can_be_vmapped_over_starts_and_problems():
    starts = jnp.stack([LOGITS, -LOGITS])
    several = jax.vmap(lambda z, r: run(problem=Bandit(r, WEIGHTS), logits=z))(starts, jnp.stack([REWARDS, -REWARDS]))
    assert np.allclose(several.entropy[0], run().entropy, rtol=0.0, atol=1e-13)


def test_runs_can_be_jitted():
    inside = jax.jit(lambda eta, z: run(VanillaPG(eta), logits=z))(0.7, jnp.asarray(LOGITS))
    assert np.allclose(inside.entropy_change, run().entropy_change, rtol=1e-12, atol=1e-16)


@softmaxdyn.config
class Thermostat(Intervention):
    """Adds α (log π_0 − log π) as a field, and lets α fall by half after each outer step; it touches no token."""

    strength: float = 1.0
    reference: Any = None

    def init(self, logits):
        return dataclasses.replace(self, reference=log_probs(logits))

    def __call__(self, key, tokens, policy, push):
        return push._replace(field=push.field + self.strength * policy.prob * (self.reference - policy.log_prob))

    def next(self, tokens, policy):
        return dataclasses.replace(self, strength=0.5 * self.strength)


def test_an_own_intervention_may_remember_the_start_and_change_its_strength():
    z, reference, strength = jnp.asarray(LOGITS), log_probs(jnp.asarray(LOGITS)), 0.3
    for _ in range(5):
        p = probs(z)
        gradient = WEIGHTS[:, None] * p * (REWARDS - jnp.sum(p * REWARDS, -1, keepdims=True))
        z = z + 0.7 * (gradient + strength * p * (reference - log_probs(z)))
        strength *= 0.5
    trace = run(interventions=(Thermostat(0.3),), num_steps=5)
    assert np.allclose(policies(trace), probs(z), rtol=0.0, atol=1e-13)
    assert (trace.selected == 0.0).all()


@softmaxdyn.config
class Mute(Intervention):
    """Scores of tokens whose advantage is below the threshold become 0."""

    threshold: float = 0.0

    def __call__(self, key, tokens, policy, push):
        return push._replace(score=jnp.where(tokens.advantage < self.threshold, 0.0, push.score))


def test_the_trace_reports_the_share_of_the_tokens_that_each_intervention_touched():
    trace = run(interventions=(Mute(), Thermostat(0.0), Mute(-10.0)), num_steps=1)
    p = np.asarray(probs(jnp.asarray(LOGITS)))
    below = np.sum(p * REWARDS, -1, keepdims=True) > REWARDS
    assert np.allclose(trace.selected, [[np.sum(WEIGHTS[:, None] * p * below), 0.0, 0.0]], rtol=1e-14, atol=0.0)


def test_an_intervention_changes_what_the_update_sees():
    p = probs(jnp.asarray(LOGITS))
    advantage = REWARDS - jnp.sum(p * REWARDS, -1, keepdims=True)
    kept = WEIGHTS[:, None] * p * jnp.maximum(advantage, 0.0)
    step = 0.7 * (kept - p * kept.sum(-1, keepdims=True))
    assert np.allclose(run(interventions=(Mute(),), num_steps=1).logits, LOGITS + step, rtol=0.0, atol=1e-15)


@softmaxdyn.config
class HeavyBall:
    """v ← μ v + g, δ = η v."""

    step_size: float = 0.7
    decay: float = 0.5
    velocity: Any = None

    def init(self, logits):
        return dataclasses.replace(self, velocity=jnp.zeros_like(logits))

    def __call__(self, gradient, policy, visits):
        velocity = self.decay * self.velocity + gradient
        return self.step_size * velocity, dataclasses.replace(self, velocity=velocity)


def test_an_own_update_may_carry_a_state():
    z, velocity = jnp.asarray(LOGITS), 0.0
    for _ in range(6):
        p = probs(z)
        velocity = 0.5 * velocity + WEIGHTS[:, None] * p * (REWARDS - jnp.sum(p * REWARDS, -1, keepdims=True))
        z = z + 0.7 * velocity
    assert np.allclose(policies(run(HeavyBall(), num_steps=6)), probs(z), rtol=0.0, atol=1e-13)


def compilations():
    """A list to which each compilation from now on adds the name of what was compiled."""
    names = []

    def listen(event, _, **details):
        if event.endswith("backend_compile_duration"):
            names.append(details["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(listen)
    return names


def test_a_new_number_compiles_nothing_and_a_first_run_compiles_its_loop_once():
    names, draw = compilations(), np.random.default_rng(0).random
    shape = (5, 7)  # of no other test
    run(VanillaPG(0.1), problem=Bandit(draw(shape)), logits=draw(shape), num_steps=9)
    assert names.count("jit(_chunk)") == 1
    names.clear()
    for num_steps, every in [(9, 1), (10, 1), (9, 4), (3000, 1), (3000, 7)]:
        problem = Bandit(draw(shape), draw(5))
        run(VanillaPG(draw()), problem=problem, logits=draw(shape), num_steps=num_steps, every=every)
    assert names == []


def test_a_new_seed_compiles_nothing_and_is_another_run():
    def sampled(seed):
        algorithm = Algorithm(VanillaPG(0.5), Sampled(groups=2, group_size=4))
        return simulate(BANDIT, algorithm, num_steps=5, logits=LOGITS, key=jax.random.key(seed)).logits

    first = sampled(0)
    names = compilations()
    assert not np.array_equal(sampled(1), first)
    assert np.array_equal(sampled(0), first)
    assert names == []
