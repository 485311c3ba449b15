"""Every named method steps in both modes, and those that weigh by reward alone share one expected direction (T16)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softmaxdyn import Adam, InputError, NaturalPG, Shared
from softmaxdyn.interventions import EntropyBonus, KLCov
from softmaxdyn.methods import METHODS, build, merged
from softmaxdyn.policy import centred, probs, softmax
from softmaxdyn.problems import Bandit
from softmaxdyn.simulation import simulate, step
from softmaxdyn.theory import natural_path
from tests.compiled import compiled
from tests.worlds import BEFORE, worlds

REWARDS = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
LOGITS = np.array([[0.3, 1.2, -0.5, 0.0], [0.9, 0.1, -0.8, 0.4], [-1.0, 0.7, 0.2, 0.5]])
BANDIT = Bandit(REWARDS)
POLICY = softmax(jnp.asarray(LOGITS))
REWARD_ONLY = [
    *("reinforce", "reinforce_baseline", "rloo", "grpo", "dr_grpo", "remax", "reinforce_pp", "reinforce_pp_baseline"),
    *("gpg", "opo", "optimal_baseline", "psr", "nsr", "w_reinforce", "positive_reweighting", "entropy_aware_advantage"),
    *("fork_tokens", "dynamic_sampling", "entropic", "brorl", "random_tokens", "ppo", "clip_higher", "dual_clip"),
    *("dapo", "cispo", "gspo", "gmpo", "sapo", "ce_gppo", "kl_cov", "kl_cov_true_kl", "qae"),
]
DEPARTING = {
    "steer": {},
    "steer_released": {},
    "steer_exact": {},
    "clip_cov_quantile": {},
    "clip_v": {"low": 0.8, "high": 0.8},
    "clip_b": {"low": 0.5, "high": 0.5},
    "stare": {"target": 10.0},
    "repo": {},
    "entropy_bonus": {},
    "npg": {},
}
every = pytest.mark.parametrize("name", METHODS)
RUN = compiled(step, static_argnums=4)


def outer_step(name, mode, inner_steps=1, problem=BANDIT, policy=POLICY, **numbers):
    algorithm = build(name, mode=mode, groups=8, group_size=4, **numbers).start(policy.logits)
    return RUN(problem, algorithm, policy, jax.random.key(0) if mode == "sampled" else None, inner_steps)


def is_sound(name, world, mode, inner_steps=1):
    delta, after, selected = outer_step(name, mode, inner_steps, worlds()[world], BEFORE)
    assert bool(jnp.isfinite(delta).all())
    assert len(after.interventions) == selected.size
    assert np.all((selected >= 0.0) & (selected <= 1.0 + 1e-12))
    assert not np.asarray(delta)[np.asarray(worlds()[world].visits(BEFORE.prob)) == 0.0].any()


@every
def test_every_method_makes_a_sound_step_on_a_sample_of_responses(name):
    is_sound(name, "tree", "sampled", inner_steps=2)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in REWARD_ONLY] + ["grpo", "qae", "kl_cov"])
def test_a_method_makes_a_sound_step_on_all_responses(name):
    """The others differ from GRPO in their advantage alone; experiments/every_method.py runs all on all problems."""
    is_sound(name, "tree", "exact")


@pytest.mark.parametrize("world", ["discounted", "time-limited"])
@pytest.mark.parametrize("mode", ["exact", "sampled"])
@pytest.mark.parametrize("name", ["ppo", "qae", "dapo", "clip_cov", "aepo", "luffy", "prime", "trpo", "prorl"])
def test_one_method_with_each_kind_of_part_makes_a_sound_step_in_an_mdp(name, world, mode):
    is_sound(name, world, mode)


def cosines(name, **numbers):
    """The cosine of the expected step with π∘(r − p), of every state that moves."""
    delta = np.asarray(outer_step(name, "exact", **numbers)[0])
    delta = delta - np.sum(delta * 0.25, -1, keepdims=True)
    wanted = np.asarray(POLICY.prob * centred(POLICY, REWARDS))
    moves = np.linalg.norm(delta, axis=-1) > 0.0
    size = np.linalg.norm(delta, axis=-1) * np.linalg.norm(wanted, axis=-1)
    return np.sum(delta * wanted, -1)[moves] / size[moves]


@pytest.mark.parametrize("name", REWARD_ONLY)
def test_reward_only_methods_share_one_expected_direction_in_every_state(name):
    np.testing.assert_allclose(cosines(name), 1.0, rtol=0.0, atol=1e-12)
    assert cosines(name).size > 0


@pytest.mark.parametrize("name", DEPARTING)
def test_other_methods_depart_from_it(name):
    assert cosines(name, **DEPARTING[name]).min() < 1.0 - 1e-9


def test_numbers_reach_the_part_that_has_them():
    assert build("kl_cov", fraction=0.1).interventions[0].fraction == 0.1
    assert build("entrocraft", low=0.3).interventions[1].low == 0.3
    assert build("grpo", epsilon=0.5).estimator.advantage.epsilon == 0.5
    assert build("npg", step_size=0.3).update.step_size == 0.3
    assert isinstance(build("kl_cov", update=NaturalPG()).update, NaturalPG)
    shared = Shared(Adam(0.5), np.ones((1, 2, 1)) * [[[1.0], [0.0]]])
    assert build("grpo", step_size=0.2, update=shared).update.update.step_size == 0.2
    assert build("brorl").estimator.group_size == 512


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build("klcov"), "unknown method 'klcov'; did you mean 'kl_cov'?"),
        (lambda: build("kl_cov", fracton=0.1), "unknown number of this method 'fracton'; did you mean 'fraction'?"),
        (lambda: build("rloo", fraction=0.1), "this method has no numbers of its own; got 'fraction'"),
        (lambda: build("kl_cov", mode="exat"), "unknown mode 'exat'; did you mean 'exact'?"),
        (lambda: build("kl_cov", fraction=20.0), "fraction is 20.0; wanted a fraction in \\(0, 0.5\\]"),
    ],
)
def test_a_wrong_name_or_number_is_one_line_that_says_what_to_type(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_methods_compose_by_hand_as_they_do_by_name():
    by_name = build("entropy_bonus", mode="exact", coefficient=0.1)
    assert isinstance(by_name.interventions[-1], EntropyBonus)
    assert repr(build("kl_cov").interventions) == repr((KLCov(),))


def test_merging_with_the_start_is_an_earlier_checkpoint_under_natural_pg():
    one = Bandit(REWARDS[0])
    trace = simulate(one, build("npg", mode="exact", step_size=0.1), num_steps=40, logits=LOGITS[0])
    expected = probs(natural_path(jnp.asarray(LOGITS[0]), jnp.asarray(REWARDS[0]), 0.3 * 40 * 0.1))
    np.testing.assert_allclose(probs(merged(jnp.asarray(trace.logits), LOGITS[:1], 0.3))[0], expected, rtol=1e-12)
