"""Updates of policies that share parameters: against autodiff in θ, the Fisher matrix itself, and mpmath."""

import dataclasses

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmaxdyn import Algorithm, Bandit, InputError, NaturalPG, VanillaPG, build, simulate
from softmaxdyn.policy import centred, floored_prob
from softmaxdyn.simulation import step
from softmaxdyn.updates import (
    TRPO,
    Adam,
    KernelPG,
    Momentum,
    Restarted,
    Shared,
    SharedNaturalPG,
    blended_kernel,
    random_features,
    tied_features,
    tied_over_time,
)
from softmaxdyn.updates.compatible import fit
from tests.compiled import compiled
from tests.faces import BANDIT, OLD, REWARDS, softmax

SHAPE = STATES, ACTIONS = REWARDS.shape
WEIGHTS = jnp.asarray(BANDIT.weights)
IDENTITY = np.eye(STATES * ACTIONS).reshape(STATES, ACTIONS, -1)
rng = np.random.default_rng(7)
FEATURES = {  # by their number
    "five": rng.standard_normal((*SHAPE, 5)),
    "three of five": rng.standard_normal((*SHAPE, 3)) @ rng.standard_normal((3, 5)),
    "tied": tied_features(SHAPE),
}
rows = st.lists(st.floats(-5.0, 5.0), min_size=ACTIONS, max_size=ACTIONS)
tables = st.lists(rows, min_size=STATES, max_size=STATES).map(np.array)
ABOUT = jnp.asarray(rng.standard_normal((6, *SHAPE)))  # gradients
outer_step = compiled(lambda update, logits, bandit=BANDIT: step(bandit, Algorithm(update), softmax(logits))[0])
fast_centred = compiled(lambda logits, values: centred(softmax(logits), values))


def of_rank(name):
    return pytest.param(FEATURES[name], id=name)


def kernel_of(features):
    """ΦΦᵀ [S, A, S, A]."""
    return np.einsum("saf,tbf->satb", features, features)


@jax.jit
def descent_in_parameters(features, logits):
    """Φ ∂J/∂θ by autodiff of J(z₀ + Φθ)."""

    def expected_return(θ):
        return jnp.sum(WEIGHTS[:, None] * jax.nn.softmax(logits + features @ θ) * REWARDS)

    return features @ jax.grad(expected_return)(jnp.zeros(features.shape[-1]))


@given(logits=tables)
def test_kernel_pg_is_gradient_ascent_in_the_parameters(logits):
    features = FEATURES["five"]
    found = outer_step(KernelPG(0.7, features), logits)
    np.testing.assert_allclose(found, 0.7 * descent_in_parameters(features, logits), rtol=0.0, atol=1e-12)
    by_kernel = outer_step(KernelPG(0.7, kernel=kernel_of(features)), logits)
    np.testing.assert_allclose(by_kernel, found, rtol=0.0, atol=1e-12)
    shared = outer_step(Shared(VanillaPG(0.7), features), logits)
    np.testing.assert_allclose(shared, found, rtol=0.0, atol=1e-15)


def steps(update, gradients=ABOUT):
    """The steps of `update` for these gradients, one after the other."""
    update, found = update.init(OLD.logits), []
    for gradient in gradients:
        delta, update = update(gradient, OLD, WEIGHTS)
        found.append(np.asarray(delta))
    return np.array(found)


@pytest.mark.parametrize(
    "update", [VanillaPG(0.3), Momentum(0.3), Adam(0.05), Restarted(Adam(0.05), every=2.0)], ids=str
)
def test_a_parameter_for_each_logit_shares_nothing(update):
    np.testing.assert_array_equal(steps(Shared(update, IDENTITY)), steps(update))
    assert Shared(update, IDENTITY).step_size == update.step_size


def test_the_kernel_of_the_identity_is_vanilla_pg():
    np.testing.assert_array_equal(steps(KernelPG(0.3, kernel=blended_kernel(SHAPE, 0.0))), steps(VanillaPG(0.3)))
    np.testing.assert_array_equal(steps(KernelPG(0.3, features=IDENTITY)), steps(VanillaPG(0.3)))


def test_adam_in_the_parameters_is_adam_on_the_sum_over_the_states_that_share_them():
    found = steps(Shared(Adam(0.05), tied_features(SHAPE)))
    alone = steps(Adam(0.05), jnp.tile(ABOUT.sum(1, keepdims=True), (1, STATES, 1)))
    np.testing.assert_allclose(found, alone, rtol=1e-12, atol=1e-15)


def test_a_restart_outside_is_a_restart_inside():
    inside = steps(Shared(Restarted(Adam(0.05), every=2.0), FEATURES["five"]))
    np.testing.assert_array_equal(steps(Restarted(Shared(Adam(0.05), FEATURES["five"]), every=2.0)), inside)


def by_pseudo_inverse(features, logits, gradient, weights=WEIGHTS):
    """Φ F_θ⁺ Φᵀ g, F_θ = ΦᵀFΦ written out."""
    p, flat = np.asarray(jax.nn.softmax(logits)), features.reshape(-1, features.shape[-1])
    fisher = np.zeros((*p.shape, *p.shape))
    for s, d in enumerate(np.asarray(weights)):
        fisher[s, :, s, :] = d * (np.diag(p[s]) - np.outer(p[s], p[s]))
    in_parameters = flat.T @ fisher.reshape(p.size, -1) @ flat
    inverse = np.linalg.pinv(in_parameters, rcond=1e-12, hermitian=True)
    return (flat @ inverse @ flat.T @ np.ravel(gradient)).reshape(p.shape)


small_rows = st.lists(st.floats(-2.0, 2.0), min_size=ACTIONS, max_size=ACTIONS)


@pytest.mark.parametrize("features", [of_rank("five"), of_rank("three of five"), of_rank("tied")])
@given(logits=st.lists(small_rows, min_size=STATES, max_size=STATES).map(np.array))
def test_shared_natural_pg_goes_through_the_pseudo_inverse_of_the_fisher_matrix(features, logits):
    """rcond 1e-12 of a condition number below 1e6 leaves about 1e-9."""
    gradient = WEIGHTS[:, None] * softmax(logits).prob * fast_centred(logits, REWARDS)
    found = outer_step(SharedNaturalPG(0.7, features), logits)
    expected = 0.7 * by_pseudo_inverse(features, logits, gradient)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-9 * (1.0 + abs(expected).max()))


@given(tables, st.sampled_from([1.0, 20.0, 140.0]))
def test_features_that_can_express_any_policy_leave_natural_pg_as_it_is(logits, scale):
    """Also those far from orthogonal, and at probabilities below the smallest number."""
    logits = jnp.asarray(scale * logits)
    expected = fast_centred(logits, outer_step(NaturalPG(0.7), logits))
    for features in (IDENTITY, np.concatenate([0.1 * IDENTITY, tied_features(SHAPE)], -1)):
        found = fast_centred(logits, outer_step(SharedNaturalPG(0.7, features), logits))
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)


def exact_parameters(features, logits, rewards, weights):
    """F_θ⁻¹ Φᵀ ∂J/∂z of an invertible F_θ, in 400 digits."""
    width = features.shape[-1]
    with mp.workdps(400):
        fisher, slope = mp.matrix(width, width), mp.matrix(width, 1)
        for phi, z, r, d in zip(features, logits, rewards, weights, strict=True):
            e = [mp.exp(mp.mpf(float(x))) for x in z]
            p = [x / mp.fsum(e) for x in e]
            gain, *off = [[x - mp.fdot(p, row) for x in row] for row in (list(map(mp.mpf, x)) for x in (r, *phi.T))]
            for i in range(width):
                slope[i] += mp.mpf(d) * mp.fsum(w * x * y for w, x, y in zip(p, off[i], gain, strict=True))
                for j in range(width):
                    fisher[i, j] += mp.mpf(d) * mp.fsum(w * x * y for w, x, y in zip(p, off[i], off[j], strict=True))
        return np.array([float(x) for x in mp.lu_solve(fisher, slope)])


@compiled
def parameters(features, logits, rewards, weights):
    """Δθ/η of SharedNaturalPG."""
    policy = softmax(logits)
    return fit(features, jnp.where(floored_prob(policy) > 0.0, centred(policy, rewards), 0.0), policy, weights)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("width", [2, 8])
def test_the_fit_keeps_its_digits_however_peaked_the_policy(scale, width):
    """Random features, so condition numbers of the order of 10²; weights span up to 10⁻³⁰⁰."""
    draws = np.random.default_rng(width)
    for _ in range(5):
        logits, rewards = scale * draws.standard_normal(SHAPE), draws.standard_normal(SHAPE)
        features, weights = draws.standard_normal((*SHAPE, width)), draws.dirichlet(np.ones(STATES))
        expected = exact_parameters(features, logits, rewards, weights)
        found = parameters(features, logits, rewards, weights)
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12 * abs(expected).max())


def test_the_fit_has_no_part_that_moves_no_policy():
    """The shortest θ: nothing common to all actions of all states, nothing outside the span of low-rank features."""
    assert abs(parameters(tied_features(SHAPE), OLD.logits, REWARDS, WEIGHTS).sum()) <= 1e-14
    found = parameters(FEATURES["three of five"], OLD.logits, REWARDS, WEIGHTS)
    span = np.linalg.svd(FEATURES["three of five"].reshape(-1, 5))[2][:3]
    np.testing.assert_allclose(span.T @ (span @ found), found, rtol=0.0, atol=1e-13 * abs(found).max())


def test_a_state_that_never_comes_has_no_part_in_the_fit():
    bandit, features = Bandit(REWARDS, [0.5, 0.0, 0.5]), FEATURES["five"]
    delta = outer_step(SharedNaturalPG(1.0, features), OLD.logits, bandit)
    two = [0, 2]
    alone = outer_step(SharedNaturalPG(1.0, features[two]), OLD.logits[jnp.array(two)], Bandit(REWARDS[two]))
    np.testing.assert_allclose(delta[jnp.array(two)], alone, rtol=0.0, atol=1e-12)


UPDATES = [
    KernelPG(0.05, FEATURES["five"]),
    KernelPG(0.05, kernel=blended_kernel(SHAPE, 0.5)),
    Shared(Adam(0.01), FEATURES["five"]),
    SharedNaturalPG(0.05, FEATURES["five"]),
]
each_update = pytest.mark.parametrize("update", UPDATES, ids=lambda update: f"{update!r:.25}")


@pytest.mark.parametrize("update", [UPDATES[0], UPDATES[1], UPDATES[3]], ids=lambda update: f"{update!r:.25}")
def test_the_return_never_falls_for_small_steps(update):
    trace = simulate(BANDIT, Algorithm(update), num_steps=300, logits=OLD.logits)
    assert (np.diff(trace.expected_return) >= -1e-15).all()
    assert trace.final_expected_return > trace.expected_return[0] + 0.01


def test_tied_rows_move_together_and_become_one_policy_from_one_start():
    trace = simulate(BANDIT, Algorithm(KernelPG(1.0, tied_features(SHAPE))), num_steps=50, logits=OLD.logits)
    moved = trace.logits - OLD.logits
    np.testing.assert_allclose(moved, np.tile(moved[:1], (STATES, 1)), rtol=0.0, atol=1e-13)
    assert abs(moved).max() > 1.0


def sized(update, size):
    """The update with `size` times its step size."""
    if isinstance(update, Shared):
        return dataclasses.replace(update, update=sized(update.update, size))
    return dataclasses.replace(update, step_size=size * update.step_size)


@each_update
def test_lemma_1_stays_of_second_order_under_sharing(update):
    """Given the step that was made: halving η quarters the error in every state."""
    errors = [
        simulate(BANDIT, Algorithm(sized(update, size)), num_steps=1, logits=OLD.logits).remainder[0]
        for size in 2.0 ** -np.arange(5, 9)
    ]
    orders = np.log2(abs(np.array(errors[:-1]) / np.array(errors[1:])))
    np.testing.assert_allclose(orders, 2.0, atol=0.02)


def test_theorem_1_is_of_first_order_wrong_under_sharing():
    """What it predicts for a state knows nothing of the others: halving η halves its error."""
    errors = []
    for size in 2.0 ** -np.arange(5, 9):
        trace = simulate(BANDIT, Algorithm(KernelPG(size, FEATURES["five"])), num_steps=1, logits=OLD.logits)
        errors.append((trace.entropy_change - trace.theorem_1)[0])
    orders = np.log2(abs(np.array(errors[:-1]) / np.array(errors[1:])))
    np.testing.assert_allclose(orders, 1.0, atol=0.1)


@pytest.mark.parametrize(
    ("method", "mode", "update"),
    [
        ("grpo", "sampled", UPDATES[3]),
        ("kl_cov", "sampled", UPDATES[0]),
        ("kl_cov", "exact", UPDATES[2]),
    ],
    ids=lambda part: f"{part!r:.15}",
)
def test_methods_run_unchanged_and_stay_on_the_policies_that_the_features_span(method, mode, update):
    algorithm = build(method, mode=mode, update=update, step_size=0.5)
    trace = simulate(BANDIT, algorithm, num_steps=3, inner_steps=2, logits=OLD.logits, key=jax.random.key(0))
    moved, span = np.asarray(trace.logits - OLD.logits).ravel(), FEATURES["five"].reshape(-1, 5)
    assert abs(moved).max() > 1e-3
    np.testing.assert_allclose(span @ np.linalg.lstsq(span, moved)[0], moved, rtol=0.0, atol=1e-13)


def test_new_numbers_of_the_same_shape_do_not_compile_again():
    outer_step(KernelPG(0.05, FEATURES["five"]), OLD.logits)
    before = outer_step._cache_size()
    outer_step(KernelPG(0.2, FEATURES["three of five"]), OLD.logits)
    assert outer_step._cache_size() == before


def test_features_may_be_traced():
    both = jnp.stack([FEATURES["five"], FEATURES["three of five"]])
    found = jax.vmap(lambda features: outer_step(KernelPG(0.5, features), OLD.logits))(both)
    np.testing.assert_allclose(found[1], outer_step(KernelPG(0.5, both[1]), OLD.logits), rtol=0.0, atol=1e-15)


def test_the_kernel_of_features_is_never_formed():
    features = np.ones((30, 20, 3)) * np.arange(20)[:, None]
    policy = softmax(jnp.zeros((30, 20)))
    jaxpr = jax.make_jaxpr(lambda phi, slope: KernelPG(0.5, phi)(slope, policy, jnp.ones(30))[0])(features, policy.prob)
    assert max(variable.aval.size for line in jaxpr.eqns for variable in line.outvars) <= features.size


@each_update
def test_shared_updates_keep_the_dtype_of_the_run_and_leave_masked_actions_alone(update):
    """A float32 step is that of float64 to 5000 eps: the features have a condition number of some hundreds."""
    logits = OLD.logits.at[0, 1].set(-jnp.inf)
    single, double = (quick_step(Algorithm(update).start(z), z) for z in (logits.astype(jnp.float32), logits))
    for delta, dtype in ((single, jnp.float32), (double, jnp.float64)):
        assert delta.dtype == dtype
        assert delta[0, 1] == 0.0
        assert (jnp.delete(delta.ravel(), 1) != 0.0).all()
    np.testing.assert_allclose(single, double, rtol=0.0, atol=5e3 * jnp.finfo(jnp.float32).eps * abs(double).max())


quick_step = compiled(lambda algorithm, logits: step(BANDIT, algorithm, softmax(logits))[0])


def test_random_features_have_the_identity_for_their_mean_kernel():
    draws = jax.vmap(lambda key: random_features(key, (2, 3), 4))(jax.random.split(jax.random.key(0), 4000))
    kernels = np.einsum("nsaf,ntbf->nsatb", draws, draws).reshape(-1, 6, 6)
    apart = (kernels.mean(0) - np.eye(6)) / (kernels.std(0, ddof=1) / np.sqrt(4000))
    assert abs(apart).max() <= 4.0  # 21 numbers, each about normal: 0.1 % by chance
    np.testing.assert_allclose(kernels.var(0), (1.0 + np.eye(6)) / 4.0, rtol=0.15)


def test_blending_rows_is_a_kernel_between_the_tabular_and_the_tied_one():
    share = 0.3
    features = np.concatenate([np.sqrt(1.0 - share) * IDENTITY, np.sqrt(share) * tied_features(SHAPE)], -1)
    np.testing.assert_allclose(kernel_of(features), blended_kernel(SHAPE, share), rtol=0.0, atol=1e-15)
    np.testing.assert_array_equal(blended_kernel(SHAPE, 1.0), kernel_of(tied_features(SHAPE)))


def test_rows_tied_over_time_are_one_table_of_states_at_each_time():
    features = tied_over_time(3, 2, 4)
    table = rng.standard_normal((2, 4))
    np.testing.assert_array_equal(features @ table.ravel(), np.tile(table, (3, 1)))


def test_the_repr_is_short():
    texts = [repr(Algorithm(update).start(OLD.logits).update) for update in UPDATES]
    assert repr(KernelPG(0.5, FEATURES["five"])) == "KernelPG(step_size=0.5, features=[3, 4, 5])"
    assert repr(KernelPG(0.5, kernel=blended_kernel(SHAPE, 0.5))) == "KernelPG(step_size=0.5, kernel=[3, 4, 3, 4])"
    assert repr(SharedNaturalPG(0.5, FEATURES["five"])) == "SharedNaturalPG(step_size=0.5, features=[3, 4, 5])"
    assert repr(Shared(VanillaPG(0.5), IDENTITY)) == "Shared(update=VanillaPG(step_size=0.5), features=[3, 4, 12])"
    assert max(map(len, texts)) < 300


TWISTED = blended_kernel(SHAPE, 0.5)
TWISTED[0, 0, 1, 0] += 0.1
NEGATIVE = blended_kernel(SHAPE, 0.5) - 0.6 * blended_kernel(SHAPE, 0.0)
HOLE = np.where(np.arange(4) == 2, np.nan, np.ones((3, 4, 4)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KernelPG(-0.1, IDENTITY), "step_size is -0.1; wanted a finite number ≥ 0"),
        (lambda: SharedNaturalPG(-0.1, IDENTITY), "step_size is -0.1; wanted a finite number ≥ 0"),
        (lambda: KernelPG(0.1), r"KernelPG has neither features nor kernel; wanted one: KernelPG\(0.1, features="),
        (lambda: KernelPG(0.1, IDENTITY, TWISTED), "KernelPG has both features and kernel; wanted one: "),
        (lambda: KernelPG(0.1, REWARDS), r"features have shape \(3, 4\); wanted \[S, A, F\]"),
        (lambda: KernelPG(0.1, np.ones((3, 4, 0))), r"features have shape \(3, 4, 0\); wanted \[S, A, F\]"),
        (lambda: KernelPG(0.1, [[1.0], [2.0, 3.0]]), r"features have ragged rows or no numbers; wanted \[S, A, F\]"),
        (lambda: KernelPG(0.1, IDENTITY * 1j), "features have type complex128; wanted real numbers"),
        (lambda: Shared(Adam(), HOLE), "features have NaN or inf; wanted finite numbers"),
        (
            lambda: SharedNaturalPG(0.1, 0.0 * IDENTITY),
            "features have only zeros: the policy cannot move; wanted actions",
        ),
        (
            lambda: KernelPG(0.1, 0.1 * np.ones((3, 4, 2))),
            "features have no difference between the actions of a state: the policy cannot move; wanted actions",
        ),
        (
            lambda: KernelPG(0.1, kernel=np.ones((3, 4, 3, 4))),
            "kernel has no difference between the actions of a state",
        ),
        (lambda: KernelPG(0.1, kernel=np.eye(12)), r"kernel has shape \(12, 12\); wanted \[S, A, S, A\]"),
        (
            lambda: KernelPG(0.1, kernel=np.ones((3, 4, 4, 3))),
            r"kernel has shape \(3, 4, 4, 3\); wanted \[S, A, S, A\], the two halves alike",
        ),
        (lambda: KernelPG(0.1, kernel=TWISTED), r"kernel is not symmetric \(off by 0.1\); wanted K\[s, a, t, b\] = "),
        (lambda: KernelPG(0.1, kernel=NEGATIVE), "kernel has the eigenvalue -0.1; wanted none below 0, as of ΦΦᵀ"),
        (
            lambda: KernelPG(0.1, np.ones((3, 5, 2)) * np.arange(5)[:, None]).init(OLD.logits),
            r"features have shape \(3, 5, 2\); wanted \[3, 4, F\]: logits are \(3, 4\)",
        ),
        (
            lambda: KernelPG(0.1, kernel=blended_kernel((2, 4), 0.5)).init(OLD.logits),
            r"kernel has shape \(2, 4, 2, 4\); wanted \[3, 4, 3, 4\]: logits are \(3, 4\)",
        ),
        (
            lambda: Shared(Adam(), tied_features((2, 4))).init(OLD.logits),
            r"features have shape \(2, 4, 4\); wanted \[3",
        ),
        (
            lambda: SharedNaturalPG(0.1, tied_features((2, 4))).init(OLD.logits),
            r"features have shape \(2, 4, 4\); wanted \[3, 4, F\]",
        ),
        (
            lambda: Shared(NaturalPG(), IDENTITY),
            r"Shared cannot hold NaturalPG, which needs the table of logits; .*SharedNaturalPG\(step_size, features\)",
        ),
        (lambda: Shared(TRPO(), IDENTITY), "Shared cannot hold TRPO, .*SharedNaturalPG"),
        (lambda: Shared(Restarted(NaturalPG()), IDENTITY), "Shared cannot hold NaturalPG, .*SharedNaturalPG"),
        (lambda: Shared(Shared(Adam(), IDENTITY), IDENTITY), "Shared cannot hold Shared, .*SharedNaturalPG"),
        (lambda: Shared(Adam, IDENTITY), r"update is <class .*; wanted VanillaPG, Momentum or Adam: Shared\(Adam"),
        (lambda: Shared(0.1, IDENTITY), r"update is 0.1; wanted VanillaPG, Momentum or Adam: Shared\(Adam\(0.01\)"),
        (lambda: blended_kernel(SHAPE, 1.5), r"share is 1.5; wanted a finite number in \[0, 1\]"),
        (lambda: random_features(jax.random.key(0), SHAPE, 0), "rank is 0; wanted a whole number ≥ 1"),
        (lambda: tied_features((3,)), r"shape is \(3,\); wanted \(S, A\), as problem.shape"),
        (lambda: tied_features((3, 0)), "A is 0; wanted a whole number ≥ 1"),
        (lambda: tied_over_time(0, 3, 4), "horizon is 0; wanted a whole number ≥ 1"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
