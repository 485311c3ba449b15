"""The ledger: verdicts follow from intervals, statistics from a library, records are whole, kept and remade."""

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from softmaxdyn import InputError, cli, ledger
from softmaxdyn.ledger import Claim, Finding, Size, Statistic, exactly, reproduction, shelf, verdict
from softmaxdyn.ledger.pages import headline, wanted
from softmaxdyn.ledger.record import as_record, kept_records, maker

CLAIM = Claim("C7", "Seven is odd.", "arithmetic", "odd", lambda size: Finding())
PLAIN = '''
    """Claims that cost nothing."""
    from softmaxdyn.ledger import Finding, claim, exactly, mean

    @claim("C1", "One is one | really.", source="arithmetic", threshold="= 1", proved=True)
    def one(size):
        """By looking."""
        return Finding((exactly("one", 1, at_least=1, at_most=1),), says="It is.")

    @claim("C12", "Noise has mean 3.", source="a rumour", threshold="≥ 3")
    def noise(size):
        """Numbers of a generator."""
        import numpy as np
        values = np.random.default_rng(0).standard_normal(size.seeds)
        return Finding(
            (mean("|mean|", values, at_least=3.0),),
            counterexample="the first number is 0.1.",
            table={"value": values},
            panels=(lambda ax: ax.plot(values),) * 2,
        )
'''


@pytest.fixture
def source(tmp_path):
    """A folder of two claims."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "plain.py").write_text(textwrap.dedent(PLAIN), "utf-8")
    return folder


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def found(*ranges, **words):
    """A finding with a statistic [low, high] in a range [0, 1] for each pair."""
    return Finding(tuple(Statistic("x", low, low, high, 0.0, 1.0) for low, high in ranges), **words)


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (found((0.0, 1.0)), "holds"),
        (found((0.2, 0.3), (0.9, 1.1)), "undecided at this size"),
        (found((0.2, 0.3), (1.1, 1.2)), "fails"),
        (found((0.5, 1.5), (1.1, 1.2)), "fails"),
        (found((1.1, 1.2), only_when="x is small"), "holds only when"),
        (found((0.2, 0.3), only_when="x is small"), "holds"),
        (found((np.nan, np.nan)), "fails"),
        (found(cannot="because it has no length"), "the toy cannot decide"),
        (Finding((Statistic("x", 5, 5, 5, 0.0, 1.0, deciding=False), exactly("y", 0, at_most=0))), "holds"),
    ],
)
def test_a_verdict_follows_from_the_intervals_that_decide(finding, expected):
    assert verdict(CLAIM, finding) == expected


def test_what_is_proved_and_holds_is_a_theorem_and_else_fails():
    proved = Claim("C7", "", "", "", lambda size: Finding(), proved=True)
    assert [verdict(proved, found(pair)) for pair in ((0.1, 0.2), (2.0, 3.0))] == ["theorem", "fails"]


def test_a_finding_without_a_deciding_statistic_is_one_line():
    with pytest.raises(InputError, match=r"C7 has no deciding statistic; wanted one, or `cannot` that says why"):
        verdict(CLAIM, Finding())


def test_the_mean_and_its_interval_are_those_of_scipy():
    values = np.random.default_rng(1).standard_normal(20)
    mine = ledger.mean("x", values, at_least=-1.0)
    options = {"method": "percentile", "n_resamples": 1999, "rng": 0}
    theirs = stats.bootstrap((values,), np.mean, **options).confidence_interval
    assert mine.value == values.mean()
    assert (mine.low, mine.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert (mine.seeds, mine.at_least, mine.at_most) == (20, -1.0, np.inf)


def test_seeds_are_resampled_together_and_those_without_a_number_are_left_out():
    x = np.random.default_rng(2).standard_normal((6, 5))
    y = np.where(np.arange(6)[:, None] == 4, np.nan, 2.0 * x + 1.0)
    same = ledger.correlation("r", x, y)
    assert (same.value, same.low, same.high) == pytest.approx((1.0, 1.0, 1.0), abs=1e-12)
    assert same.seeds == 5


def test_correlations_are_those_of_scipy():
    x, y = np.random.default_rng(3).standard_normal((2, 30)).round(1)  # with ties
    assert ledger.correlation_of(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert ledger.correlation_of(x, y, ranked=True) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert np.isnan(ledger.correlation_of(np.ones(3), x[:3]))


def test_a_share_of_all_seeds_is_still_uncertain():
    every = ledger.share("x", np.ones(20, bool), at_least=0.95)
    assert every.value == 1.0
    assert every.low == pytest.approx(20 / (20 + 1.959964**2), rel=1e-6)  # Wilson, by hand
    assert verdict(CLAIM, Finding((every,))) == "undecided at this size"


def test_without_any_number_there_is_no_value():
    none = ledger.mean("x", np.full(3, np.nan), at_least=0.0)
    assert np.isnan(none.value)
    assert none.outside


@pytest.mark.parametrize(
    ("at_least", "at_most", "words"),
    [
        *((None, None, "nothing"), (-0.5, None, "≥ −0.5"), (None, 2.0, "≤ 2"), (1.9, 2.1, "1.9 … 2.1")),
        *((np.finfo(float).tiny, None, "> 0"), (None, -np.finfo(float).tiny, "< 0")),
    ],
)
def test_a_range_in_words(at_least, at_most, words):
    assert wanted({"at_least": at_least, "at_most": at_most}) == words


def test_the_verdict_comes_first_then_the_counterexample():
    finding = found((2.0, 3.0), counterexample="2.", says="It is not.", only_when="x is small")
    line = headline(as_record(CLAIM, finding, {}))
    assert line == "**holds only when x is small.** Counterexample: 2. It is not."


def test_claims_come_by_number_and_go_by_any_spelling(source):
    claims = shelf.load_claims(source)
    assert list(claims) == ["C1", "C12"]
    assert claims["C12"].experiment == "Numbers of a generator."
    assert [each.id for each in shelf.chosen(claims, ["12", "c01", "C12"])] == ["C12", "C1"]
    with pytest.raises(InputError, match=r"unknown claim 'C2'; did you mean 'C12'\? \(known: C1, C12\)"):
        shelf.chosen(claims, ["c2"])


def test_two_claims_with_one_id_are_refused(source):
    (source / "again.py").write_text((source / "plain.py").read_text("utf-8"), "utf-8")
    with pytest.raises(InputError, match="two claims have one id"):
        shelf.load_claims(source)


def test_every_claim_has_a_page_a_record_and_the_rest_where_there_is_one(source, out):
    first, second = reproduction.reproduce([], out, Size(quick=True), source=source)
    assert (first["verdict"], second["verdict"]) == ("theorem", "fails")
    assert {path.name for path in (out / "claims").iterdir()} == {
        *("C1.json", "C1.md", "C12.json", "C12.md", "C12.csv", "C12.png", "C12.svg"),
    }
    assert json.loads((out / "ledger.json").read_text("utf-8")) == [first, second]
    table = (out / "ledger.md").read_text("utf-8")
    assert "2 claims: 1 theorem, 1 fails." in table
    assert "[C1](claims/C1.md) | One is one ∣ really." in table
    csv = np.loadtxt(out / "claims" / "C12.csv", skiprows=1)
    assert np.array_equal(csv, np.random.default_rng(0).standard_normal(10))
    page = (out / "claims" / "C12.md").read_text("utf-8")
    assert "**fails.** Counterexample: the first number is 0.1." in page
    assert "\n| ∣mean∣ | " in page


def test_the_same_seed_gives_the_same_bytes_in_any_number_of_processes(source, out, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    for folder, processes in ((out, 1), (again, 2)):
        reproduction.reproduce([], folder, Size(quick=True), source=source, processes=processes)
    files = sorted(path.relative_to(out) for path in out.rglob("*.*"))
    assert len(files) == 9
    assert [(out / name).read_bytes() == (again / name).read_bytes() for name in files] == [True] * 9


def test_what_is_there_is_kept_and_what_is_damaged_or_of_other_source_is_made_again(source, out):
    seen = []

    def reproduce(**options):
        seen.clear()
        report = lambda record, kept: seen.append((record["id"], kept))  # noqa: E731
        return reproduction.reproduce([], out, Size(quick=True), source=source, report=report, **options)

    before = reproduce()
    (out / "claims" / "C12.json").write_text("{", "utf-8")
    assert reproduce() == before
    assert seen == [("C1", True), ("C12", False)]
    reproduce(fresh=True)
    assert seen == [("C1", False), ("C12", False)]
    (source / "plain.py").write_text((source / "plain.py").read_text("utf-8") + "\n# another\n", "utf-8")
    reproduce()
    assert seen == [("C1", False), ("C12", False)]


def test_the_ledger_keeps_the_claims_that_were_not_asked_for(source, out):
    before = reproduction.reproduce([], out, Size(quick=True), source=source)
    (source / "plain.py").write_text((source / "plain.py").read_text("utf-8") + "\n# another\n", "utf-8")
    (again,) = reproduction.reproduce(["C1"], out, Size(quick=True), source=source)
    assert json.loads((out / "ledger.json").read_text("utf-8")) == [again, before[1]]
    assert again["made_by"]["source"] != before[1]["made_by"]["source"]


def test_a_ledger_of_another_size_or_version_is_named(source, out, monkeypatch):
    reproduction.reproduce(["C1"], out, Size(quick=True), source=source)
    want = r"holds a quick ledger of softmaxdyn \S+, and this would be a full one of \S+; pass another --out FOLDER"
    with pytest.raises(InputError, match=want):
        reproduction.reproduce(["C1"], out, Size(), source=source)
    monkeypatch.setattr("softmaxdyn.__version__", "9.9")
    with pytest.raises(InputError, match=r"and this would be a quick one of 9\.9"):
        kept_records(out / "claims", maker(Size(quick=True), ""))
    assert reproduction.reproduce(["C1"], out, Size(), source=source, fresh=True)[0]["verdict"] == "theorem"


def test_a_cloud_of_points_is_an_image_in_the_svg_and_a_line_a_path(source, out):
    cloud = textwrap.dedent(PLAIN).replace("ax.plot(values)", "ax.plot(np.arange(5000.0) % 7, '.')")
    (source / "plain.py").write_text(cloud.replace('"""Claims that cost nothing."""', "import numpy as np"), "utf-8")
    reproduction.reproduce(["C12"], out, Size(quick=True), source=source)
    text = (out / "claims" / "C12.svg").read_text("utf-8")
    assert "data:image/png;base64" in text
    assert len(text) < 100_000


def test_columns_of_different_lengths_are_refused(source, out):
    (source / "plain.py").write_text(textwrap.dedent(PLAIN).replace('{"value": values}', '{"a": [1], "b": [1, 2]}'))
    with pytest.raises(InputError, match=r"the columns of C12 have lengths \{'a': 1, 'b': 2\}; wanted one length"):
        reproduction.reproduce(["C12"], out, Size(quick=True), source=source)


@pytest.fixture
def command(source, out, monkeypatch):
    """Runs `softmaxdyn reproduce` on the two claims."""
    monkeypatch.setattr(shelf, "claims_folder", lambda: source)
    monkeypatch.setattr(reproduction, "claims_folder", lambda: source)
    place = ("--out", str(out), "--processes", "1", "--quick")
    return lambda *arguments: CliRunner().invoke(cli.main, ["reproduce", *arguments, *place])


def test_the_command_tells_each_verdict_and_prints_the_table(command, out):
    done = command()
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == ["C1: theorem", "C12: fails"]
    assert "\nC1  theorem\n    One is one | really.\n      one = 1 (wanted 1 … 1)\n" in done.stdout
    assert "\n2 claims: 1 theorem, 1 fails\nQuick size: " in done.stdout
    assert "\n\nQuick size: " in (out / "claims" / "C12.md").read_text("utf-8")
    assert "Quick" not in (Path(__file__).parents[1] / "figures" / "claims" / "C12.md").read_text("utf-8")
    assert done.stdout.splitlines()[-1].startswith(f"wrote {out / 'ledger.md'}, ")
    assert command("c12").stderr.splitlines() == ["C12: fails (kept)"]


def test_the_command_lists_claims_without_trying_them(command, out):
    assert "Noise has mean 3." in command("--list").stdout
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["C2"], "softmaxdyn: unknown claim 'C2'; did you mean 'C12'? (known: C1, C12)"),
        (["--processes", "0"], "softmaxdyn: --processes is 0; wanted a whole number ≥ 1"),
    ],
)
def test_wrong_input_is_one_line_with_code_2(source, monkeypatch, arguments, line, tmp_path):
    monkeypatch.setattr(shelf, "claims_folder", lambda: source)
    done = CliRunner().invoke(cli.main, ["reproduce", *arguments])
    assert (done.exit_code, done.stderr) == (2, line + "\n")


def test_a_claim_killed_in_its_process_is_one_line_and_the_others_stay(source, out):
    killed = textwrap.dedent(PLAIN).replace("import numpy as np", "import os; os.kill(os.getpid(), 9)")
    (source / "plain.py").write_text(killed, "utf-8")
    with pytest.raises(InputError, match=r"a process that tried a claim was killed .*; the same command goes on"):
        reproduction.reproduce([], out, Size(quick=True), source=source, processes=2)


def test_the_claims_of_a_clone_are_those_under_experiments():
    assert shelf.claims_folder() == Path(__file__).parents[1] / "experiments" / "claims"
