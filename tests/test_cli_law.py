"""The command `law`: what it prints, draws and writes; every fault is one line and leaves no file."""

import json
import os
import struct

import numpy as np
import pytest
from click.testing import CliRunner

from softmaxdyn import cli, law_plots, laws, plots
from softmaxdyn.errors import InputError


def rows(run, count=60, seed=0, high=1.5):
    """Lines run,step,entropy,reward of a run on the law 1 − 0.2 exp(H)."""
    entropy = 0.05 + high * np.exp(-4.0 * np.arange(count) / count)
    reward = 1.0 - 0.2 * np.exp(entropy) + 0.01 * np.random.default_rng(seed).standard_normal(count)
    return [f"{run},{step},{h:.6f},{r:.6f}" for step, (h, r) in enumerate(zip(entropy, reward, strict=True))]


def write(folder, lines, header="run,step,entropy,reward"):
    (folder / "curve.csv").write_text("\n".join([header, *lines]))
    return folder / "curve.csv"


def invoke(*arguments):
    return CliRunner().invoke(cli.main, ["law", *map(str, arguments)])


def law(path, *arguments):
    """What is printed, and the numbers in the JSON file."""
    folder = path.parent
    done = invoke(path, "--json", folder / "numbers.json", "--out", folder, *arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.exception or done.output
    return done.stdout, json.loads((folder / "numbers.json").read_text("utf-8"))


@pytest.fixture
def no_figure(monkeypatch):
    """Drawing takes a second and is tested once."""
    monkeypatch.setattr(law_plots, "law", lambda *data: None)
    monkeypatch.setattr(plots, "save_figure", lambda figure, stem: [])


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    path = write(tmp_path_factory.mktemp("law"), [*rows("one"), *rows("two", seed=1), *rows("still", high=0.0)])
    return path, *law(path)


def test_figure_and_numbers_are_written(two_runs):
    path, printed, _ = two_runs
    assert sorted(os.listdir(path.parent)) == ["curve.csv", "law.png", "law.svg", "numbers.json"]
    assert struct.unpack(">I", (path.parent / "law.png").read_bytes()[16:20])[0] == 7 * 300
    assert all(str(path.parent / name) in printed for name in ("law.png", "law.svg", "numbers.json"))


def test_every_run_has_its_row_with_the_numbers_of_the_library(two_runs):
    path, printed, numbers = two_runs
    for run in laws.read_runs(path).runs[:2]:
        fit = laws.fit(run.entropy, run.reward)
        cell = "{:.3g} [{:.3g}, {:.3g}]".format
        line = next(line for line in printed.splitlines() if line.startswith(f"{run.name} "))
        for symbol in ("a", "b", "ceiling"):
            assert cell(fit.coefficients[symbol], *fit.intervals[symbol]) in line
        written = numbers["runs"][run.name]["forms"]["exponential"]
        assert written["coefficients"] == fit.coefficients
        assert written["intervals"]["ceiling"] == {
            "low": fit.intervals["ceiling"].low,
            "high": fit.intervals["ceiling"].high,
        }
        assert f" {fit.r_squared:.3f} " in line


def test_errors_of_all_forms_are_printed_from_the_same_cuts(two_runs):
    _, printed, numbers = two_runs
    table = printed[printed.index("Errors on held-out rows") :]
    cells = next(line for line in table.splitlines() if line.startswith("one ")).split()[1:]
    forms = numbers["runs"]["one"]["forms"]
    assert list(forms) == list(laws.FORMS)
    errors = [f"{form[side]['error']:.3g}" for side in ("forward", "backward") for form in forms.values()]
    lowest = min(form["aic"] for form in forms.values())
    assert cells == errors + [f"{form['aic'] - lowest:.1f}" for form in forms.values()]
    assert {form["forward"]["fitted"] for form in forms.values()} == {9}
    assert {form["backward"]["fitted"] for form in forms.values()} == {30}


def test_a_run_that_cannot_be_fitted_is_listed_and_does_not_stop_the_others(two_runs):
    _, printed, numbers = two_runs
    assert "curve.csv: 3 runs; entropy is 'entropy', reward is 'reward', step is 'step', run is 'run'" in printed
    assert "note: still: not fitted: entropy is 0.05 in every row; wanted one that changes" in printed
    assert list(numbers["not_fitted"]) == ["still"]
    assert list(numbers["runs"]) == ["one", "two"]


@pytest.mark.usefixtures("no_figure")
def test_steps_columns_and_forms_can_be_chosen(tmp_path):
    path = write(tmp_path, rows("r"), header="name,t,h,acc2")
    choice = ["--entropy", "h", "--reward", "acc2", "--step", "t", "--run", "name", "--from", 10, "--to", 49]
    printed, numbers = law(path, *choice, "--form", "linear", "--seed", 3, "--forward", 0.25, "--level", 0.9)
    assert numbers["settings"]["columns"] == {"entropy": "h", "reward": "acc2", "step": "t", "run": "name"}
    assert list(numbers["runs"]["r"]["forms"]) == ["exponential", "linear"]
    assert numbers["runs"]["r"]["forms"]["linear"]["rows"] == 40
    assert numbers["runs"]["r"]["forms"]["linear"]["forward"]["fitted"] == 10
    assert "with 90 % intervals" in printed


@pytest.mark.usefixtures("no_figure")
def test_remarks_of_the_library_are_printed_as_notes(tmp_path):
    lines = [*rows("r"), "r,99,,0.5"]
    printed, numbers = law(write(tmp_path, lines))
    assert "note: r: 1 of 61 rows lack entropy or reward and are left out" in printed
    assert "note: r: without entropy or reward: line 62\n" in printed
    remarks = ["1 of 61 rows lack entropy or reward and are left out", "without entropy or reward: line 62"]
    assert set(remarks) <= set(numbers["runs"]["r"]["remarks"])


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_rows_that_are_left_out_are_counted_and_the_first_are_named_by_their_place_in_the_file(tmp_path, suffix):
    path = tmp_path / f"curve.{suffix}"
    rows = [{"step": step, "entropy": 1 / (1 + step), "reward": None if step % 2 else step} for step in range(16)]
    match suffix:
        case "csv":  # a blank line and a cell of two lines come before
            cells = [f"{row['step']},{row['entropy']},{'' if row['reward'] is None else row['reward']}" for row in rows]
            path.write_text("\n".join(["step,entropy,reward,x", "", '-1,2,3,"a\nb"', *(f"{each},c" for each in cells)]))
        case "jsonl":
            path.write_text("\n\n".join(map(json.dumps, rows)))
        case "json":
            path.write_text(json.dumps(rows))
    places = {"csv": "lines 6, 8, 10, 12, 14", "jsonl": "lines 3, 7, 11, 15, 19", "json": "rows 2, 4, 6, 8, 10"}
    (run,) = laws.read_runs(path).runs
    assert run.remarks == (f"without entropy or reward: {places[suffix]} and 3 more",)


def test_rows_without_a_step_are_the_last_or_left_out_with_a_note(tmp_path):
    path = write(tmp_path, [*rows("r"), "r,,0.1,0.9", "s,1,0.1,0.9", "r,,0.2,0.8"])
    first, last = laws.read_runs(path).runs[0], laws.read_runs(path, first=1).runs[0]
    assert (len(first.step), first.remarks) == (62, ("2 rows without a step, taken last: lines 62, 64",))
    assert (len(last.step), last.remarks) == (59, ("2 rows without a step, left out: lines 62, 64",))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "step,entropy,reward,entropy\n1,2,3,4\n", "two columns are named 'entropy'"),
        (
            "a.csv",
            "run,entropy,reward\nr,2,3\n,2,3\n",
            "has no 'run', the name of the run, in 1 of 2 rows (line 3); fill",
        ),
        ("a.csv", "\n \n", "is empty"),
        ("a.csv", b"\xff\xfe\x00a,b", "is not UTF-8 text (invalid start byte)"),
        (f"{'x' * 300}.csv", None, "cannot be read: File name too long"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_line(tmp_path, monkeypatch, name, text, message):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    done = invoke(name)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"softmaxdyn: {name}: {message}")


def test_a_pipe_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="pipe.csv: is not a regular file"):
        laws.read_runs(tmp_path / "pipe.csv")


@pytest.mark.usefixtures("no_figure")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--form", "cubic"], "unknown form 'cubic' (known: exponential, linear, power, quadratic)"),
        (["--forward", 15], "--forward is 15.0; wanted a finite number in (0, 1]"),
        (["--level", 0], "--level is 0.0; wanted a finite number in (0, 1]"),
        (["--replicates", 5], "--replicates is 5; wanted a whole number ≥ 100"),
        (["--seed", -1], "--seed is -1; wanted a whole number ≥ 0"),
        (["--reward", "rewart"], "unknown column 'rewart'; did you mean 'reward'? (known: run, step, entropy, reward)"),
        (["--from", 70], "has no row with a step in [70, inf]; its steps are 0 … 59"),
        (["--from", 57], "3 of 3 rows have both entropy and reward; wanted at least 4"),
        (["--run", "step"], "none of 60 runs can be fitted; the first, 0: 1 of 1 rows have both"),
        (["--out", "curve.csv"], "cannot write to 'curve.csv' ('curve.csv' is no folder); pass another --out FOLDER"),
        (["--out", "new/folder", "--from", 70], "has no row with a step in [70, inf]; its steps are 0 … 59"),
        (["--json", "curve.csv"], "--json is 'curve.csv', the file that is read; wanted another, or it would be lost"),
        (["--json", "nowhere/a.json"], "--json is 'nowhere/a.json'; wanted a file in a folder that exists"),
    ],
)
def test_faults_are_one_line_and_leave_no_file(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, rows("r"))
    done = invoke("curve.csv", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("softmaxdyn: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert os.listdir() == ["curve.csv"]


def test_a_missing_file_is_refused():
    done = invoke("no.csv")
    assert (done.exit_code, done.stderr) == (2, "softmaxdyn: no.csv: no such file\n")


def test_a_panel_holds_the_rows_the_forms_and_the_ceiling(two_runs):
    path = two_runs[0]
    run = laws.read_runs(path).runs[0]
    found = laws.compare(run.entropy, run.reward)
    with plots.panels(1, 1, 2.0) as (_, ((ax,),)):
        law_plots.forms(found, ax)
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), np.stack([run.entropy, run.reward], 1))
    lines = {line.get_label(): line for line in ax.lines}
    for name, rival in found.rivals.items():
        at, drawn = lines[name].get_data()
        np.testing.assert_allclose(drawn, rival.fit.predict(at), rtol=1e-12)
    assert ax.containers[0].lines[0].get_data() == ([0.0], [found.law.ceiling])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("entropy, H (nats)", "reward, R")
    bottom, top = ax.get_ylim()
    assert bottom < run.reward.min() < found.law.ceiling < top


def test_six_runs_at_most_are_drawn_and_no_runs_are_refused(two_runs):
    run = laws.read_runs(two_runs[0]).runs[0]
    found = laws.compare(run.entropy, run.reward, replicates=100)
    figure = law_plots.law({f"{'long ' * 10}{n}": found for n in range(8)})
    titles = [ax.get_title() for ax in figure.axes]
    assert len(titles) == 6
    assert titles[5].startswith("…")
    assert titles[5].endswith("long 5")
    with pytest.raises(InputError, match="no runs to plot; wanted a mapping"):
        law_plots.law({})
