"""A real sweep that is killed, spoilt and run twice at once ends with the bits of an undisturbed one.

Slow (half a minute of one core): 25 processes are killed, and each that follows has to trace its programs anew.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign import EXACT, KILLS, TOTAL

ROOT = Path(__file__).parents[1]
NAMES = ["sweep.nc", "sweep_summary.nc"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """(the folder of the campaign, what it saw)."""
    folder = tmp_path_factory.mktemp("campaign")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}  # its threads would be forked
    command = [sys.executable, "-m", "tests.campaign"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def content(folder):
    return [(folder / name).read_bytes() for name in NAMES]


def finished(folder):
    """Every folder of the campaign, all of them finished at the end."""
    return [path for path in folder.iterdir() if path.name.isdigit()]


def test_processes_were_forked_while_there_was_one_thread(seen):
    assert seen[1]["threads"] == 1


def test_after_every_kill_the_same_command_goes_on_to_the_same_bits(seen):
    folder, found = seen
    assert found["codes"].count(-9) == KILLS
    assert set(found["codes"]) == {0, -9}
    assert found["codes"][-1] == 0
    for path in finished(folder):
        assert content(path) == content(folder / "undisturbed")
        assert [each.name for each in path.rglob("*.part")] == []


def test_the_kills_came_while_exact_runs_sampled_runs_and_tables_were_made(seen):
    moments = seen[1]["moments"]
    made = ["exact" if count < EXACT else "sampled" if count < TOTAL else "tables" for count in moments]
    assert set(made) == {"exact", "sampled", "tables"}
    assert len(set(moments)) > KILLS // 3, moments


def test_blocks_were_spoilt_in_between(seen):
    assert len([how for how in seen[1]["damage"] if how != "nothing"]) >= KILLS // 3 - 1
    assert len(set(seen[1]["damage"])) >= 4


def test_a_second_process_in_one_folder_is_refused_in_one_line(seen):
    code, words = seen[1]["second"]
    assert code == 2
    line = words.splitlines()[-1]
    assert line.startswith("softmaxdyn: '0' is in use by process ")
    assert line.endswith("; wait for it, or pass another folder")


def test_a_damaged_result_is_made_again(seen):
    assert seen[1]["repaired"] == [0, 0, 0]  # and the bits of folder 0 are compared above


def test_a_plan_that_was_cut_short_is_one_line_and_costs_nothing(seen):
    code, words = seen[1]["refused"]
    assert code == 2
    how = "is damaged: it is cut short or edited; remove it, and blocks of the same sweep are kept"
    assert words.splitlines()[-1] == f"softmaxdyn: '0/plan.json' {how}"
