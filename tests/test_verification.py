"""`verify`: every statement holds, every check can fail, and the second roads agree with arithmetic of their own."""

import json

import jax
import mpmath
import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import roots_legendre

from softmaxdyn import InputError, cli, theory, verification
from softmaxdyn.verification import cases, counterexamples, evidence, verdicts, wide
from softmaxdyn.verification.checks import ONE_STEP
from softmaxdyn.verification.closed_forms import NATURAL
from softmaxdyn.verification.counterexamples import FIXED, RANDOM, fixed_evidence

CHECKS = ONE_STEP + NATURAL + FIXED + RANDOM


@pytest.fixture(scope="module", autouse=True)
def one_width():
    """All cases in one table, so that one program compiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "SHARES", {100: 1.0})
        patch.setattr(cases, "SIZES", {100: (2, 3, 30, 100)})
        yield


@pytest.fixture(scope="module")
def seen():
    ((number, rows, width),) = cases.plan(verification.FEWEST)
    return evidence.gather(cases.draw(0, number, rows, width, "float64"))


@pytest.fixture(scope="module")
def fixed(seen):
    return fixed_evidence(*seen.block.logits.shape, "float64")


@pytest.fixture(scope="module")
def all_verdicts():
    reported, progress = [], []
    found = verification.verify(seed=0, cases=verification.FEWEST, report=reported.append, progress=progress.append)
    assert found == reported
    assert progress == [1, 2]
    return found


def judged(check, seen, fixed):
    return verdicts.judge(check, [check.sample(fixed if check in FIXED else seen)], "float64")


def test_every_statement_holds_in_both_dtypes(all_verdicts):
    assert [(v.label, v.dtype, v.worst) for v in all_verdicts if not v.holds] == []
    assert [(v.label, v.dtype) for v in all_verdicts] == [(c.label, d) for d in verification.DTYPES for c in CHECKS]


def test_no_statement_is_missing():
    wanted = {f"T{n}" for n in [*range(1, 12), 13, 14, 15]} | {f"C{n}" for n in range(1, 6)}
    assert {check.label for check in CHECKS} == wanted


def test_the_verdicts_depend_on_the_seed_alone(seen, all_verdicts):
    """The second gathering runs alone, the first ran beside another in a thread."""
    again = {check.label + check.measure: judged(check, seen, None) for check in CHECKS if check not in FIXED + RANDOM}
    assert {key: v for key, v in again.items() if v not in all_verdicts} == {}


WRONG = {  # what a wrong formula would say
    "T1: a wrong ninth digit": lambda e: {"entropy_change": e.said.entropy_change * (1 + 1e-9)},
    "T1: Lemma 1 for the exact change": lambda e: {"entropy_change": e.said.entropy_change - e.said.remainder},
    "T2: sign": lambda e: {"remainder": -e.said.remainder},
    "T2: half of the second derivative": lambda e: {"remainder": e.said.second_order * scale(e) ** 2 / 2},
    "T3: sign": lambda e: {"lemma_1": -e.said.lemma_1},
    "T3: one per cent": lambda e: {"lemma_1": 1.01 * e.said.lemma_1},
    "T4: the minus sign of section 3.2": lambda e: {"proposition_1": -e.said.proposition_1},
    "T4: no baseline": lambda e: {"proposition_1": e.policy.prob * e.block.reward},
    "T5: not centred": lambda e: {"theorem_1": e.said.theorem_1_raw},
    "T5: centred after all": lambda e: {"theorem_1_raw": e.said.theorem_1},
    "T6: twice": lambda e: {"theorem_2": 2 * e.said.theorem_2},
    "T7: without S̄": lambda e: {"sample_effect": -e.policy.prob * e.policy.u},
    "T8: nothing moves": lambda e: {"single_logit_entropy": e.said.entropy},
    "T9: without the variance": lambda e: {"second_order": e.said.second_order + variance(e)},
    "T10: half the constant": lambda e: {"remainder_bound": e.said.remainder_bound / 2},
    "T10: 1/8 for every K": lambda e: {"remainder_bound": wide.oscillation(e.policy, e.block.delta) ** 2 / 8},
    "T11: three times the step": lambda e: {"certified_step_size": 3 * e.said.certified_step_size},
    "T14: sign": lambda e: {"natural_entropy_rate": -e.said.natural_entropy_rate},
    "T15: the entropy of the start": lambda e: {"binary_reward_entropy": e.said.entropy},
    "C1: sampled actions": lambda e: {"sample_effect": -e.said.sample_effect},
    "C1: vanilla PG": lambda e: {"theorem_1": -e.said.theorem_1},
    "C2: natural PG": lambda e: {"theorem_2": -e.said.theorem_2},
    "C3: no difference": lambda e: {"theorem_1_raw": e.said.theorem_1},
    "C4: the estimate itself": lambda e: {"sample_effect": -e.policy.prob * e.policy.u * (1 - e.policy.prob)},
}


def scale(e):
    return (e.block.delta * e.block.direction).sum(-1) / (e.block.direction**2).sum(-1)


def variance(e):
    return (e.policy.prob * wide.centred(e.policy, e.block.direction) ** 2).sum(-1)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_formula_is_found(wrong, seen, fixed):
    label = wrong.partition(":")[0]
    checks = [check for check in CHECKS if check.label == label]
    one = fixed if checks[0] in FIXED else seen
    mistaken = one._replace(said=one.said._replace(**WRONG[wrong](one)))
    assert not all(judged(check, mistaken, mistaken).holds for check in checks)


def test_a_run_downhill_is_found(seen):
    downhill = evidence.natural_run(seen.block._replace(reward=-seen.block.reward))
    (check,) = (check for check in CHECKS if check.label == "T13")
    assert not judged(check, seen._replace(run=downhill), None).holds


def test_a_law_that_is_the_misprint_is_found(seen, monkeypatch):
    monkeypatch.setattr(counterexamples, "printed_law", counterexamples.return_law)
    (check,) = (check for check in CHECKS if check.label == "C5")
    assert not judged(check, seen, None).holds


def test_a_formula_that_goes_wrong_in_the_package_is_found(seen, monkeypatch):
    monkeypatch.setattr(theory, "lemma_1", lambda logits, delta: -theory.covariance(logits, -delta))
    said = jax.jit(lambda block: evidence.predict.__wrapped__(block).lemma_1)(seen.block)
    (check,) = (check for check in CHECKS if check.label == "T3")
    assert not judged(check, seen._replace(said=seen.said._replace(lemma_1=np.asarray(said))), None).holds


@pytest.mark.parametrize("values", [[0.5, np.nan], [0.5, 1.1], [-0.1], []])
def test_a_number_out_of_range_or_none_at_all_violates(values):
    check = verdicts.Check("T0", "", lambda evidence: None, low=0.0)
    assert not verdicts.judge(check, [verdicts.Sample(np.array(values), len(values))], "float64").holds


def test_the_worst_number_is_the_nearest_to_an_end():
    check = verdicts.Check("T0", "", lambda evidence: None, "order", 1.98, 2.02)
    assert verdicts.judge(check, [verdicts.Sample(np.array([1.99, 2.015, 2.0]), 3)], "float64").worst == 2.015


@pytest.mark.parametrize("wanted", [1000, 20_000, 20_001, 1_000_000])
def test_the_plan_holds_all_cases_in_one_shape(wanted):
    tables = cases.plan(wanted)
    assert wanted <= sum(rows for _, rows, _ in tables) <= wanted + 2 * len(tables)
    assert len({(rows, width) for _, rows, width in tables}) == len(cases.SHARES)
    assert max(rows for _, rows, _ in tables) <= cases.CHUNK + 1


def test_the_cases_reach_all_corners(seen):
    unmasked = np.isfinite(seen.block.logits)
    prob = np.where(unmasked, seen.policy.prob, 1)
    assert set(unmasked.sum(-1)) == {2, 3, 30, 100}
    assert prob.min() < 1e-298
    assert (np.abs(seen.policy.entropy - np.log(unmasked.sum(-1))) < 1e-15).any()
    size = np.abs(seen.block.delta).max(-1)
    assert size.min() < 1e-11
    assert size.max() > 9


@pytest.mark.parametrize("count", [5, 40])
def test_the_nodes_are_those_of_gauss(count):
    """SciPy's come from eigenvalues; both are good to a few ulp of the interval."""
    nodes, weights = wide.gauss_legendre(count, np.float64)
    wanted_nodes, wanted_weights = roots_legendre(count)
    np.testing.assert_allclose(np.sort(nodes), (1 + wanted_nodes) / 2, rtol=0, atol=4e-16)
    np.testing.assert_allclose(weights[np.argsort(nodes)], wanted_weights / 2, rtol=1e-12)


@pytest.mark.parametrize("size", [1e-12, 1e-3, 1.0, 10.0])
def test_the_path_agrees_with_sixty_digits(size):
    """K = 4, three families of policies; the tolerance is 32 roundings of the wide type."""
    z = np.array([[0, 0, 0, 0], [40, 1, 0, 2], [0, -690, -3, -1]], float)
    delta = size * np.random.default_rng(0).uniform(-1, 1, z.shape)
    path = wide.straight_path(z.astype(np.longdouble), delta.astype(np.longdouble))
    rounding = 32 * float(np.finfo(np.longdouble).eps)
    with mpmath.workdps(60):
        for i in range(len(z)):
            change, remainder = exact(z[i], delta[i])
            assert abs(digits(path.entropy_change[i]) - change) <= rounding * float(path.change_size[i])
            assert abs(digits(path.remainder[i]) - remainder) <= rounding * float(path.remainder_size[i])


def digits(x):
    """An 80-bit number as two of 64 bits, exactly."""
    high = float(x)
    return mpmath.mpf(high) + mpmath.mpf(float(x - high))


def exact(z, delta):
    z, delta = ([mpmath.mpf(float(x)) for x in values] for values in (z, delta))

    def log_probs(logits):
        log_sum = mpmath.log(mpmath.fsum(map(mpmath.exp, logits)))
        return [x - log_sum for x in logits]

    before, after = log_probs(z), log_probs([a + b for a, b in zip(z, delta, strict=True)])
    H, H_after = (-mpmath.fsum(mpmath.exp(x) * x for x in logs) for logs in (before, after))
    mean = mpmath.fsum(mpmath.exp(x) * d for x, d in zip(before, delta, strict=True))
    covariance = mpmath.fsum(mpmath.exp(x) * (x + H) * (d - mean) for x, d in zip(before, delta, strict=True))
    return H_after - H, H_after - H + covariance


def invoke(*arguments):
    return CliRunner().invoke(cli.main, ["verify", *map(str, arguments)])


@pytest.fixture
def canned(monkeypatch):
    """A function that makes `verify` find these verdicts, at once."""

    def use(*found):
        monkeypatch.setattr(verification, "verify", lambda seed, cases, progress: list(found))

    return use


GOOD = verdicts.Verdict("T1", "one thing", "float64", 20000, "error / tolerance", 0.25, -np.inf, 1.0)
BAD = verdicts.Verdict("T3", "another", "float32", 17000, "order", np.nan, 1.98, 2.02)


def test_the_command_prints_a_line_a_statement_and_a_summary(canned):
    canned(GOOD)
    done = invoke()
    assert done.exit_code == 0
    line = next(line for line in done.stdout.splitlines() if line.startswith("T1"))
    assert " ".join(line.split()) == "T1 float64 one thing 20,000 error / tolerance 0.25 ≤ 1 holds"
    assert done.stdout.endswith("1 statements on 20,000 policies a dtype (seed 0): none is violated\n")


def test_the_command_fails_when_a_statement_is_violated(canned):
    canned(GOOD, BAD)
    done = invoke("--seed", 3)
    assert done.exit_code == 1
    assert "order nan 1.98 … 2.02 VIOLATED" in " ".join(done.stdout.split())
    assert "(seed 3): 1 VIOLATED: T3 float32" in done.stdout


def test_the_verdicts_are_written_as_json(canned, tmp_path):
    canned(GOOD, BAD)
    assert invoke("--json", tmp_path / "verdicts.json", "--cases", 5000).exit_code == 1
    written = json.loads((tmp_path / "verdicts.json").read_text("utf-8"))
    assert (written["cases"], written["violated"], len(written["verdicts"])) == (5000, 1, 2)
    assert written["verdicts"][0] | {"statement": ""} == {
        **GOOD._asdict(),
        "statement": "",
        "low": None,
        "holds": True,
    }
    assert written["verdicts"][1]["worst"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["verdicts.json"]


def test_nothing_is_written_when_verify_breaks_off(monkeypatch, tmp_path):
    def broken(*_, **__):
        raise MemoryError("too many")

    monkeypatch.setattr(verification, "verify", broken)
    assert invoke("--json", tmp_path / "verdicts.json").exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", 10], "softmaxdyn: --cases is 10; wanted a whole number ≥ 1000\n"),
        (["--seed", -1], "softmaxdyn: --seed is -1; wanted a whole number ≥ 0\n"),
        (
            ["--json", "no/such/folder/x.json"],
            "softmaxdyn: --json is 'no/such/folder/x.json'; wanted a file in a folder",
        ),
        (["--cases", "many"], "softmaxdyn: Invalid value for '--cases'"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments, message):
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"seed": -1}, "seed is -1; wanted a whole number ≥ 0"), ({"cases": 999}, "cases is 999; wanted .* ≥ 1000")],
)
def test_verify_refuses_what_it_cannot_judge(arguments, message):
    with pytest.raises(InputError, match=message):
        verification.verify(**arguments)


def test_verify_leaves_the_precision_of_jax_alone():
    jax.config.update("jax_enable_x64", False)
    try:
        with verification._double_precision():
            assert jax.numpy.zeros(1).dtype == np.float64
        assert jax.numpy.zeros(1).dtype == np.float32
    finally:
        jax.config.update("jax_enable_x64", True)
