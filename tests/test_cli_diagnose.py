"""The command `diagnose`: it prints and writes the diagnosis; every fault is one line and leaves no file."""

import json
import os
import re
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas
import pytest
from click.testing import CliRunner
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from softmaxdyn import cli, log_plots, plots
from softmaxdyn.diagnostics import Log, covariance_score, covariance_tail, order, profile
from softmaxdyn.interventions.covariance import KLCov
from softmaxdyn.logs import read_log

SIZE = 4000


def columns(seed=0, entropy=True, moved=0.1):
    """Tokens of a model that is mostly sure, 50 an episode, 8 episodes a group, binary rewards."""
    random = np.random.default_rng(seed)
    log_prob = -random.exponential(0.5, SIZE) * (random.random(SIZE) < 0.4)
    reward = (random.random(SIZE // 50) < 0.3).astype(float)
    advantage = (reward.reshape(-1, 8) - reward.reshape(-1, 8).mean(1, keepdims=True)).ravel()
    token = np.arange(SIZE)
    return {
        "log_prob": log_prob,
        "old_log_prob": np.minimum(log_prob + moved * random.standard_normal(SIZE), 0.0),
        "advantage": advantage[token // 50],
        "reward": reward[token // 50],
        "group": token // 400,
        "episode": token // 50,
        "position": token % 50,
    } | ({"entropy": random.exponential(0.3, SIZE)} if entropy else {})


def invoke(*arguments):
    return CliRunner().invoke(cli.main, ["diagnose", *map(str, arguments)])


def diagnosed(folder, data, *arguments):
    """What is printed, and the numbers in the JSON file."""
    path = folder / "log.parquet"
    pandas.DataFrame(data).to_parquet(path)
    done = invoke(path, "--json", folder / "numbers.json", "--out", folder, *arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.exception or done.output
    return done.stdout, json.loads((folder / "numbers.json").read_text("utf-8"))


@pytest.fixture
def no_figure(monkeypatch):
    """Drawing takes a second and is tested once."""
    monkeypatch.setattr(log_plots, "diagnosis", lambda *data: None)
    monkeypatch.setattr(plots, "save_figure", lambda figure, stem: [])


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diagnose")
    return folder, *diagnosed(folder, columns())


def rows(printed, title, width):
    """{the first `width` characters: the other cells} of the table below a title, without its two rows of headings."""
    table = printed[printed.index(title) :].split("\n\n")[0].splitlines()[1:]
    cells = {line[:width].strip(): line[width:].replace(" ± ", "±").split() for line in table if line[:2] != "  "}
    return {name: each for name, each in cells.items() if each and each[0][0].isdigit()}


def test_the_figure_is_written_as_png_and_svg_7_inches_wide(default):
    folder, printed, _ = default
    assert sorted(os.listdir(folder)) == ["diagnose.png", "diagnose.svg", "log.parquet", "numbers.json"]
    assert struct.unpack(">I", (folder / "diagnose.png").read_bytes()[16:20])[0] == 7 * 300
    assert all(str(folder / name) in printed for name in ("diagnose.png", "diagnose.svg", "numbers.json"))


def test_the_printed_tail_is_that_of_the_json_and_of_the_log(default):
    folder, printed, numbers = default
    log = read_log(folder / "log.parquet")
    tail = covariance_tail(log, order(covariance_score(log)))
    title = next(line for line in printed.splitlines() if line.startswith("Covariance score"))
    lines = printed[printed.index(title) :].split("\n\n")[0].splitlines()[3:]
    table = [line.replace(" ± ", "±").replace(" %", "%").split() for line in lines]
    assert [row[0] for row in table] == ["0.02%", "0.2%", "2%", "20%", "50%", "all"]
    assert [int(row[1]) for row in table] == list(tail.tokens) == numbers["tail"]["tokens"]
    np.testing.assert_array_equal(numbers["tail"]["permuted_mean"], tail.permuted_mean)
    for f, row in enumerate(table):
        assert float(row[2]) == pytest.approx(tail.mean[f], rel=5e-4)
        mean, deviation = map(float, row[3].split("±"))
        assert mean == pytest.approx(tail.permuted_mean[:, f].mean(), rel=5e-4)
        assert deviation == pytest.approx(tail.permuted_mean[:, f].std(ddof=1), rel=0.5)
        assert float(row[5]) == pytest.approx(tail.gross[f], rel=5e-4)


def test_every_method_has_its_profile(default):
    folder, printed, numbers = default
    table = rows(printed, "What each method", len("Clip-Cov candidates"))
    assert (
        list(table) == ["all tokens", "Clip-Cov candidates", "Clip-Cov", "KL-Cov", "STEER"] == list(numbers["profiles"])
    )
    log = read_log(folder / "log.parquet")
    chosen = np.zeros(SIZE, bool)
    chosen[order(covariance_score(log))[:8]] = True
    assert numbers["profiles"]["KL-Cov"] == pytest.approx(profile(log, chosen)._asdict())
    assert table["KL-Cov"][:2] == ["8", "0.002"]


def test_every_section_is_printed(default):
    _, printed, numbers = default
    for text in (
        "log.parquet: 4000 tokens, 80 episodes in 10 groups",
        "own logit alone",
        "others held",
        "by k1",
        "by k2",
        "by k3",
        "χ²",
        "mean surprisal",
        "mean entropy, exact H",
        "on the harmful side",
        f"all advantages equal: {numbers['groups']['equal']}",
        "needs S̄",
    ):
        assert text in printed


def test_without_entropies_what_needs_them_is_absent_and_said_so(no_figure, tmp_path):
    printed, numbers = diagnosed(tmp_path, columns(entropy=False))
    assert "without a column entropy there is no STEER, no −ΔH share and no exact entropy" in printed
    assert "STEER" not in numbers["profiles"]
    assert (numbers["tail"]["effects"], numbers["mean_entropy"]) == ({}, None)
    assert "others held" not in printed


@pytest.mark.parametrize(
    ("moved", "note"),
    [
        (0.0, "on policy, every ratio is 1: KL-Cov selects tokens but does not move them, and no clip acts"),
        (1e-7, "the noise of one policy evaluated twice: KL-Cov would pull at its tokens with all of its β"),
    ],
)
def test_a_log_on_policy_or_almost_is_told(no_figure, tmp_path, moved, note):
    assert note in diagnosed(tmp_path, columns(moved=moved))[0]


def test_options_reach_the_methods_and_the_control(no_figure, tmp_path):
    options = ["--kl-cov-fraction", 0.1, "--clip-cov-fraction", 0.02, "--clip-cov-low", 0.1, "--clip-cov-high", 0.2]
    more = ["--steer-smallest", 0.5, "--clip-high", 0.05, "--clip-low", 0.1, "--permutations", 3, "--seed", 5]
    printed, numbers = diagnosed(tmp_path, columns(), *options, *more)
    log = read_log(tmp_path / "log.parquet")
    score, r = covariance_score(log), np.exp(log.log_prob - log.old_log_prob)
    assert numbers["profiles"]["KL-Cov"]["tokens"] == 400
    assert numbers["profiles"]["Clip-Cov"]["tokens"] == 80
    assert numbers["profiles"]["Clip-Cov candidates"]["tokens"] == np.sum((score >= 0.1) & (score <= 0.2))
    assert np.shape(numbers["tail"]["permuted_mean"]) == (3, 6)
    assert numbers["ratios"]["outside"] == np.mean((r > 1.05) | (r < 0.9))
    assert "Steer(smallest=0.5, low=0.1, high=0.05)" in printed
    assert "outside [0.9, 1.05]" in printed
    assert numbers["settings"]["kl_cov_fraction"] == 0.1


def test_columns_are_mapped_and_nan_dropped_on_request(no_figure, tmp_path):
    data = columns()
    data["logp"] = np.where(np.arange(SIZE) < 7, np.nan, data.pop("log_prob"))
    printed, numbers = diagnosed(tmp_path, data, "--column", "log_prob=logp", "--drop-nan")
    assert numbers["tokens"] == SIZE - 7
    assert (
        "note: 7 of 4000 tokens have a value that is missing, NaN or infinite (log_prob 7); they are left out"
        in printed
    )


GOOD = "log_prob,old_log_prob,advantage\n-1,-1,1\n-2,-1,0\n"
FAULTS = {
    "no file": (["none.csv"], "none.csv: no such file"),
    "missing column": (
        ["short.csv"],
        r"has no column 'old_log_prob'; name it: --column old_log_prob=NAME "
        r"\(it needs log_prob, old_log_prob, advantage, and has log_prob, advantage\)",
    ),
    "gaps": (
        ["gaps.csv"],
        r"1 of 2 tokens have a value that is missing, NaN or infinite \(advantage 1\); pass --drop-nan",
    ),
    "above 0": (["above.csv"], "log_prob is above 0 in 1 of 2 tokens"),
    "pair": (
        ["good.csv", "--column", "log_prob"],
        "--column is 'log_prob'; wanted NAME=COLUMN, e.g. --column rew",
    ),
    "role": (
        ["good.csv", "--column", "logprob=log_prob"],
        "unknown name in --column 'logprob'; did you mean 'log_prob'",
    ),
    "fraction 0": (
        ["good.csv", "--kl-cov-fraction", "0"],
        r"--kl-cov-fraction is 0.0; wanted a finite number in \(0, 1\]",
    ),
    "fraction < 0": (["good.csv", "--clip-cov-fraction", "-.1"], "--clip-cov-fraction is -0.1; wanted a finite number"),
    "per cent": (
        ["good.csv", "--kl-cov-fraction", "2"],
        "--kl-cov-fraction is 2.0; wanted a frac.*2.0 per cent is 0.02",
    ),
    "nan": (["good.csv", "--kl-cov-fraction", "nan"], "--kl-cov-fraction is nan"),
    "order": (["good.csv", "--clip-cov-low", "9"], "--clip-cov-low is 9 and --clip-cov-high is 5; wanted low ≤ high"),
    "λ": (["good.csv", "--steer-smallest", "1.5"], r"--steer-smallest is 1.5; wanted a finite number in \(0, 1\]"),
    "clip": (["good.csv", "--clip-low", "2"], r"--clip-low is 2.0; wanted a finite number in \[0, 1\]"),
    "clip high": (["good.csv", "--clip-high", "-1"], "--clip-high is -1.0; wanted a finite number ≥ 0"),
    "permutations": (["good.csv", "--permutations", "1"], "--permutations is 1; wanted a whole number ≥ 2"),
    "seed": (["good.csv", "--seed", "-1"], "--seed is -1; wanted a whole number ≥ 0"),
    "large seed": (
        ["good.csv", "--seed", str(2**63)],
        "--seed is 9223372036854775808; wanted at most 92233720368547758",
    ),
    "out is a file": (["good.csv", "--out", "good.csv"], r"cannot write to 'good.csv' \('good.csv' is no folder\)"),
    "a new out": (["none.csv", "--out", "new/folder"], "none.csv: no such file"),
    "json": (
        ["good.csv", "--json", "nowhere/x.json"],
        "--json is 'nowhere/x.json'; wanted a file in a folder",
    ),
    "json is the log": (
        ["good.csv", "--json", "good.csv"],
        "--json is 'good.csv', the file that is read; wanted another",
    ),
    "json is a folder": (["good.csv", "--json", "."], "--json is '.'; wanted a file in a folder"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_one_line_with_exit_code_2_and_leaves_no_file(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    texts = {
        "good": GOOD,
        "short": "log_prob,advantage\n-1,1\n",
        "gaps": GOOD.replace("-1,1", "-1,"),
        "above": GOOD.replace("-2", "2"),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    before = set(os.listdir())
    arguments, message = FAULTS[case]
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert re.search(message, done.stderr)
    assert set(os.listdir()) == before
    assert (tmp_path / "good.csv").read_text() == GOOD


def test_an_unfinished_json_is_removed(tmp_path, monkeypatch):
    def fail(*data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plots, "save_figure", fail)
    monkeypatch.setattr(log_plots, "diagnosis", lambda *data: None)
    (tmp_path / "log.csv").write_text(GOOD)
    done = invoke(tmp_path / "log.csv", "--json", tmp_path / "x.json", "--out", tmp_path)
    assert done.exit_code == 2
    assert "No space left on device" in done.stderr
    assert os.listdir(tmp_path) == ["log.csv"]


def test_parquet_without_pyarrow_is_one_line(tmp_path, monkeypatch):
    pandas.DataFrame(columns()).to_parquet(tmp_path / "log.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    done = invoke("log.parquet")
    line = "softmaxdyn: log.parquet: Parquet needs pyarrow: pip install 'softmaxdyn[parquet]'\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", line)


def test_a_pipe_takes_the_json_and_stays(no_figure, tmp_path):
    (tmp_path / "log.csv").write_text(GOOD)
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        read = pool.submit((tmp_path / "pipe").read_text)
        done = invoke(tmp_path / "log.csv", "--json", tmp_path / "pipe", "--out", tmp_path / "out")
        assert (done.exit_code, done.stderr) == (0, "")
        text = read.result(60)
    assert (json.loads(text)["tokens"], text[-2:]) == (2, "}\n")
    assert (tmp_path / "pipe").is_fifo()


@pytest.fixture
def ax():
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.subplots()


@pytest.fixture(scope="module")
def log(default):
    return read_log(default[0] / "log.parquet")


def test_the_ranked_curve_is_the_tail_above_the_band_of_its_control(log, ax):
    tail = covariance_tail(log, order(covariance_score(log)))
    assert log_plots.ranked_covariance(tail, ax) is ax
    highest, lowest = ax.lines
    np.testing.assert_array_equal(highest.get_xdata(), tail.rank / SIZE)
    np.testing.assert_array_equal(highest.get_ydata(), np.where(tail.highest > 0, tail.highest, np.nan))
    np.testing.assert_array_equal(lowest.get_ydata(), np.where(tail.lowest < 0, -tail.lowest, np.nan))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert len(ax.collections) == 2


def test_the_ranked_curve_is_drawn_down_to_the_weight_of_one_token_and_not_to_rounding(ax):
    random = np.random.default_rng(0)
    log_prob = np.repeat([0.0, -1e-17], SIZE // 2) - random.exponential(1.0, SIZE) * (random.random(SIZE) < 0.1)
    log = Log(log_prob, log_prob, np.where(np.arange(SIZE) < 80, random.standard_normal(SIZE), 1e-18))
    tail = covariance_tail(log, order(covariance_score(log)))
    top = max(tail.permuted_highest.max(), -tail.permuted_lowest.min(), tail.highest[0], -tail.lowest[0])
    log_plots.ranked_covariance(tail, ax)
    bottom, upper = ax.get_ylim()
    assert top / SIZE / 1.5 <= bottom < 100 * top / SIZE
    assert top < upper < 2 * top


def test_marks_lie_on_tokens_that_the_method_selects_and_candidates_stand_for_the_chosen(log, ax, monkeypatch):
    monkeypatch.setattr(log_plots, "MARKED", 3)
    few, many = np.arange(SIZE) < 2, np.arange(SIZE) % 2 == 0
    log_plots.marked_tokens(log, {"x candidates": many, "x": few, "y": few, "z": 0.5 * few}, ax)
    drawn = {line.get_label(): line.get_xydata() for line in ax.lines}
    assert list(drawn) == ["x candidates", "y"]
    pairs = np.column_stack([log.log_prob, log.advantage])
    np.testing.assert_array_equal(drawn["y"], pairs[:2])
    assert len(drawn["x candidates"]) == 3
    assert {tuple(pair) for pair in drawn["x candidates"]} <= {tuple(pair) for pair in pairs[many]}


def test_profiles_are_drawn_a_row_a_method(log, ax):
    shares = {"all tokens": profile(log, np.ones(SIZE)), "none": profile(log, np.zeros(SIZE))}
    log_plots.profiles(shares, ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["all tokens"]
    drawn = {line.get_label(): line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1}
    assert drawn == {text: getattr(shares["all tokens"], field) for field, text in log_plots.SHARES.items()}


def test_a_log_without_covariance_can_be_drawn(ax):
    from softmaxdyn.diagnostics import diagnose

    log = Log(-np.ones(3), -np.ones(3), np.zeros(3))
    found, touched = diagnose(log, {"KL-Cov": KLCov()}, permutations=2)
    FigureCanvasAgg(log_plots.diagnosis(log, found, touched)).draw()
