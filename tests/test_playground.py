"""The numbers of the playground, under node, against the package; its links, its Python, and `softmaxdyn play`.

All cases go through one process of node: they are written by the package, evaluated, and compared test by test.
"""

import contextlib
import functools
import html
import io
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import softmaxdyn as sd
from softmaxdyn import InputError, cli
from softmaxdyn.change import decompose, prob_change
from softmaxdyn.cli import play
from softmaxdyn.estimators.protocol import Batch
from softmaxdyn.policy import centred, softmax
from softmaxdyn.simulation import pushed
from softmaxdyn.tokens import gradient, under
from softmaxdyn.updates.tabular import natural_gradient
from tests.oracles import FLOOR, campaign

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "softmaxdyn" / "playground"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed (Debian: apt-get install nodejs)")
EPS = np.finfo(float).eps
RUNNER = """
const [Core, State, Words] = ["core", "state", "words"].map((name) => require(`${process.argv[1]}/${name}.js`));
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
const formulas = ({ z, d, A, eta }) => {
  const policy = Core.softmax(z);
  return {
    ...Core.decompose(policy, d), prob: policy.prob, log_prob: policy.logProb, entropy: policy.entropy,
    after: Core.stepped(policy, d).prob, effects: Core.sampleEffect(policy),
    lemma_1: Core.lemma1(policy, d), proposition_1: Core.proposition1(policy, A, eta),
    theorem_1: Core.theorem1(policy, A, eta), theorem_2: Core.theorem2(policy, A, eta),
    bound: Core.remainderBound(d), certified: Core.certifiedStepSize(policy, d),
  };
};
const pushes = ({ old, now, rewards, actions, size, number, methods }) => methods.map(({ name, mode, numbers }) => {
  const [before, policy] = [old, now].map((z) => Core.softmax(z));
  const tokens = name === "pg" ? Core.exactTokens(before, rewards)
    : mode === "sampled" ? Core.sampledTokens(before, rewards, actions, size) : Core.populationTokens(before, rewards);
  const key = mode === "sampled" ? [0, number] : null;
  const parts = Core.METHODS[name].parts(numbers, old);
  const { gradient, push } = Core.gradient(parts, key, Core.under(tokens, policy), policy);
  return { gradient, selected: push.selected, natural: Core.natural(gradient, policy, 1) };
});
const links = (fragment) => {
  const { state, ignored } = State.parse(fragment);
  const again = State.parse(State.write(state));
  const [row] = Core.simulate(State.runOf(state), 1);
  const flat = [row.policy.entropy, row.change, row.covariance, row.remainder, row.kl, row.bound, row.expectedReturn];
  const finite = [...flat, ...row.delta, ...row.after.prob].every(Number.isFinite);
  return { state, ignored, finite, same: JSON.stringify(again.state) === JSON.stringify(state), again: again.ignored };
};
const runs = (fragment) => {
  const { state, ignored } = State.parse(fragment);
  const rows = Core.simulate(State.runOf(state), state.at + 1).map((row) => ({
    expected_return: row.expectedReturn, entropy: row.policy.entropy, entropy_change: row.change,
    lemma_1: -row.covariance, theorem_1: row.theorem1, theorem_2: row.theorem2, remainder: row.remainder,
    bound: row.bound, kl: row.kl, selected: row.selected,
  }));
  return { python: State.python(state), rows, ignored };
};
const numbersRead = (text) => State.readNumber(text, [-10, 10]);
const fits = ([h, j]) => Core.fitLaw(h, j);
const does = { formulas, pushes, links, runs, numbersRead, fits };
const answers = Object.fromEntries(Object.entries(cases).map(([name, list]) => [name, list.map(does[name])]));
process.stdout.write(JSON.stringify({ ...answers, words: Words, defaults: State.NUMBERS }));
"""
METHODS = {  # with other numbers than the page's defaults, so that every method acts on every case
    "pg": {},
    "grpo": {"low": 0.1, "high": 0.15},
    "entropy_bonus": {"coefficient": 0.3},
    "reference_kl": {"coefficient": 0.7},
    "clip_cov": {"fraction": 0.25, "low": -0.4, "high": 2.0},
    "kl_cov": {"fraction": 0.3, "coefficient": 0.6},
    "steer": {"smallest": 0.4},
}
CHOSEN = [(name, mode) for name in METHODS for mode in ("exact", "sampled") if (name, mode) != ("pg", "sampled")]
ARMS, GROUPS, SIZE = 4, 2, 5
RUNS = [
    "#at=4",
    "#method=reference_kl&at=3&ref=0,0.5,0&n.coefficient=0.4",
    "#method=clip_cov&mode=sampled&inner=3&at=3&seed=4294967295&z=0,1,2&n.low=-1",
]
NAMED = {  # the link, and the algorithm of its Python
    "#method=npg&eta=2": lambda: sd.Algorithm(sd.NaturalPG(2.0)),
    "#method=grpo&mode=sampled&groups=3&size=4&seed=5&at=4": lambda: sd.build(
        "grpo", step_size=0.4, groups=3, group_size=4
    ),
    "#method=grpo&eta=3&n.low=0.05": lambda: sd.build("grpo", step_size=3.0, mode="exact", low=0.05),
    "#method=entropy_bonus&n.coefficient=-1": lambda: sd.build(
        "entropy_bonus", step_size=0.4, mode="exact", coefficient=-1.0
    ),
    "#method=kl_cov&n.coefficient=1e-7&eta=1e-7": lambda: sd.build(
        "kl_cov", step_size=1e-7, mode="exact", fraction=0.2, coefficient=1e-7
    ),
    "#method=steer&mode=sampled&n.smallest=1": lambda: sd.build("steer", step_size=0.4, groups=4, smallest=1.0),
}
NONSENSE = [
    *(
        "",
        "#",
        "#####",
        "#&&&===",
        "#%%%",
        "#%E0%A4%A",
        "#z",
        "#z=",
        "#z=,",
        "#z=NaN,NaN",
        "#z=1",
        "#z=1,2,3,4,5,6,7,8,9",
    ),
    *("#z=1e999,0,0", "#z=Infinity,0,0", "#z=-700,700,0", "#z=0,0,0&r=1", "#r=1e7,0,0", "#r=1,0,0,0,0,0,0,0", "#eta="),
    *("#eta=NaN", "#eta=-1", "#eta=1e6&method=npg", "#eta=1e6&r=1e6,-1e6,0", "#eta=0x10", "#eta=1,5", "#inner=2.5"),
    *("#inner=16&method=steer&mode=sampled&groups=2", "#at=1e99", "#at=-1", "#seed=4294967296", "#size=1", "#groups=0"),
    *("#method=constructor", "#method=__proto__", "#__proto__=1", "#constructor=1", "#numbers=3", "#n.low=1", "#n.=1"),
    *("#method=clip_cov&n.low=5&n.high=1", "#method=kl_cov&n.fraction=0.9", "#method=steer&n.smallest=0", "#lang=fr"),
    *(
        "#n.coefficient=2&method=kl_cov",
        "#method=reference_kl&ref=1,2",
        "#z=0,0&ref=1,2,3",
        "#region=arm9",
        "#theme=<b>",
    ),
    *("#z=0,0,0&z=1,1,1", "#" + "z=0,0&" * 2000, "#" + "x" * 10_000, "#at=10000&inner=1", "#z=−1,−2,0"),
]
TYPED = {
    " 1.5 ": 1.5,
    "−2": -2.0,
    "1e-3": 1e-3,
    "+.5": 0.5,
    "5.": 5.0,
    "1E1": 10.0,
    "1e−3": 1e-3,
    "-0": 0.0,
    **dict.fromkeys(
        ("", " ", "NaN", "Infinity", "1e400", "11", "0x1", "1,5", "1 2", "--1", "e5", ".", "1e", "null"), None
    ),
}


def written(x):
    """Arrays as lists, for JSON."""
    return {key: np.asarray(value).tolist() for key, value in x.items()}


def rows_of(table):
    """A dict of arrays [N, …] as N dicts."""
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def hard_cases():
    """Policies and steps of the oracle campaign, with random advantages and step sizes: a table for each K."""
    rng = np.random.default_rng(0)
    for actions in (2, 3, 8):
        parts = [campaign(kind, "float64", actions, 14, seed) for seed, kind in enumerate(("small", "large", "uneven"))]
        z, d = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        whole = np.isfinite(z).all(-1)
        z, d = z[whole], d[whole]
        yield {"z": z, "d": d, "A": rng.standard_normal(z.shape), "eta": 10.0 ** rng.uniform(-3, 1, len(z))}


@jax.jit
def formulas(z, d, A, eta):
    """What the package says of a table of cases, and the sizes of the terms that it sums, by name."""
    policy, change = softmax(z), decompose(softmax(z), d)
    p, u, moved = policy.prob, policy.centred_log_prob, prob_change(softmax(z), d)
    spread, gain = centred(policy, d), centred(policy, A)
    entropies = policy.entropy + sd.entropy(z + d)
    linear = jnp.sum(jnp.abs(p * u * spread), -1)
    of_change = jnp.minimum(jnp.sum(jnp.abs(moved * u), -1) + change.kl, entropies)
    curved = jnp.sum(jnp.abs((moved - p * spread) * u), -1) + change.kl
    effects = jnp.abs(p * u) + jnp.sum(jnp.abs(p * p * u), -1, keepdims=True)
    values = {
        "change": change.entropy_change,
        **{name: getattr(change, name) for name in ("covariance", "remainder", "kl")},
        "prob": p,
        "log_prob": policy.log_prob,
        "entropy": policy.entropy,
        "after": p + moved,
        "lemma_1": sd.lemma_1(z, d),
        "proposition_1": sd.proposition_1(z, A, eta),
        "effects": sd.sample_effect(z),
        "theorem_1": sd.theorem_1(z, A, eta),
        "theorem_2": sd.theorem_2(z, A, eta),
        "bound": sd.remainder_bound(z, d),
        "certified": sd.certified_step_size(z, d),
    }
    sizes = {
        "change": of_change,
        "remainder": jnp.minimum(curved, of_change + linear),
        "covariance": linear,
        "lemma_1": linear,
        "certified": linear / sd.remainder_bound(z, d),
        "effects": effects,
        "after": p + jnp.abs(moved),
        "theorem_1": eta * jnp.sum(jnp.abs(p * u * centred(policy, p * A)), -1),
        "theorem_2": eta * jnp.sum(jnp.abs(p * u * gain), -1),
        "proposition_1": eta[:, None] * p * (jnp.abs(A) + jnp.max(jnp.abs(A), -1, keepdims=True)),
    }
    return values, {name: sizes.get(name, jnp.zeros_like(value)) for name, value in values.items()}


def drawn_cases():
    """24 times: the policy that acted, the one now, rewards, and ten drawn actions in two groups."""
    rng = np.random.default_rng(1)
    old = rng.standard_normal((24, ARMS))
    now = old + 0.3 * rng.standard_normal(old.shape)
    actions = rng.integers(0, ARMS, (24, GROUPS * SIZE))
    return {
        "old": old,
        "now": now,
        "rewards": rng.standard_normal(old.shape),
        "actions": actions,
        "number": np.arange(24),
    }


def algorithm_of(name, mode):
    if name == "pg":
        return sd.Algorithm(sd.VanillaPG(1.0))
    return sd.build(name, mode=mode, groups=GROUPS, group_size=SIZE, **METHODS[name])


def push_of(name, mode, old, now, rewards, actions, number):
    """(gradient, selected, natural gradient) of the package for the tokens that `old` drew, under `now`."""
    problem, before, policy = sd.Bandit(rewards), softmax(old[None]), softmax(now[None])
    algorithm = algorithm_of(name, mode).start(old[None])
    if mode == "sampled":
        log_prob = before.log_prob[0, actions][:, None]
        group = jnp.repeat(jnp.arange(GROUPS, dtype=jnp.int32), SIZE)
        count = len(actions)
        batch = Batch(
            state=jnp.zeros((count, 1), jnp.int32),
            action=actions[:, None],
            taken=jnp.ones((count, 1), bool),
            reward=rewards[actions][:, None],
            log_prob=log_prob,
            group=group,
            weight=jnp.full(count, 1.0 / count),
            size=jnp.full(count, float(SIZE)),
        )
        advantage = algorithm.estimator.advantages(batch, problem, before)
        tokens = algorithm.estimator.tokens(batch, advantage, before)
    else:
        tokens = algorithm.estimator(None, problem, before)
    key = jax.random.key(number) if mode == "sampled" else None
    push, shares = pushed(algorithm.interventions, key, under(tokens, policy), policy)
    table = gradient(tokens, push, policy)
    size = jnp.sum(jnp.abs(tokens.weight * push.score)) + jnp.sum(jnp.abs(push.field))
    share = shares[-1] if len(shares) else jnp.zeros(())
    return table[0], share, natural_gradient(table, policy, jnp.ones(1))[0], size, policy.prob[0]


@jax.jit
def pushes(old, now, rewards, actions, number):
    """[method] of (gradient [N, A], share touched [N], natural gradient, size of the terms [N], π [N, A])."""
    one = [jax.vmap(lambda *case, chosen=chosen: push_of(*chosen, *case)) for chosen in CHOSEN]
    return [each(old, now, rewards, actions, number) for each in one]


def random_links():
    """Fragments of states from all over, each with every number set."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        arms = rng.integers(2, 9)
        lists = {"z": 5.0 * rng.standard_normal(arms), "r": rng.standard_normal(arms), "ref": rng.standard_normal(arms)}
        name = rng.choice([*METHODS, "npg"])
        numbers = {f"n.{key}": value for key, value in METHODS.get(name, {}).items()}
        whole = {"inner": rng.integers(1, 4), "groups": rng.integers(1, 4), "size": rng.integers(2, 9)}
        rest = {"method": name, "eta": rng.random(), "seed": rng.integers(2**32), "at": rng.integers(10**4)}
        texts = {key: ",".join(map(repr, value.tolist())) for key, value in lists.items()}
        texts |= {key: str(value) for key, value in {**numbers, **whole, **rest}.items()}
        yield "#" + "&".join(f"{key}={texts[key]}" for key in rng.permutation(list(texts)))


HARD = list(hard_cases())
DRAWN = drawn_cases()
LINKS = list(random_links())
LESSONS = re.findall(
    r'<a href="../../softmaxdyn/playground/index.html(#.+?)"><code>(.+?)</code></a>',
    html.unescape((ROOT / "experiments" / "docs" / "teaching.md").read_text("utf-8")),
)


@pytest.fixture(scope="module")
def answers():
    """What the page's scripts say of all cases, from one process of node."""
    methods = [{"name": name, "mode": mode, "numbers": METHODS[name]} for name, mode in CHOSEN]
    h = np.linspace(0.1, 1.0, 9)
    cases = {
        "formulas": [row for table in HARD for row in rows_of(written(table))],
        "pushes": [row | {"methods": methods, "size": SIZE} for row in rows_of(written(DRAWN))],
        "links": [*NONSENSE, *LINKS, *(link for link, _ in LESSONS)],
        "runs": [*RUNS, *NAMED],
        "numbersRead": list(TYPED),
        "fits": [
            (h.tolist(), (0.9 - 0.3 * np.exp(h)).tolist()),
            ([1.0, 1.0, 1.0], [0.0, 1.0, 2.0]),
            ([0.0, 1.0], [0.0, 1.0]),
        ],
    }
    done = subprocess.run([NODE, "-e", RUNNER, str(PAGE)], input=json.dumps(cases), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def differ(value, wanted, size, digits=0.0):
    """Where |value − wanted| > 1e-12 |wanted| + `digits` ε Σ|terms|; below 1e-290 numbers are no longer normal."""
    value, wanted = np.asarray(value, float), np.asarray(wanted, float)
    return np.abs(value - wanted) > 1e-12 * np.abs(wanted) + digits * EPS * np.asarray(size) + FLOOR["float64"]


@needs_node
def test_every_formula_is_that_of_the_package(answers):
    """Each side errs by at most 5 ε Σ|terms| (softmaxdyn.change), and a step rounds π'/π by |exponent| ε more."""
    found = iter(answers["formulas"])
    count = 0
    for table in HARD:
        values, sizes = formulas(**table)
        rows = [next(found) for _ in table["z"]]
        digits = 2 * (5 + table["z"].shape[-1] + np.ptp(table["d"], -1))
        for name, wanted in values.items():
            scale = digits if wanted.ndim == 1 else digits[:, None]
            wrong = differ([row[name] for row in rows], wanted, sizes[name], scale)
            assert not wrong.any(), (name, table["z"][wrong.reshape(len(rows), -1).any(-1)][:3])
        count += len(rows)
    assert count >= 500


@needs_node
@pytest.mark.parametrize(("name", "mode"), CHOSEN)
def test_every_method_pushes_as_the_package_does_given_the_tokens(answers, name, mode):
    """Sums of at most 10 tokens: each side errs by some 20 ε of the sum of their sizes, far below 1e-12 of it."""
    place = CHOSEN.index((name, mode))
    found = [case[place] for case in answers["pushes"]]
    table, share, natural, size, prob = (np.asarray(part) for part in pushed_by_package()[place])
    assert np.all(np.abs(np.array([each["gradient"] for each in found]) - table) <= 1e-12 * size[:, None])
    scale = size[:, None] / prob + (size / prob.min(-1))[:, None]
    assert np.all(np.abs(np.array([each["natural"] for each in found]) - natural) <= 1e-12 * scale)
    if mode == "sampled":
        np.testing.assert_allclose([np.mean(each["selected"]) for each in found], share, rtol=1e-12)
    if name in ("clip_cov", "kl_cov", "steer") or (name, mode) == ("grpo", "sampled"):
        assert np.count_nonzero(share) > 5


@functools.cache
def pushed_by_package():
    return pushes(**DRAWN)


@needs_node
@pytest.mark.parametrize("number", range(len(RUNS)), ids=[run.split("&")[0] for run in RUNS])
def test_the_copied_python_runs_and_gives_the_numbers_of_the_page(answers, number):
    """Also the draws are the same: the page has the random numbers of JAX."""
    answer = answers["runs"][number]
    assert answer["ignored"] == []
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(answer["python"], names)
    trace = names["trace"]
    for field in answer["rows"][0]:
        value = [row[field] for row in answer["rows"]]
        wanted = getattr(trace, field)
        wanted = wanted if wanted.ndim == 1 else wanted[:, -1] if wanted.shape[1] else np.zeros(len(wanted))
        np.testing.assert_allclose(value, wanted, rtol=1e-12, atol=64 * EPS, err_msg=field)
    for field, text in re.findall(r"(\w+) = (\S+)", printed.getvalue()):
        assert float(text) == pytest.approx(answer["rows"][-1][field], rel=1e-11, abs=64 * EPS)
    assert printed.getvalue().startswith(f"step {len(answer['rows']) - 1}: ")


@needs_node
@pytest.mark.parametrize("fragment", NAMED)
def test_the_copied_python_builds_the_named_method(answers, monkeypatch, fragment):
    answer = answers["runs"][len(RUNS) + list(NAMED).index(fragment)]
    asked = []

    def simulate(*arguments, **settings):
        asked.append((*arguments, settings))
        raise StopIteration

    monkeypatch.setattr(sd, "simulate", simulate)
    with pytest.raises(StopIteration):
        exec(answer["python"], {})
    bandit, algorithm, settings = asked[0]
    assert repr(algorithm) == repr(NAMED[fragment]())
    assert bandit.rewards.tolist() == [[1.0, 0.9, 0.1]]
    sampled = {"key"} if "sampled" in fragment else set()
    assert settings.keys() == {"num_steps", "inner_steps", "logits", *sampled}


@needs_node
@pytest.mark.parametrize("number", range(len(NONSENSE)))
def test_any_link_gives_a_state_with_finite_numbers(answers, number):
    answer = answers["links"][number]
    assert answer["finite"]
    assert (answer["same"], answer["again"]) == (True, [])


@needs_node
def test_what_a_link_says_is_read_and_what_is_no_use_is_named(answers):
    ignored = dict(zip(NONSENSE, (answer["ignored"] for answer in answers["links"]), strict=False))
    assert ignored["#z=1e999,0,0"] == ["z"]
    assert ignored["#at=-1"] == ["at"]
    assert ignored["#method=constructor"] == ["method"]
    assert ignored["#method=kl_cov&n.fraction=0.9"] == ["n.fraction"]
    assert ignored["#n.coefficient=2&method=kl_cov"] == []
    assert ignored["#z=−1,−2,0"] == []
    assert ignored["#r=1,0,0,0,0,0,0,0"] == ["r"]


@needs_node
def test_a_link_holds_the_whole_state(answers):
    for fragment, answer in zip(LINKS, answers["links"][len(NONSENSE) :], strict=False):
        assert (answer["ignored"], answer["same"], answer["again"]) == ([], True, [])
        given = dict(pair.split("=") for pair in fragment[1:].split("&"))
        state = answer["state"]
        assert state["logits"] == [float(x) for x in given["z"].split(",")]
        assert state["reference"] == [float(x) for x in given["ref"].split(",")]
        assert (state["method"], state["seed"], state["at"]) == (given["method"], int(given["seed"]), int(given["at"]))


@needs_node
def test_the_links_of_the_lessons_are_shown_as_they_are_and_understood(answers):
    assert len(LESSONS) == 7
    assert [shown for _, shown in LESSONS] == [link for link, _ in LESSONS]
    assert [answer["ignored"] for answer in answers["links"][-len(LESSONS) :]] == [[]] * len(LESSONS)


@needs_node
def test_a_field_takes_numbers_and_nothing_else(answers):
    assert dict(zip(TYPED, answers["numbersRead"], strict=True)) == TYPED


@needs_node
def test_the_fit_is_the_least_squares_line_in_exp_h(answers):
    exact, flat, short = answers["fits"]
    assert (exact["a"], exact["b"]) == pytest.approx((0.3, 0.9), rel=1e-12)
    assert flat is None
    assert short is None


@needs_node
def test_english_and_chinese_say_the_same_things(answers):
    english, chinese = answers["words"]["en"], answers["words"]["zh"]
    assert english.keys() == chinese.keys()
    holes = {key: re.findall(r"\{\w+\}", text) for key, text in english.items()}
    assert {key: sorted(re.findall(r"\{\w+\}", text)) for key, text in chinese.items()} == {
        key: sorted(found) for key, found in holes.items()
    }
    named = set(re.findall(r'data-(?:t|label)="(\w+)"', (PAGE / "index.html").read_text("utf-8")))
    assert named <= english.keys()


@needs_node
def test_the_numbers_of_a_method_on_the_page_are_numbers_that_the_package_knows(answers):
    for name, numbers in answers["defaults"].items():
        if name not in ("pg", "npg"):
            sd.methods.METHODS[name].replace_numbers({key: float(each["value"]) for key, each in numbers.items()})


def luminance(colour):
    """Relative luminance of "#rrggbb" (WCAG 2)."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_text_and_lines_stand_out_in_light_and_dark():
    """WCAG 2 AA: 4.5 to 1 for text, 3 to 1 for lines, fields and the focus."""
    blocks = re.findall(r"--paper: .*?\}", (PAGE / "index.html").read_text("utf-8"), re.DOTALL)
    themes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in blocks]
    assert len(themes) == 3
    assert themes[1] == themes[2]
    for theme in themes:
        light = {name: luminance(colour) for name, colour in theme.items()}
        wanted = {"ink": 4.5, "quiet": 4.5, "now": 4.5, "pg": 3.0, "npg": 3.0, "rise": 3.0, "reference": 3.0}
        for ground in ("paper", "panel", "field"):
            ratios = {name: max(light[name], light[ground]) + 0.05 for name in wanted}
            ratios = {name: ratio / (min(light[name], light[ground]) + 0.05) for name, ratio in ratios.items()}
            assert {name: round(ratios[name], 2) for name in wanted if ratios[name] < wanted[name]} == {}


def test_the_page_is_light_and_takes_nothing_from_outside():
    files = [path for path in PAGE.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 150_000
    for path in files:
        text = path.read_text("utf-8")
        assert (
            re.findall(r"https?:|//[a-z]+\.|^\s*import\b|\bimport\(|\bfetch\(|XMLHttpRequest", text, re.MULTILINE) == []
        ), path.name
    used = re.findall(r'(?:src|href)="([^"]+)"', (PAGE / "index.html").read_text("utf-8"))
    assert sorted(name for name in used if name != "data:,") == sorted(p.name for p in files if p.suffix == ".js")


def test_play_serves_the_page_and_ctrl_c_ends_it_quietly():
    command = [sys.executable, "-m", "softmaxdyn", "play", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline()).group()
        for name in ("", "core.js"):
            with urllib.request.urlopen(address + name) as answer:
                assert answer.read() == (PAGE / (name or "index.html")).read_bytes()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0


@pytest.fixture
def no_wait(monkeypatch):
    """The addresses that were opened in a browser; nothing is served."""
    opened = []
    monkeypatch.setattr(play, "wait", lambda server: None)
    monkeypatch.setattr(play.webbrowser, "open", opened.append)
    return opened


def test_play_opens_the_browser_unless_told_not_to(no_wait):
    printed = CliRunner().invoke(cli.main, ["play"]).output
    assert len(no_wait) == 1
    assert no_wait[0] in printed
    CliRunner().invoke(cli.main, ["play", "--no-browser"])
    assert len(no_wait) == 1


def test_play_opens_the_state_of_a_link_from_elsewhere(no_wait):
    for link in ("http://127.0.0.1:1/#z=0,0,0&r=1,0,0", "#z=0,0,0&r=1,0,0"):
        printed = CliRunner().invoke(cli.main, ["play", link]).output
        assert re.search(r"http://127\.0\.0\.1:\d+/#z=0,0,0&r=1,0,0 ", printed)
    assert [address.partition("/#")[2] for address in no_wait] == ["z=0,0,0&r=1,0,0"] * 2


def test_a_link_without_a_state_is_one_line(no_wait):
    done = CliRunner().invoke(cli.main, ["play", "http://127.0.0.1:1/"])
    line = "softmaxdyn: 'http://127.0.0.1:1/' has no part after #; wanted a link of the playground, in quotes, such as"
    assert (done.exit_code, done.stderr) == (2, f"{line} '#z=0,0,0'\n")
    assert no_wait == []


def test_a_port_in_use_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(cli.main, ["play", "--port", str(port)])
    line = f"softmaxdyn: --port {port} is in use; pass another, or none for a free one\n"
    assert (done.exit_code, done.stderr) == (2, line)


def test_a_port_must_be_one():
    with pytest.raises(InputError, match=r"--port is 70000; wanted one in \[0, 65535\], 0 for a free one"):
        play.serve(70000)


def test_a_forbidden_port_says_why(monkeypatch):
    def forbid(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(play, "ThreadingHTTPServer", forbid)
    with pytest.raises(InputError, match=r"--port 80 cannot be used \(Permission denied\); pass another"):
        play.serve(80)
