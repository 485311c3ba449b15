"""Aggregations: recorded losses as weights, and parts that add up to the whole."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmaxdyn import InputError
from softmaxdyn.aggregation import (
    SequenceMeanTokenMean,
    SequenceMeanTokenSum,
    SequenceMeanTokenSumNorm,
    TokenMean,
    TokenSum,
)
from tests.compiled import compiled
from tests.golden import array, cases, padded

MODES = {
    "token-mean": TokenMean,
    "token-sum": TokenSum,
    "seq-mean-token-sum": SequenceMeanTokenSum,
    "seq-mean-token-sum-norm": SequenceMeanTokenSumNorm,
    "seq-mean-token-mean": SequenceMeanTokenMean,
}
NAMES = {"batch_num_tokens": "tokens", "global_batch_size": "sequences", "loss_scale_factor": "length"}
few = settings(max_examples=15)
weigh = compiled(lambda aggregation, mask: aggregation(mask))


@cases("agg_loss")
def test_the_weights_are_the_recorded_gradient_and_give_the_recorded_loss(case):
    i, out = case["inputs"], case["outputs"]
    mask, loss = padded(array(i["loss_mask"])), padded(array(i["loss_mat"]))
    given_ones = {ours: float(i[theirs]) for theirs, ours in NAMES.items() if theirs in i}
    if i["loss_agg_mode"] == "seq-mean-token-sum-norm":
        given_ones.setdefault("length", float(array(i["loss_mat"]).shape[1]))
    weight = weigh(MODES[i["loss_agg_mode"]](**given_ones), mask)
    value = jnp.sum(jnp.where(mask > 0.0, weight * loss, 0.0)) * i.get("dp_size", 1)
    if not mask.any():  # the reference divides 0 by 0, except in token-sum
        assert out["loss"] in ("nan", 0.0)
        assert value == 0.0
        assert jnp.all(weight == 0.0)
        return
    expected = np.sum(loss[mask > 0] * padded(array(out["grad"]))[mask > 0]) if out["loss"] == "nan" else out["loss"]
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(weight, np.where(mask > 0, padded(array(out["grad"])), 0.0), rtol=1e-12)


def ragged(seed, rows=6, columns=4):
    rng = np.random.default_rng(seed)
    mask = np.arange(columns) < rng.integers(0, columns + 1, rows)[:, None]
    mask[0] = True
    return mask.astype(float)


@few
@given(seed=st.integers(0, 2**32 - 1))
def test_each_mode_is_the_sum_or_mean_that_it_is_named_after(seed):
    mask = ragged(seed)
    loss = np.random.default_rng(seed).standard_normal(mask.shape)
    rows = [x[m > 0] for x, m in zip(loss, mask, strict=True) if m.any()]
    expected = {
        "token-mean": np.mean(np.concatenate(rows)),
        "token-sum": np.sum(np.concatenate(rows)),
        "seq-mean-token-sum": np.mean([row.sum() for row in rows]),
        "seq-mean-token-sum-norm": np.mean([row.sum() for row in rows]) / mask.shape[1],
        "seq-mean-token-mean": np.mean([row.mean() for row in rows]),
    }
    for mode, value in expected.items():
        assert np.sum(weigh(MODES[mode](), mask) * loss) == pytest.approx(value, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("mode", MODES)
@few
@given(seed=st.integers(0, 2**32 - 1))
def test_micro_batches_with_the_denominators_of_the_batch_add_up_to_it(mode, seed):
    mask = ragged(seed)
    whole = {"tokens": mask.sum(), "sequences": mask.any(1).sum(dtype=float), "length": float(mask.shape[1])}
    known = {name: whole[name] for name in MODES[mode].__dataclass_fields__}
    parts = [weigh(MODES[mode](**known), mask[rows]) for rows in (slice(0, 3), slice(3, 6))]
    np.testing.assert_allclose(np.concatenate(parts), weigh(MODES[mode](), mask), rtol=1e-14)


def test_micro_batches_with_their_own_denominators_do_not():
    mask = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    parts = np.concatenate([0.5 * weigh(TokenMean(), row[None]) for row in mask])
    np.testing.assert_allclose(parts[:, 0], [1 / 8, 1 / 2])
    np.testing.assert_allclose(weigh(TokenMean(), mask)[:, 0], [1 / 5, 1 / 5])


@pytest.mark.parametrize("mode", MODES)
def test_padding_weighs_nothing_and_a_longer_padding_changes_nothing(mode):
    mask = ragged(3)
    aggregation = MODES[mode](length=4.0) if mode == "seq-mean-token-sum-norm" else MODES[mode]()
    weight = weigh(aggregation, mask)
    assert np.all(np.asarray(weight)[mask == 0.0] == 0.0)
    longer = np.pad(mask, [(0, 2), (0, 3)])
    np.testing.assert_allclose(weigh(aggregation, longer)[:6, :4], weight, rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", MODES)
def test_the_weights_have_the_dtype_of_the_mask(mode, dtype):
    assert weigh(MODES[mode](), jnp.ones((2, 3), dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenMean(0.0), "tokens is 0.0; wanted a finite number > 0"),
        (lambda: SequenceMeanTokenSum(-1.0), "sequences is -1.0; wanted a finite number > 0"),
        (lambda: SequenceMeanTokenMean(0.0), "sequences is 0.0; wanted a finite number > 0"),
        (lambda: SequenceMeanTokenSumNorm(length=0.0), "length is 0.0; wanted a finite number > 0"),
    ],
)
def test_a_denominator_that_is_not_positive_is_an_error(make, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        make()
