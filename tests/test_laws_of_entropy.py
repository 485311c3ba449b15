"""The law R = −a exp(H) + b on training curves: fits, intervals, rivals, remarks, files, and what is refused."""

import json
import re

import numpy as np
import pandas
import pytest
from scipy import optimize, signal, stats

from softmaxdyn.errors import InputError
from softmaxdyn.laws import (
    EXPONENTIAL,
    FORMS,
    LINEAR,
    POWER,
    QUADRATIC,
    block_length,
    check_curve,
    compare,
    fit,
    noise,
    read_runs,
    resample,
)
from softmaxdyn.laws.rivals import DETECTABLE

A, B = 0.2, 1.0


def falling(rows, low=0.05, high=1.2):
    """An entropy that falls from `high` to near `low`."""
    return low + (high - low) * np.exp(-4.0 * np.arange(rows) / rows)


def curve(rows=236, size=0.01, seed=0, **ends):
    """Entropy that falls and rewards on the law, with white noise."""
    entropy = falling(rows, **ends)
    return entropy, B - A * np.exp(entropy) + size * np.random.default_rng(seed).standard_normal(rows)


def autoregressive(random, rows, correlation, count=1):
    """AR(1) series of variance 1/(1 − ρ²), stationary."""
    shocks = random.standard_normal((count, rows + 300))
    return signal.lfilter([1.0], [1.0, -correlation], shocks, axis=1)[:, 300:]


# the fits, against other libraries


@pytest.mark.parametrize(
    ("form", "power", "of"), [(EXPONENTIAL, 1, np.exp), (LINEAR, 1, np.array), (QUADRATIC, 2, np.array)]
)
def test_forms_that_are_linear_in_their_coefficients_are_numpys_polyfit(form, power, of):
    entropy, reward = curve()
    found = fit(entropy, reward, form=form, replicates=100)
    expected = np.polyfit(of(entropy), reward, power)[::-1]  # b, −a, −c
    got = [found.coefficients["b"], *(-found.coefficients[symbol] for symbol in "ac"[:power])]
    np.testing.assert_allclose(got, expected, rtol=1e-11)
    assert found.ceiling == pytest.approx(found.predict([0.0])[0], rel=1e-12)


def test_the_power_form_is_scipys_curve_fit():
    entropy, reward = curve()
    found = fit(entropy, reward, form=POWER, replicates=100)
    expected, covariance = optimize.curve_fit(lambda h, a, b, c: b - a * h**c, entropy, reward, p0=(0.3, 0.8, 1.0))
    np.testing.assert_allclose(found.vector, expected, rtol=1e-5)  # both stop within √ε of the optimum
    assert covariance.shape == (3, 3)


@pytest.mark.parametrize(("low", "high"), [(0.1, 1.2), (0.15, 6.4), (3.0, 3.01), (600.0, 690.0)])
def test_the_law_is_recovered_at_any_size_of_entropy(low, high):
    entropy = np.linspace(high, low, 50)
    a = 0.2 * np.exp(-high)
    found = fit(entropy, 1.0 - a * np.exp(entropy), replicates=100)
    spread = 1.0 - np.exp(low - high)
    assert found.coefficients["a"] == pytest.approx(a, rel=1e-12 / spread)
    assert found.coefficients["b"] == pytest.approx(1.0, rel=1e-12 / spread)
    assert found.ceiling == pytest.approx(1.0 - a, rel=1e-12 / spread)
    assert np.isfinite(found.slope(entropy)).all()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_slopes_and_jacobians_are_those_of_the_prediction(form):
    vector, at, step = np.array([0.3, 0.9, 1.7])[: len(form.symbols)], np.array([0.2, 0.7, 1.9]), 1e-6
    slope = (form.predict(vector, at + step) - form.predict(vector, at - step)) / (2 * step)
    np.testing.assert_allclose(form.slope(vector, at), slope, rtol=1e-8)
    for place, move in enumerate(step * np.eye(len(vector))):
        column = (form.predict(vector + move, at) - form.predict(vector - move, at)) / (2 * step)
        np.testing.assert_allclose(form.jacobian(vector, at)[:, place], column, rtol=1e-8)


def test_the_slope_of_the_law_is_minus_a_exp_h():
    found = fit(*curve(), replicates=100)
    np.testing.assert_array_equal(found.slope([0.0, 1.0]), -found.coefficients["a"] * np.exp([0.0, 1.0]))


def test_the_fit_follows_an_affine_change_of_the_reward():
    entropy, reward = curve()
    one, other = fit(entropy, reward), fit(entropy, 100.0 * reward - 7.0)
    assert other.coefficients["a"] == pytest.approx(100.0 * one.coefficients["a"], rel=1e-11)
    np.testing.assert_allclose(other.intervals["ceiling"], 100.0 * np.array(one.intervals["ceiling"]) - 7.0, rtol=1e-9)
    assert other.r_squared == pytest.approx(one.r_squared, rel=1e-11)


# intervals


def test_the_same_seed_gives_the_same_bits():
    one, again, other = (fit(*curve(), seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.replicates, again.replicates)
    assert one.intervals == again.intervals != other.intervals


def test_intervals_of_white_noise_are_those_of_ordinary_least_squares():
    entropy, reward = curve(rows=400)
    line = stats.linregress(-np.exp(entropy), reward)
    wide = stats.t.ppf(0.975, 398)
    found = fit(entropy, reward, replicates=20_000, block=1)
    half = np.diff(found.intervals["a"])[0] / 2
    # half a width of 20,000 draws is known to 1 %; ρ̂ and its correction move it by a few times 1/√400
    assert half == pytest.approx(wide * line.stderr, rel=0.12)
    low, high = found.band([0.0])
    assert (low[0], high[0]) == pytest.approx(found.intervals["ceiling"], rel=1e-9)


def test_a_higher_level_has_a_wider_interval():
    low, high = (np.diff(fit(*curve(), level=level).intervals["a"])[0] for level in (0.5, 0.95))
    assert high / low == pytest.approx(stats.norm.ppf(0.975) / stats.norm.ppf(0.75), rel=0.1)


@pytest.mark.parametrize("correlation", [0.3, 0.6, 0.8])
def test_the_block_length_of_an_autoregression_is_that_of_the_formula(correlation):
    """R_k = ρ^k: G = 2ρ/(1 − ρ)², and the window at zero (1 + ρ)/(1 − ρ), in units of R_0."""
    rows = 200_000
    (series,) = autoregressive(np.random.default_rng(3), rows, correlation)
    expected = (6.0 * correlation**2 / (1.0 - correlation**2) ** 2 * rows) ** (1 / 3)
    assert block_length(series) == pytest.approx(expected, rel=0.1)


def test_noise_finds_the_autoregression_and_what_its_rows_are_worth():
    (series,) = autoregressive(np.random.default_rng(4), 100_000, 0.6)
    found = noise(series)
    assert found.correlation == pytest.approx(0.6, abs=4 * np.sqrt((1 - 0.36) / 1e5))
    assert found.inflation == pytest.approx(1.6 / 0.4, rel=0.05)


def test_resampled_noise_has_the_variance_and_the_correlation_of_the_noise():
    (series,) = autoregressive(np.random.default_rng(5), 2000, 0.6)
    drawn = resample(noise(series), 2000, 200, np.random.default_rng(6))
    assert drawn.shape == (200, 2000)
    assert drawn.var() == pytest.approx(series.var(), rel=0.03)
    assert np.mean(drawn[:, 1:] * drawn[:, :-1]) / drawn.var() == pytest.approx(0.6, abs=0.03)


def test_intervals_cover_the_truth_where_rows_are_autocorrelated():
    """150 curves of 100 rows, ρ = 0.6: at 95 % the block bootstrap covers; least squares as of white noise does not.

    92 % were measured on 1000 others (94 % on 200 rows); √(0.92 · 0.08/150) = 2.2 %, and 0.855 is three below.
    """
    entropy, count = falling(100), 150
    truth = B - A * np.exp(entropy)
    covered = naive = 0
    for wobble in 0.03 * autoregressive(np.random.default_rng(7), 100, 0.6, count):
        low, high = fit(entropy, truth + wobble, replicates=400).intervals["ceiling"]
        covered += low <= B - A <= high
        line = stats.linregress(1.0 - np.exp(entropy), truth + wobble)  # its intercept is b − a
        naive += abs(line.intercept - (B - A)) <= stats.t.ppf(0.975, 98) * line.intercept_stderr
    assert covered / count >= 0.855
    assert naive / count < 0.8


# rivals


def test_36_of_236_steps_predict_the_other_200_and_the_last_half_the_start():
    entropy, reward = curve()
    found = compare(entropy, reward, replicates=100)
    for form, degree, of in ((EXPONENTIAL, 1, np.exp), (LINEAR, 1, np.array), (QUADRATIC, 2, np.array)):
        rival = found.rivals[form.name]
        assert [rival.forward[:2], rival.backward[:2]] == [(36, 200), (118, 118)]
        for held, seen, unseen in (
            (rival.forward, slice(36), slice(36, None)),
            (rival.backward, slice(118, None), slice(118)),
        ):
            miss = np.polyval(np.polyfit(of(entropy[seen]), reward[seen], degree), of(entropy[unseen])) - reward[unseen]
            assert held.error == pytest.approx(np.sqrt(np.mean(miss**2)), rel=1e-6)
            assert held.bias == pytest.approx(miss.mean(), rel=1e-6)


def test_aic_is_that_of_gaussian_residuals():
    entropy, reward = curve()
    for rival in compare(entropy, reward, replicates=100).rivals.values():
        miss = reward - rival.fit.predict(entropy)
        likelihood = stats.norm.logpdf(miss, scale=miss.std()).sum()  # the mean of the residuals is 0
        expected = 2 * (len(rival.fit.vector) + 1) - 2 * likelihood - len(miss) * (1 + np.log(2 * np.pi))
        assert rival.aic == pytest.approx(expected, abs=1e-6)
        assert rival.fit.r_squared == pytest.approx(1 - miss.var() / reward.var(), abs=1e-9)


@pytest.mark.parametrize("name", ["exponential", "linear", "power"])
def test_the_form_that_made_the_curve_is_the_best(name):
    form = FORMS[name]
    entropy = falling(300, high=2.5)
    made = form.predict(np.array([0.05, 1.0, 0.4])[: len(form.symbols)], entropy)
    found = compare(entropy, made + 1e-3 * np.random.default_rng(8).standard_normal(300), replicates=100)
    lowest = min(found.rivals, key=lambda other: found.rivals[other].aic)
    # a form that holds the true one has an AIC of at most 2 more, and lower by chance: so ask for no lead
    assert found.rivals[name].aic - found.rivals[lowest].aic < 4.0
    assert found.best in (name, None)
    better = [text for text in found.remarks if "fits better than the law" in text]
    assert bool(better) == (name != "exponential")


def test_a_chi_square_of_7_84_is_what_a_test_at_5_per_cent_finds_in_4_of_5_curves():
    """The curvature of true curves set to the threshold; t-test of exp(H) beside the straight line."""
    entropy, count = falling(100, high=1.0), 600
    truth = B - A * np.exp(entropy)
    gap = truth - np.polyval(np.polyfit(entropy, truth, 1), entropy)
    size = np.sqrt(np.sum(gap**2) / DETECTABLE)
    design = np.stack([np.exp(entropy), entropy, np.ones(100)], 1)
    rewards = truth + size * np.random.default_rng(9).standard_normal((count, 100))
    found, squares, *_ = np.linalg.lstsq(design, rewards.T, rcond=None)
    error = np.sqrt(squares / 97 * np.linalg.inv(design.T @ design)[0, 0])
    power = np.mean(np.abs(found[0] / error) > stats.t.ppf(0.975, 97))
    assert power == pytest.approx(0.8, abs=0.01 + 3 * np.sqrt(0.8 * 0.2 / count))  # 97 degrees of freedom cost 0.01
    exact = compare(entropy, truth + size * _unit_noise(entropy), replicates=100)
    assert exact.curvature * 100 / exact.law.independent_rows == pytest.approx(DETECTABLE, rel=1e-6)
    assert exact.difference == pytest.approx(np.abs(gap).max(), rel=1e-6)


def _unit_noise(entropy):
    """Noise of mean square 1 that moves no fit of exp(H)."""
    random = np.random.default_rng(10).standard_normal(len(entropy))
    design = np.stack([np.exp(entropy), np.ones_like(entropy)], 1)
    left = random - design @ np.linalg.lstsq(design, random, rcond=None)[0]
    return left / np.sqrt(np.mean(left**2))


def test_only_the_forms_asked_for_and_the_law_are_compared():
    found = compare(*curve(), forms=[LINEAR], replicates=100)
    assert list(found.rivals) == ["exponential", "linear"]
    assert compare(*curve(), forms=[], replicates=100).best is None


def test_with_4_rows_none_are_held_out():
    found = compare([4.0, 3.0, 2.0, 1.0], [0.1, 0.3, 0.4, 0.6], replicates=100)
    assert (found.rivals["power"].forward, found.rivals["power"].backward) == (None, None)


def test_a_start_of_constant_entropy_still_predicts():
    entropy, reward = curve(rows=40)
    entropy[:6] = entropy[0]
    found = compare(entropy, reward, replicates=100)
    for rival in found.rivals.values():  # the mean of the first 6 rewards is the best that they know
        miss = reward[:6].mean() - reward[6:]
        assert rival.forward.error == pytest.approx(np.sqrt(np.mean(miss**2)), rel=1e-6)


# remarks


def remarks(entropy, reward):
    return " | ".join(compare(entropy, reward, replicates=400).remarks)


def test_a_clean_curve_has_no_remark():
    assert remarks(*curve()) == ""


NOISE = np.random.default_rng(11).standard_normal(200)


@pytest.mark.parametrize(
    ("entropy", "reward", "remark"),
    [
        (falling(200)[::-1], 1.0 - 0.1 * falling(200) + 0.01 * NOISE, "entropy rises \\(Spearman's ρ .* is 1.00\\)"),
        (0.5 + 0.1 * np.sin(np.arange(200)), 0.5 + 0.01 * NOISE, "no clear trend .* of the steps raise it\\)"),
        (1.0 + 0.1 * NOISE, 0.5 + 0.01 * np.arange(200), "jumps from row to row \\(\\d+% of its variance\\)"),
        (falling(200), 0.5 + 0.01 * NOISE, "the interval of a holds 0: reward does not follow entropy"),
        (falling(200), 0.1 * falling(200) + 0.01 * NOISE, "a is below 0: reward falls as entropy falls"),
        (
            falling(200, low=0.6, high=0.7),
            2.0 - falling(200),
            "extrapolated from H ≥ 0.602 nats, further than H ranges",
        ),
        (falling(200, low=0.5), 1.1 - 0.3 * falling(200, low=0.5), "the ceiling 1.\\d+ is above 1, the most that"),
        (falling(200), 1.0 - 0.3 * falling(200) + np.cumsum(0.02 * NOISE), "worth \\d.\\d independent ones; trust no"),
        (
            falling(200, high=0.2),
            0.9 - falling(200, high=0.2) + 0.05 * NOISE,
            "too small to tell the law from a straight",
        ),
        (falling(200), 1.0 - 0.3 * falling(200) + 0.01 * NOISE, "fits better than the law \\(AIC lower by"),
        ([*falling(99), np.nan], [None, *(1.0 - np.exp(falling(99)))], "^2 of 100 rows lack entropy or reward and"),
    ],
)
def test_what_a_reader_should_doubt_is_said(entropy, reward, remark):
    assert re.search(remark, remarks(entropy, reward))


def test_an_exponent_at_the_end_of_its_range_is_remarked():
    entropy = falling(100)
    assert "exponent c is at an end of [0.05, 20]" in " ".join(fit(entropy, 0.5 - np.log(entropy), form=POWER).remarks)


# what is refused

GOOD = [0.9, 0.7, 0.5, 0.4, 0.3]


@pytest.mark.parametrize(
    ("entropy", "reward", "message"),
    [
        (GOOD[:4], GOOD, "entropy has 4 values and reward has 5; wanted one of each a row"),
        ([*GOOD[:4], "high"], GOOD, "entropy is 'high' in row 4 (the first is 0); wanted a number"),
        (GOOD[:3], GOOD[:3], "3 of 3 rows have both entropy and reward; wanted at least 4"),
        (GOOD, [np.nan, None, *GOOD[:3]], "3 of 5 rows have both entropy and reward; wanted at least 4"),
        (GOOD, [*GOOD[:4], np.inf], "reward is inf in row 4 (the first is 0); wanted a finite number"),
        (
            [*GOOD[:4], -np.inf],
            GOOD,
            "entropy is -inf in row 4 (the first is 0); wanted a mean entropy a token in nats",
        ),
        ([-0.3, *GOOD[1:]], GOOD, "entropy is -0.3 in row 0 (the first is 0); wanted a mean entropy a token in nats"),
        ([701.0, *GOOD[1:]], GOOD, "entropy is 701 in row 0 (the first is 0); wanted a mean entropy a token in nats"),
        ([0.5] * 5, GOOD, "entropy is 0.5 in every row; wanted one that changes"),
        (GOOD, [0.0] * 5, "reward is 0 in every row; wanted one that changes"),
    ],
)
def test_curves_that_cannot_be_fitted_are_refused_in_one_line(entropy, reward, message):
    for function in (check_curve, fit, compare):
        with pytest.raises(InputError, match=re.escape(message)):
            function(entropy, reward)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"level": 1.5}, "level is 1.5; wanted a finite number in (0, 1]"),
        ({"replicates": 10}, "replicates is 10; wanted a whole number ≥ 100"),
        ({"seed": -1}, "seed is -1; wanted a whole number ≥ 0"),
        ({"block": 0}, "block is 0; wanted a whole number ≥ 1"),
    ],
)
def test_options_out_of_range_are_refused(option, message):
    with pytest.raises(InputError, match=re.escape(message)):
        fit(GOOD, GOOD[::-1], **option)


def test_shares_out_of_range_are_refused():
    for name in ("forward", "backward"):
        with pytest.raises(InputError, match=re.escape(f"{name} is 15; wanted a finite number in (0, 1]")):
            compare(GOOD, GOOD[::-1], **{name: 15})


# files

TABLE = pandas.DataFrame({"step": [3, 1, 2, 4], "entropy": GOOD[:4], "reward": [0.1, 0.2, None, 0.4]})


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_every_format_gives_the_same_curve_in_order_of_its_steps(tmp_path, suffix):
    path = tmp_path / f"curve.{suffix}"
    {
        "csv": lambda: TABLE.to_csv(path, index=False),
        "tsv": lambda: TABLE.to_csv(path, sep="\t", index=False),
        "jsonl": lambda: TABLE.to_json(path, orient="records", lines=True),
        "json": lambda: path.write_text(json.dumps({"log_history": json.loads(TABLE.to_json(orient="records"))})),
        "parquet": lambda: TABLE.to_parquet(path),
    }[suffix]()
    (run,), columns = read_runs(path)
    assert columns == {"entropy": "entropy", "reward": "reward", "step": "step"}
    assert (run.name, run.step.tolist(), run.entropy.tolist()) == ("curve", [1, 2, 3, 4], [0.7, 0.5, 0.9, 0.4])
    np.testing.assert_array_equal(run.reward, [0.2, np.nan, 0.1, 0.4])


@pytest.mark.parametrize(
    ("header", "entropy", "reward"),
    [
        ("actor/entropy,critic/rewards/mean,critic/score/mean", "actor/entropy", "critic/score/mean"),
        ("actor/entropy_loss,critic/rewards/mean,x", "actor/entropy_loss", "critic/rewards/mean"),
        ("Entropy,val-core/math/acc/mean@8,x", "Entropy", "val-core/math/acc/mean@8"),
        ("mean_token_entropy,eval_accuracy,x", "mean_token_entropy", "eval_accuracy"),
    ],
)
def test_columns_are_known_by_the_names_of_trainers(tmp_path, header, entropy, reward):
    (tmp_path / "log.csv").write_text(f"{header}\n0.5,0.1,0.2\n0.4,0.2,0.3\n")
    columns = read_runs(tmp_path / "log.csv").columns
    assert (columns["entropy"], columns["reward"]) == (entropy, reward)


def test_runs_are_told_apart_by_one_column_or_several_and_cut_by_steps(tmp_path):
    rows = [f"{task},{seed},{step},{0.5 - step / 100},{step}" for task in "ab" for seed in (0, 1) for step in range(9)]
    (tmp_path / "log.csv").write_text("\n".join(["task,seed,step,entropy,reward", *rows]))
    read = read_runs(tmp_path / "log.csv", run="task+seed", first=2, last=5)
    assert [run.name for run in read.runs] == ["a/0", "a/1", "b/0", "b/1"]
    assert all(run.step.tolist() == [2, 3, 4, 5] == run.reward.tolist() for run in read.runs)
    (one, _), columns = read_runs(tmp_path / "log.csv")
    assert (columns["run"], one.remarks) == (
        "seed",
        ("9 of 18 rows repeat a step; if the file holds several runs, pass --run COLUMN",),
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            "step,loss,reward\n1,2,3\n",
            "has no column that looks like entropy; name it: --entropy COLUMN (it has step, ",
        ),
        ("a.csv", "entropy,rewrd\n1,2\n", "looks like reward; did you mean 'rewrd'? then pass --reward rewrd (it has"),
        (
            "a.csv",
            "entropy,x_reward,y_reward\n1,2,3\n",
            "several columns for the reward: x_reward, y_reward; name one: --reward",
        ),
        ("a.csv", "entropy,reward\n0.5,0.1\n0.4,bad\n", "reward is 'bad' in row 1 (the first is 0); wanted a number"),
        (
            "a.csv",
            "entropy,reward\n0.5,0.1,3\n0.4,0.2,4\n",
            "more cells in a row than names in its header, which has 2",
        ),
        ("a.csv", "entropy,reward\n", "has no rows"),
        ("a.csv", "", "is empty"),
        ("a.csv", "entropy,reward\n1,2\n1,2,3\n", "is damaged, cut short or not what its name says"),
        ("a.jsonl", '{"entropy": 1\n', "is damaged, cut short or not what its name says"),
        ("a.json", '{"entropy": 1}', "wanted rows that are objects such as"),
        ("a.parquet", "no", "is damaged, cut short or not what its name says"),
        ("a.txt", "entropy,reward\n", "unknown type of file '.txt'"),
    ],
)
def test_files_that_cannot_be_read_are_refused_in_one_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_runs(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert "\n" not in str(caught.value)


def test_names_and_places_that_are_not_there_are_refused(tmp_path):
    TABLE.to_csv(tmp_path / "a.csv", index=False)
    for options, message in (
        ({"entropy": "entropi"}, "unknown column 'entropi'; did you mean 'entropy'?"),
        ({"run": "step+seed"}, "unknown column 'seed'"),
        ({"first": 9}, "has no row with a step in [9, inf]; its steps are 1 … 4"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            read_runs(tmp_path / "a.csv", **options)
    with pytest.raises(InputError, match="b.csv: no such file"):
        read_runs(tmp_path / "b.csv")
    with pytest.raises(InputError, match="is a folder; wanted a .csv"):
        read_runs(tmp_path)
