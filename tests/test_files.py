"""Settings from files: three formats say the same, tables keep their counts, and each bad file is one line."""

import io
import json
import math
import os
import pickle
import zipfile
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmaxdyn import Algorithm, InputError, NaturalPG, VanillaPG, simulate
from softmaxdyn.files import read_setting
from softmaxdyn.files.arrays import rounding

EPS = np.finfo(float).eps
PLACES = "campaign,slot,item,shown,clicks\n"
CLICKS = {"context": "campaign+slot", "action": "item", "successes": "clicks", "trials": "shown"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for the examples of Hypothesis, which overwrite each other's files."""
    return tmp_path_factory.mktemp("files")


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def softmax(logits):
    """A second road to π: divide by the sum of exponentials."""
    weight = np.exp(logits - logits.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def success(setting):
    """P(correct) of each prompt."""
    return (softmax(setting.logits) * setting.problem.rewards).sum(1)


def pairs_csv(rewards, probabilities, mask, weights):
    rows = ["context,action,reward,probability,mask,weight"]
    for (s, a), reward in np.ndenumerate(rewards):
        rows.append(f"c{s},{a},{reward!r},{probabilities[s, a]!r},{int(mask[s, a])},{weights[s]!r}")
    return "\n".join(rows).replace("np.float64(", "").replace(")", "")


# What a good file says


@st.composite
def tables(draw):
    """Rewards, probabilities (some 0), a mask that leaves each row an arm with mass, and weights."""
    states, arms = draw(st.sampled_from([(1, 2), (2, 3), (3, 2)]))
    number = st.floats(-1e6, 1e6)
    rewards = np.array(draw(st.lists(number, min_size=states * arms, max_size=states * arms))).reshape(states, arms)
    parts = st.lists(st.integers(0, 2**20), min_size=states * arms, max_size=states * arms)
    share = np.array(draw(parts), float).reshape(states, arms)
    mask = np.array(draw(st.lists(st.booleans(), min_size=states * arms, max_size=states * arms))).reshape(share.shape)
    share[:, 0] += 1.0
    mask[:, 0] = True
    weights = np.array(draw(st.lists(st.floats(0.01, 10.0), min_size=states, max_size=states)))
    return rewards, share / share.sum(1, keepdims=True), mask, weights


@given(tables())
def test_json_npz_and_csv_of_the_same_numbers_are_the_same_setting(folder, table):
    rewards, probabilities, mask, weights = table
    arrays = {"rewards": rewards, "probabilities": probabilities, "mask": mask, "weights": weights}
    paths = [
        write(folder, "same.json", json.dumps({key: value.tolist() for key, value in arrays.items()})),
        write(folder, "same.npz", npz(**arrays)),
        write(folder, "same.csv", pairs_csv(*table)),
    ]
    pi = np.where(mask, probabilities, 0.0)
    for setting in map(read_setting, paths):
        assert np.array_equal(np.where(mask, setting.problem.rewards, rewards), rewards)
        assert np.array_equal(setting.problem.weights, weights)
        assert np.array_equal(np.isneginf(setting.logits), pi == 0.0)
        assert np.allclose(softmax(setting.logits), pi / pi.sum(1, keepdims=True), rtol=64 * EPS, atol=0.0)


@pytest.mark.parametrize("update", [VanillaPG(0.3), NaturalPG(0.3)])
def test_a_masked_setting_runs_and_the_mask_stays(tmp_path, update):
    path = write(tmp_path, "a.json", '{"rewards": [[1, 0, null]], "mask": [[1, 1, 0]]}')
    problem, logits, _ = read_setting(path)
    trace = simulate(problem, Algorithm(update), num_steps=5, logits=logits)
    assert np.isfinite(trace.entropy).all()
    assert (trace.entropy[0, 0], softmax(np.asarray(trace.logits))[0, 2]) == (pytest.approx(math.log(2.0)), 0.0)


def test_rewards_alone_start_uniform_with_equal_weights(tmp_path):
    setting = read_setting(write(tmp_path, "a.json", '{"rewards": [[1, 0.9, 0.1], [true, false, 0]]}'))
    assert (setting.logits == 0.0).all()
    assert np.array_equal(setting.problem.weights, [0.5, 0.5])
    assert np.array_equal(setting.problem.rewards[1], [1.0, 0.0, 0.0])
    assert setting.note == "a.json: 2 contexts × 3 arms"


def test_one_weight_counts_for_all_contexts(tmp_path):
    setting = read_setting(write(tmp_path, "a.json", '{"rewards": [[1, 0], [0, 1]], "weights": 1}'))
    assert np.array_equal(setting.problem.weights, [1.0, 1.0])


@pytest.mark.parametrize("suffix", [".json", ".csv", ".npz"])
def test_one_arm_comes_with_a_warning(tmp_path, suffix):
    content = {".json": '{"rewards": [[1], [2]]}', ".csv": "1\n2\n", ".npz": npz(rewards=[[1], [2]])}[suffix]
    setting = read_setting(write(tmp_path, "a" + suffix, content))
    assert setting.problem.shape == (2, 1)
    assert setting.note.endswith("one arm: the entropy is 0 and nothing moves")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_logits_have_the_dtype_asked_for(tmp_path, dtype):
    path = write(tmp_path, "a.npz", npz(rewards=[1.0, 0.0], probabilities=np.array([0.25, 0.75], np.float32)))
    assert read_setting(path, dtype=dtype).logits.dtype == dtype


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float16, np.float32, np.longdouble])
def test_an_npz_may_hold_any_kind_of_real_number(tmp_path, kind):
    setting = read_setting(write(tmp_path, "a.npz", npz(rewards=np.array([0, 1], kind))))
    assert np.array_equal(setting.problem.rewards, [[0.0, 1.0]])


@pytest.mark.parametrize(
    "text",
    [
        "1,0.5,\n0,2,3\n",
        "a,b,c\n1,0.5,\n0,2,3\n",
        "a;b;c\r\n1;0.5;NA\r\n0;2;3\r\n",
        '\ufeff"a"\t"b"\t"c"\n1\t 0.5\t\n\n0\t2\t3\n\t\t\n',
    ],
)
def test_a_matrix_may_have_a_header_and_any_delimiter_and_a_blank_masks(tmp_path, text):
    setting = read_setting(write(tmp_path, "m.CSV", text))
    assert np.array_equal(setting.problem.rewards, [[1.0, 0.5, 0.0], [0.0, 2.0, 3.0]])
    assert np.array_equal(np.isneginf(setting.logits), [[False, False, True], [False, False, False]])
    assert setting.note.startswith("m.CSV: 2 contexts × 3 arms, 1 pairs masked")


def test_contexts_and_arms_are_in_numerical_order_or_else_as_they_come(tmp_path):
    numbers = "context,action,reward\n10,2,.1\n9,10,.2\n10,10,.3\n9,2,.4\n"
    assert np.array_equal(read_setting(write(tmp_path, "a.csv", numbers)).problem.rewards, [[0.4, 0.2], [0.1, 0.3]])
    words = numbers.replace("\n10,", "\nzoo,").replace("\n9,", "\nbar,")
    assert np.array_equal(read_setting(write(tmp_path, "b.csv", words)).problem.rewards, [[0.1, 0.3], [0.4, 0.2]])


def test_without_a_context_all_rows_are_one(tmp_path):
    setting = read_setting(write(tmp_path, "a.csv", "action,reward,logit\nleft,1,0\nright,0,-inf\n"))
    assert setting.problem.shape == (1, 2)
    assert np.array_equal(setting.logits, [[0.0, -np.inf]])


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=12,
    )
)
def test_repeated_pairs_are_pooled_and_missing_ones_masked(folder, rows):
    rows = [("a", 1, 0, 5, 2), ("b", 2, 0, 4, 4), *((c, s, i, max(n, k), min(n, k)) for c, s, i, n, k in rows)]
    clicks, shown = defaultdict(int), defaultdict(int)
    for campaign, slot, item, n, k in rows:
        shown[f"{campaign}/{slot}", item] += n
        clicks[f"{campaign}/{slot}", item] += k
    contexts = list(dict.fromkeys(context for context, _ in shown))
    items = sorted({item for _, item in shown})
    expected = np.array([[clicks[c, i] / shown[c, i] if shown[c, i] else np.nan for i in items] for c in contexts])
    lines = "".join(",".join(map(str, row)) + "\n" for row in rows)
    path = write(folder, "clicks.csv", PLACES + lines)
    if np.isnan(expected).all(1).any():
        with pytest.raises(InputError, match="has no arm left"):
            read_setting(path, columns=CLICKS)
        return
    setting = read_setting(path, columns=CLICKS)
    masked = np.isnan(expected)
    assert np.array_equal(np.isneginf(setting.logits), masked)
    assert np.array_equal(setting.problem.rewards[~masked], expected[~masked])
    assert (f"{masked.sum()} pairs without a reward" in setting.note) == masked.any()


def test_the_note_is_one_line_whatever_the_labels_hold(tmp_path):
    setting = read_setting(write(tmp_path, "a\nb.csv", 'context,action,reward\n"two\nlines",x,1\n'))
    assert setting.note.startswith("a b.csv: 1 contexts × 1 arms; one arm: ")
    assert len(setting.note.splitlines()) == 1


def test_a_role_may_be_taken_from_any_column_and_others_are_ignored(tmp_path):
    path = write(tmp_path, "log.csv", "who,action,reward,value,extra\nx,0,9,1,?\nx,1,9,0,?\n")
    setting = read_setting(path, columns={"reward": "value", "context": "who"})
    assert np.array_equal(setting.problem.rewards, [[1.0, 0.0]])
    assert setting.note == "log.csv: 1 contexts × 2 arms; contexts x; arms 0, 1"


def test_a_role_that_is_named_goes_before_a_column_of_that_name(tmp_path):
    path = write(tmp_path, "log.csv", "action,reward,won,trials\nx,9,1,2\ny,7,2,4\ny,5,4,4\n")
    pooled = read_setting(path, columns={"successes": "won"})
    assert np.array_equal(pooled.problem.rewards, [[1 / 2, 6 / 8]])
    path.write_text(path.read_text().replace("y,5", "z,5"))
    assert np.array_equal(read_setting(path, columns={"reward": "reward"}).problem.rewards, [[9.0, 7.0, 5.0]])


def test_a_blank_mask_allows_and_a_pair_without_a_reward_keeps_no_mass(tmp_path):
    path = write(tmp_path, "a.csv", "action,reward,probability,mask\nx,1,.2,\ny,0,.3,1\nz,,.4,\nw,1,.1,0\n")
    setting = read_setting(path)
    assert np.allclose(softmax(setting.logits), [[0.4, 0.6, 0.0, 0.0]], rtol=16 * EPS, atol=0.0)


# Probabilities as people print them


@given(
    st.lists(st.integers(1, 1000), min_size=2, max_size=4),
    st.integers(2, 12),
    st.sampled_from([np.float32, np.float64]),
)
def test_a_distribution_rounded_to_any_digits_is_accepted_and_normalised(folder, parts, digits, kind):
    printed = np.round(np.array(parts) / sum(parts), digits)
    path = write(folder, "p.json", json.dumps({"rewards": [0] * len(parts), "probabilities": printed.tolist()}))
    assert np.allclose(softmax(read_setting(path).logits), printed / printed.sum(), rtol=64 * EPS, atol=0.0)
    inexact = np.array(parts, kind) / kind(sum(parts))
    read_setting(write(folder, "p.npz", npz(rewards=np.zeros(len(parts)), probabilities=inexact)))


@given(st.integers(0, 99), st.integers(1, 9), st.integers(4000, 16_000).filter(lambda total: abs(total - 10_000) > 1))
def test_a_sum_that_rounding_cannot_explain_is_refused(folder, tens, last, total):
    """Two numbers of four digits may miss 1 by 2 · ½ · 10⁻⁴; these miss it by 2 · 10⁻⁴ or more."""
    one = 10 * tens + last
    text = json.dumps({"rewards": [1, 0], "probabilities": [one / 1e4, (total - one) / 1e4]})
    sum_or_number = f"sum to {total / 1e4:.8g}, off by|is {(total - one) / 1e4:g}; wanted a number in"
    with pytest.raises(InputError, match=sum_or_number):
        read_setting(write(folder, "q.json", text))


@pytest.mark.parametrize(
    ("printed", "allowance"),
    [([0.333] * 3, 1.5e-3), ([0.5, 0.25, 0.25], 0.015), ([0.1] * 10, 0.02), ([1 / 3] * 3, 1e-6), ([1e-9, 0.5], 1e-6)],
)
def test_the_allowance_is_half_the_last_digit_a_number(printed, allowance):
    assert rounding(np.array(printed)) == pytest.approx(allowance, rel=1e-6)


# Pass counts


@pytest.mark.parametrize("name", ["counts.csv", "counts.json", "counts.npz"])
def test_a_prompt_starts_at_its_rate_and_is_uniform_inside_each_side(tmp_path, name):
    n, c = np.array([8, 8, 128, 3]), np.array([0, 8, 17, 1])
    content = {
        "counts.csv": "prompt,n,correct\n" + "".join(f"?,{a},{b}\n" for a, b in zip(n, c, strict=True)),
        "counts.json": json.dumps({"n": n.tolist(), "correct": c.tolist()}),
        "counts.npz": npz(n=n, correct=c),
    }[name]
    setting = read_setting(write(tmp_path, name, content), actions=5, correct=2)
    assert setting.problem.shape == (4, 5)
    assert np.allclose(success(setting), c / n, rtol=16 * EPS, atol=0.0)
    assert np.array_equal(np.isneginf(setting.logits).sum(1), [2, 3, 0, 0])
    assert np.ptp(setting.logits[2:, :2], axis=1).max() == np.ptp(setting.logits[2:, 2:], axis=1).max() == 0.0
    assert setting.note == (
        f"{name}: 4 prompts × 5 actions, 2 correct; mean success 0.3665; "
        "1 start at success 0 and 1 at 1 and never move (smoothing=0.5 would free them)"
    )


def test_a_prompt_at_zero_or_one_never_moves(tmp_path):
    setting = read_setting(write(tmp_path, "a.csv", "n,correct\n4,0\n4,4\n4,2\n"), actions=4, correct=1)
    trace = simulate(setting.problem, Algorithm(NaturalPG(0.5)), num_steps=3, logits=setting.logits)
    assert (trace.entropy_change[:, :2] == 0.0).all()
    assert (trace.entropy_change[:, 2] != 0.0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (8, 0.3), (8, 0.99), (64, 0.001)])
def test_the_mean_start_over_all_counts_is_p_unless_smoothed(tmp_path, n, p, smoothing):
    """E over c ~ Binomial(n, p) of the start is (np + α)/(n + 2α): p itself for α = 0, whatever n."""
    path = write(tmp_path, "a.csv", "n,correct\n" + "".join(f"{n},{c}\n" for c in range(n + 1)))
    start = success(read_setting(path, actions=10, correct=3, smoothing=smoothing))
    chance = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    assert start @ chance == pytest.approx((n * p + smoothing) / (n + 2 * smoothing), rel=4 * n * EPS + 32 * EPS)


def test_spread_draws_the_logits_inside_each_side_and_keeps_the_rate(tmp_path):
    path = write(tmp_path, "a.csv", "n,correct\n" + "10,3\n" * 300)
    setting = read_setting(path, actions=40, correct=15, spread=2.0, seed=1)
    assert np.allclose(success(setting), 0.3, rtol=128 * EPS, atol=0.0)
    for side in setting.logits[:, :15], setting.logits[:, 15:]:
        degrees = side.size - len(side)
        assert abs(np.sqrt(side.var(1, ddof=1).mean()) - 2.0) < 5 * 2.0 / np.sqrt(2 * degrees)
    other = read_setting(path, actions=40, correct=15, spread=2.0, seed=2)
    assert not np.array_equal(setting.logits, other.logits)


def test_prompts_without_a_count_are_left_out_with_their_weights(tmp_path):
    path = write(tmp_path, "a.csv", "problem,n,base,weight\n0,8,3,1\n1,8,,2\n2,0,0,3\n3,,5,4\n4,8,2.0,5\n")
    setting = read_setting(path, columns={"correct": "base"})
    assert np.allclose(success(setting), [3 / 8, 2 / 8], rtol=64 * EPS, atol=0.0)
    assert np.array_equal(setting.problem.weights, [1.0, 5.0])
    assert "; 3 prompts without a count left out" in setting.note


# Bad files

BAD_FILES = [
    ("a.txt", "1,2", "unknown type of file '.txt' \\(known: .json, .csv, .npz\\)"),
    ("a.jsn", "{}", "unknown type of file '.jsn'; did you mean '.json'\\?"),
    ("a", "1,2", "unknown type of file '' \\(known"),
    ("a.json", "", "is empty"),
    ("a.csv", " \n\n", "is empty"),
    ("a.npz", b"", "is empty"),
    ("a.csv", ",,\n", "is empty"),
    ("a.json", b"\xff\xfe{\x00}\x00", "is not UTF-8 text \\(byte 0 is 0xff\\)"),
    ("a.csv", "é,1\n".encode("latin-1"), "is not UTF-8 text \\(byte 0 is 0xe9\\)"),
    # JSON
    ("a.json", '{"rewards": [1, 0', "is not valid JSON, or cut short: .*line 1 column"),
    ("a.json", "[" * 100_000, "is not valid JSON, or cut short: "),
    ("a.json", '{"rewards": [' + "9" * 5000 + "]}", "is not valid JSON, or cut short: "),
    ("a.json", "[1, 0]", 'holds \\[1, 0\\]; wanted an object such as {"rewards": '),
    ("a.json", "{}", "has no rewards; wanted rewards \\[A\\] or \\[S, A\\], or pass counts"),
    ("a.json", '{"reward": [1, 0]}', "unknown key 'reward'; did you mean 'rewards'\\?"),
    ("a.json", '{"rewards": [1], "rewards": [0]}', "has the key 'rewards' twice"),
    ("a.json", '{"rewards": null}', "rewards have shape \\(\\); wanted \\[A\\] or \\[S, A\\]"),
    ("a.json", '{"rewards": []}', "rewards have shape \\(0,\\); wanted"),
    ("a.json", '{"rewards": [[]]}', "rewards have shape \\(1, 0\\); wanted"),
    ("a.json", '{"rewards": [[[1]]]}', "rewards have shape \\(1, 1, 1\\); wanted"),
    ("a.json", '{"rewards": [[1, 0], [1]]}', "rewards are ragged: row 1 has 1, row 0 has 2; wanted numbers in rows"),
    ("a.json", '{"rewards": [[1, 0], 1]}', "rewards are ragged: row 1 has 1, row 0 has 2; wanted numbers in rows"),
    ("a.json", '{"rewards": ["1", "0"]}', "rewards are \\['1', '0'\\]; wanted numbers$"),
    ("a.json", '{"rewards": [null, "0"]}', "rewards are \\[None, '0'\\]; wanted numbers$"),
    ("a.json", '{"rewards": {"a": 1}}', "rewards are not numbers; wanted numbers in rows"),
    ("a.json", '{"rewards": [1' + "0" * 400 + "]}", "rewards are not numbers; wanted numbers in rows"),
    ("a.json", '{"rewards": [1, null]}', "the reward of context 0, arm 1 is missing or NaN; wanted a number or a mask"),
    ("a.json", '{"rewards": [1, NaN]}', "the reward of context 0, arm 1 is missing or NaN; wanted a number or a mask"),
    ("a.json", '{"rewards": [1, -Infinity]}', "the reward of context 0, arm 1 is -inf; wanted finite numbers"),
    ("a.json", '{"rewards": [1, Infinity], "mask": [1, 0]}', "the reward of context 0, arm 1 is inf; wanted finite"),
    ("a.json", '{"rewards": [1e31, 0]}', "a reward of size 1e\\+31 overflows; wanted sizes ≤ 1e30"),
    (
        "a.json",
        '{"rewards": [1, 0], "logits": [1, 0], "probabilities": [1, 0]}',
        "has logits and probabilities; wanted",
    ),
    (
        "a.json",
        '{"rewards": [1, 0], "logits": [1, 0, 0]}',
        "logits have shape \\(1, 3\\); wanted \\(1, 2\\), as the rewards",
    ),
    ("a.json", '{"rewards": [1, 0], "logits": [1, null]}', "the logit of context 0, arm 1 is missing or NaN; wanted a"),
    ("a.json", '{"rewards": [1, 0], "logits": [1, Infinity]}', "the logit of context 0, arm 1 is inf; wanted at most"),
    (
        "a.json",
        '{"rewards": [1, 0], "logits": [1, -1e31]}',
        "the logit of context 0, arm 1 is -1e\\+31; wanted at least",
    ),
    (
        "a.json",
        '{"rewards": [[1, 0]], "logits": [[-Infinity, -Infinity]]}',
        "context 0 has no arm left: each is masked",
    ),
    ("a.json", '{"rewards": [[1, 0], [0, 1]], "mask": [[1, 1], [0, 0]]}', "context 1 has no arm left: each is masked"),
    (
        "a.json",
        '{"rewards": [1, 0], "mask": [1, 2]}',
        "the mask of context 0, arm 1 is 2; wanted true or 1 \\(allowed\\)",
    ),
    ("a.json", '{"rewards": [1, 0], "mask": [1, null]}', "the mask of context 0, arm 1 is nan; wanted true or 1"),
    ("a.json", '{"rewards": [1, 0], "mask": [1]}', "mask have shape \\(1, 1\\); wanted \\(1, 2\\), as the rewards"),
    (
        "a.json",
        '{"rewards": [[1, 0], [1, 0]], "probabilities": [[0.5, 0.5], [0.501, 0.502]]}',
        "the probabilities of context 1 sum to 1.003, off by 0.003; wanted 1 within 0.001$",
    ),
    ("a.json", '{"rewards": [1, 0], "probabilities": [0.5, 0.4]}', "sum to 0.9, off by 0.1; wanted 1 within 0.02$"),
    (
        "a.json",
        '{"rewards": [1, 0], "probabilities": [1.5, -0.5]}',
        "probability of context 0, arm 0 is 1.5; wanted a",
    ),
    ("a.json", '{"rewards": [1, 0], "probabilities": [1, null]}', "the probability of context 0, arm 1 is missing"),
    (
        "a.json",
        '{"rewards": [1, 0], "probabilities": [1, Infinity]}',
        "probability of context 0, arm 1 is inf; wanted a",
    ),
    ("a.json", '{"rewards": [1, 0], "probabilities": [1, 0], "mask": [0, 1]}', "context 0 has no arm left"),
    ("a.json", '{"rewards": [1, 0], "weights": [1, 1]}', "weights have shape \\(2,\\); wanted one a context"),
    ("a.json", '{"rewards": [1, 0], "weights": [[1]]}', "weights have shape \\(1, 1\\); wanted one a context"),
    ("a.json", '{"rewards": [1, 0], "weights": [-1]}', "the weight of context 0 is -1; wanted numbers in"),
    ("a.json", '{"rewards": [1, 0], "weights": [null]}', "the weight of context 0 is nan; wanted numbers in"),
    ("a.json", '{"rewards": [1, 0], "weights": [0]}', "all weights are 0; wanted one above 0"),
    # NPZ
    ("a.npz", b"not a zip file", "is not an NPZ file; wanted one made by np.savez"),
    ("a.npz", b"PK\x03\x04 and nothing else", "is damaged or cut short; wanted an NPZ file"),
    ("a.npz", npz(rewards=[1, 0])[:-30], "is damaged or cut short; wanted an NPZ file"),
    ("a.npz", npz(reward=[1, 0]), "unknown key 'reward'; did you mean 'rewards'\\?"),
    ("a.npz", npz(rewards=["1", "0"]), "rewards are array.*; wanted numbers$"),
    ("a.npz", npz(rewards=[1j, 0]), "rewards are array.*; wanted numbers$"),
    ("a.npz", npz(rewards=np.array([1, 0], "M8[s]")), "rewards are array.*; wanted numbers$"),
    ("a.npz", npz(rewards=np.zeros(2, [("x", float)])), "rewards are array.*; wanted numbers$"),
    ("a.npz", npz(rewards=[1.0, np.nan]), "the reward of context 0, arm 1 is missing or NaN"),
    ("a.npz", npz(rewards=5.0), "rewards have shape \\(\\); wanted"),
    ("a.npz", zipped(rewards=b"a picture, say"), "rewards are b'a picture, say'; wanted numbers$"),
    # CSV
    ("a.csv", "1,2\n3\n", "line 2 has 1 cells; wanted 2, as in line 1"),
    ("a.csv", "\na,b\n1,2\n3,4,5\n", "line 4 has 3 cells; wanted 2, as in line 2"),
    ("a.csv", "a,b\n", "has a header and no rows"),
    ("a.csv", "a,a\n1,2\n", "two columns are named 'a'"),
    ("a.csv", ",a,b\n0,1,2\n", "column 1 has no name; name it, or drop it if it only counts the rows"),
    ("a.csv", "0,1,2\n.5,.1,.2\n", "line 1 counts 0, 1, …: rewards or column numbers\\? write 0.0, 1.0, … or name"),
    ("a.csv", ",0,1\n0,.5,.1\n", "line 1 counts 0, 1, …: rewards or column numbers\\?"),
    ("a.csv", "1,2\n3,x\n", "line 2: a reward is 'x'; wanted a finite number \\(blank: not known\\)"),
    ("a.csv", "1,2\n3,nan\n", "line 2: a reward is 'nan'; wanted a finite number"),
    ("a.csv", "1,2\n3,inf\n", "line 2: a reward is 'inf'; wanted a finite number"),
    ("a.csv", "1,2\n3," + "x" * 90 + "\n", "line 2: a reward is 'x{12}\\.\\.\\.x{13}'; wanted"),
    ("a.csv", "1,2\n3," + "9" * 200_000 + "\n", "line 2: field larger than field limit"),
    ("a.csv", '1,2\n3,"4\n', "line 2: unexpected end of data"),
    ("a.csv", "n,passed\n8,3\n", "has a column for n, but neither action and reward .* nor n and correct .*; name the"),
    (
        "a.csv",
        "action,logit\n0,1\n",
        "has an action and no reward; wanted a reward, or successes and trials: columns=",
    ),
    ("a.csv", "action,trials\n0,1\n", "has an action and trials; wanted a reward, or successes and trials: columns="),
    ("a.csv", "action,reward,trials\n0,1,1\n", "has an action and reward and trials; wanted a reward, or successes"),
    (
        "a.csv",
        "action,reward\n0,1\n0,1\n",
        "context '0', action '0' has 2 rewards; wanted one, or successes and trials",
    ),
    ("a.csv", "action,reward\n,1\n", "line 2: action is blank; wanted a label"),
    ("a.csv", "action,reward,mask\n0,1,2\n", "line 2: mask is '2'; wanted 1 \\(allowed\\) or 0 \\(masked\\)"),
    ("a.csv", "action,reward,logit\n0,1,inf\n", "line 2: logit is 'inf'; wanted a finite number"),
    ("a.csv", "action,successes,trials\n0,3,2\n", "line 2: 3 successes of 2 trials; wanted 0 ≤ successes ≤ trials"),
    ("a.csv", "action,reward,probability\n0,1,.5\n1,0,\n", "the probability of context 0, arm 1 is missing or NaN"),
    (
        "a.csv",
        "action,successes,trials,probability\n0,1,2,.5\n0,1,2,.6\n",
        "context '0', action '0' has two values of probability: 0.5 and 0.6; wanted one",
    ),
    ("a.csv", "context,action,reward,weight\n0,0,1,1\n0,1,1,2\n", "context '0' has two values of weight: 1 and 2"),
    ("a.csv", "context,action,reward,weight\n0,0,1,\n", "the weight of context 0 is nan; wanted numbers in"),
    # Counts
    ("a.csv", "n,correct\n8,9\n", "correct is 9 in prompt 0 \\(the first is 0\\); wanted at most n = 8"),
    ("a.csv", "n,correct\n8,3\n0,1\n", "correct is 1 in prompt 1 \\(the first is 0\\); wanted at most n = 0"),
    ("a.csv", "n,correct\n8,2.5\n", "correct is 2.5 in prompt 0 \\(the first is 0\\); wanted a whole number ≥ 0"),
    ("a.csv", "n,correct\n-8,-9\n", "n is -8 in prompt 0 \\(the first is 0\\); wanted a whole number ≥ 0"),
    ("a.json", '{"n": [8], "correct": [Infinity]}', "correct is inf in prompt 0 .*; wanted a whole number"),
    ("a.json", '{"n": [Infinity], "correct": [1]}', "n is inf in prompt 0 .*; wanted a whole number"),
    ("a.csv", "n,correct\n8,\n0,0\n", "no prompt has a count; wanted n ≥ 1 and 0 ≤ correct ≤ n"),
    ("a.json", '{"n": [8, 8], "correct": [1]}', "n and correct have shapes \\(2,\\) and \\(1,\\); wanted one of each"),
    (
        "a.json",
        '{"n": [8], "correct": [1], "weights": [1, 1]}',
        "weights have shape \\(2,\\); wanted one a prompt: \\(1,\\)",
    ),
    ("a.json", '{"n": [8]}', "n and correct belong together; one of them is missing"),
    ("a.json", '{"n": [8], "correct": [1], "rewards": [1]}', "has pass counts \\(n, correct\\) and rewards or a start"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    with pytest.raises(InputError, match=message) as caught:
        read_setting(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < len(str(path)) + 250
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a,b\n1,0\n", {"columns": {"rewrad": "a"}}, "unknown role of a column 'rewrad'; did you mean 'reward'\\?"),
        ("n,passed\n1,0\n", {"columns": {"correct": "pased"}}, "unknown column 'pased'; did you mean 'passed'\\?"),
        ("a,b\n1,0\n", {"columns": {"context": "a+c"}}, "unknown column 'c' \\(known: a, b\\)"),
        ("a,b\n1,0\n", {"columns": {"reward": "a+b"}}, "unknown column 'a\\+b'"),
        ("1,0\n", {"columns": {"reward": "a"}}, "has no header, so columns has nothing to name; add a header"),
        (
            "action,reward,b\n1,0,0\n",
            {"columns": {"n": "b"}},
            "columns names n, which has no use in a table with one row a",
        ),
        (
            "n,correct,b\n1,0,0\n",
            {"columns": {"logit": "b"}},
            "columns names logit, which has no use in a table with one",
        ),
        ("1,0\n", {"actions": 5}, "actions: for pass counts \\(n and correct\\) only; this file has rewards"),
        ("1,0\n", {"smoothing": 0.5, "spread": 1.0}, "smoothing, spread: for pass counts \\(n and correct\\) only"),
        ("n,correct\n8,3\n", {"actions": 1}, "actions is 1; wanted a whole number ≥ 2"),
        ("n,correct\n8,3\n", {"correct": 0}, "correct is 0; wanted a whole number ≥ 1"),
        (
            "n,correct\n8,3\n",
            {"actions": 5, "correct": 5},
            "correct is 5; wanted fewer correct arms than actions \\(5\\)",
        ),
        ("n,correct\n8,3\n", {"smoothing": -0.5}, "smoothing is -0.5; wanted a finite number ≥ 0"),
        ("n,correct\n8,3\n", {"spread": math.nan}, "spread is nan; wanted a finite number ≥ 0"),
        ("n,correct\n8,3\n", {"seed": -1}, "seed is -1; wanted a whole number ≥ 0"),
    ],
)
def test_a_bad_option_is_one_line_that_names_the_file(tmp_path, content, options, message):
    path = write(tmp_path, "a.csv", content)
    with pytest.raises(InputError, match=message) as caught:
        read_setting(path, **options)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_columns_are_for_csv(tmp_path, suffix):
    content = {".json": '{"rewards": [1]}', ".npz": npz(rewards=[1])}[suffix]
    with pytest.raises(
        InputError, match=f"columns are named in a CSV only; rename the keys of the {suffix} file instead"
    ):
        read_setting(write(tmp_path, "a" + suffix, content), columns={"reward": "r"})


def test_what_is_no_file_is_said(tmp_path):
    with pytest.raises(InputError, match="nothing.csv: no such file$"):
        read_setting(tmp_path / "nothing.csv")
    with pytest.raises(InputError, match="is a folder; wanted a .json, .csv or .npz file$"):
        read_setting(str(tmp_path))
    with pytest.raises(InputError, match="cannot be read: File name too long$"):
        read_setting(tmp_path / ("x" * 300 + ".csv"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a pipe is a thing of POSIX")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="pipe.csv: is not a regular file$"):
        read_setting(tmp_path / "pipe.csv")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_said(tmp_path):
    path = write(tmp_path, "a.csv", "1,0\n")
    path.chmod(0)
    with pytest.raises(InputError, match="a.csv: cannot be read: Permission denied$"):
        read_setting(path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    path = write(tmp_path, "a.csv", "1,0\n")
    os.truncate(path, 2**40)
    with pytest.raises(InputError, match="a.csv: has 1024.0 GiB; wanted at most 1 GiB$"):
        read_setting(path)


def test_an_npz_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("softmaxdyn.files.arrays._LARGEST", 2**20)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, rewards=np.zeros(2**18))
    with pytest.raises(InputError, match="unpacks to 0.0 GiB; wanted at most 0.000976562 GiB$"):
        read_setting(write(tmp_path, "a.npz", buffer.getvalue()))


def test_an_array_that_claims_more_than_it_has_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    with pytest.raises(InputError, match="a.npz: (too large for the memory|is damaged or cut short)"):
        read_setting(write(tmp_path, "a.npz", zipped(rewards=header.getvalue() + b"\0" * 16)))


def test_too_many_pairs_are_refused_before_they_are_made(tmp_path):
    rows = "".join(f"{i},{i},1\n" for i in range(12_000))
    with pytest.raises(InputError, match="makes 12000 contexts × 12000 actions; wanted at most 134217728 pairs$"):
        read_setting(write(tmp_path, "a.csv", "context,action,reward\n" + rows))


class Bomb:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_pickled_content_is_refused_and_never_run(tmp_path):
    mark = tmp_path / "mark"
    pickled = pickle.dumps(Bomb(mark))
    objects = io.BytesIO()
    np.savez(objects, rewards=np.array([Bomb(mark)], object))
    single = io.BytesIO()
    np.save(single, np.array([Bomb(mark)], object), allow_pickle=True)
    cases = {
        "is not an NPZ file; wanted one made by np.savez": pickled,
        "holds pickled objects, which are never loaded; wanted arrays of numbers": objects.getvalue(),
        "holds a single array \\(.npy\\); wanted an .npz": single.getvalue(),
        "rewards are b.*; wanted numbers$": zipped(rewards=pickled),
    }
    for message, content in cases.items():
        with pytest.raises(InputError, match=message):
            read_setting(write(tmp_path, "a.npz", content))
    assert not mark.exists()
    pickle.loads(pickled).close()
    assert mark.exists()


GOOD = {
    "g.json": json.dumps(
        {"rewards": [[1, 0.5, 0], [0, 1, 2]], "mask": [[1, 1, 1], [0, 1, 1]], "weights": [1, 2]}
    ).encode(),
    "g.npz": npz(rewards=np.eye(3), probabilities=np.full((3, 3), 1 / 3)),
    "g.csv": (PLACES + "men,1,0,82,3\nmen,2,1,10,0\nmen,1,1,7,7\nmen,2,0,5,1\n").encode(),
}


@pytest.mark.parametrize("name", GOOD)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_but_never_crashes(folder, name, data):
    content = bytearray(GOOD[name])
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(1, len(content)))]
    path = write(folder, name, bytes(content))
    try:
        setting = read_setting(path, columns=CLICKS if name == "g.csv" else None)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert np.isfinite(setting.problem.rewards).all()
        assert (setting.logits.max(1) > -np.inf).all()
