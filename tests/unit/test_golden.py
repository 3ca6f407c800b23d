"""Every rule over every golden session: a recorded slow program of each cause and its fixed twin, and the whole matrix of what
is found in them. How they are recorded, and how a change is accepted: tests/golden.py."""

from __future__ import annotations

import json

import pytest

from .. import golden

MATRIX = golden.read_matrix()
SESSIONS = {f"{cause}/{variant}" for cause in golden.CAUSES for variant in golden.VARIANTS}
ARCHIVES = {golden.pack_path(cause): cause for cause in golden.CAUSES}


@pytest.fixture(scope="module")
def sessions():
    """Of all sessions, what is found in them and which names of a machine they hold."""
    return {
        f"{cause}/{variant}": (golden.find_packed(pack), golden.names_of_this_machine(pack))
        for path, cause in ARCHIVES.items()
        for variant, pack in golden.open_packs(path).items()
    }


@pytest.fixture(scope="module")
def findings(sessions):
    return {name: found for name, (found, _) in sessions.items()}


def test_every_cause_has_a_slow_and_a_fixed_session_and_no_session_is_anything_else(sessions):
    assert set(golden.GOLDEN.rglob("*.tar.xz")) == set(ARCHIVES)
    assert set(MATRIX) == set(sessions) == SESSIONS


def test_all_rules_over_all_sessions_find_what_the_matrix_says(findings):
    changed = {name: found for name, found in findings.items() if not golden.agrees(MATRIX[name], found)}
    now = {name: golden.describe(*name.split("/"), found) for name, found in changed.items()}
    lines = [f"was {json.dumps(MATRIX[name])}\nnow {json.dumps(row)}" for name, row in now.items()]
    assert not lines, "\n".join([*lines, "meant? `python tests/golden.py --accept` writes the matrix anew"])


def test_the_cause_is_found_first_in_the_slow_program_and_not_in_the_fixed_one():
    """As the matrix has it; a line with a `why` is one where that is not so, with the reason."""
    odd = set()
    for name, row in MATRIX.items():
        cause, variant = name.split("/")
        found = [said for said, _, _ in row["found"]]
        right = found[:1] == [cause] if variant == "slow" else cause not in found
        if right == ("why" in row):
            odd.add(name)
    assert odd == set()


def test_a_change_of_cause_order_place_or_gain_is_seen(findings):
    name = "env-step-hot/slow"
    row, found = MATRIX[name], findings[name]
    first, low, high = row["found"][0]
    assert golden.agrees(row, found)
    assert not golden.agrees(row, ())
    assert not golden.agrees(row, (*found, *found))
    assert not golden.agrees({**row, "function": "another"}, found)
    assert not golden.agrees({**row, "found": [["another", low, high], *row["found"][1:]]}, found)
    assert not golden.agrees({**row, "found": [[first, high, 2 * high], *row["found"][1:]]}, found)


def test_sessions_are_small_and_name_no_folder_of_the_machine_they_were_recorded_on(sessions):
    assert {path.name: path.stat().st_size for path in ARCHIVES if path.stat().st_size > golden.MOST_BYTES} == {}
    assert {name: machine for name, (_, machine) in sessions.items() if machine} == {}


def test_a_folder_of_a_machine_is_seen():
    for path in (b"main/tmp/w/train.py", b"/root/.pyenv/lib", b"x /work/a", b'"/home/me/train.py"'):
        assert golden.names_of_this_machine({"sources.json": path})
    for path in (b"/home/user/train.py", b"/venv/lib/python3.11/site-packages/torch/worker.py", b"/usr/lib/python3.11/os.py"):
        assert not golden.names_of_this_machine({"sources.json": path})
