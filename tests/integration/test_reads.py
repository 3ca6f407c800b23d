"""Reads of tensors on the CPU: counted in windows, scaled by how often a model was called, and nothing left behind."""

from __future__ import annotations

import json
import os

import pytest
import torch

from hotloop import api
from hotloop.integrations import _patch as p
from hotloop.integrations import reads
from hotloop.record.backend import recorder

ORIGINALS = {name: vars(torch.Tensor).get(name) for name in reads.CALLS}


@pytest.fixture
def counting(tmp_path):
    path = api.start("reads", out=tmp_path)
    patches = p.Patches(recorder, pytest.fail, str(path))
    made = reads.Reads(patches, torch)
    made.now = 1
    made._now = lambda: made.now
    made.path = path
    yield made
    patches.undo()
    api.stop()
    assert all(vars(torch.Tensor).get(name) is found for name, found in ORIGINALS.items()), "a hook was left behind"


def loop(counting, turns, each_ns=1_000_000):
    """Each turn takes a tensor apart: five `item`, one `float`."""
    x = torch.arange(5.0)
    for _ in range(turns):
        counting.turn()
        assert [x[i].item() for i in range(5)] == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert float(x[2]) == 2.0
        counting.now += each_ns


def rows_of(counting):
    counting.finish()
    (file,) = list((counting.path / "device").iterdir())
    return {row["call"]: row for row in json.loads(file.read_text())["transfers"]}


def test_counts_stand_for_the_whole_run(counting):
    loop(counting, 20_000)
    assert 3 < counting.windows <= reads.MOST_WINDOWS
    rows = rows_of(counting)
    assert rows["item"]["count"] == pytest.approx(100_000, rel=0.05)
    assert rows["float"]["count"] == pytest.approx(20_000, rel=0.05)
    assert rows["item"]["file"] == __file__
    assert rows["item"]["function"].startswith("loop")
    assert rows["item"]["direction"] == "on the host"


def test_the_number_of_windows_grows_with_the_logarithm_of_the_run(counting):
    loop(counting, 3_000, each_ns=100_000_000)
    assert counting.windows <= reads.MOST_WINDOWS
    assert all(vars(torch.Tensor).get(name) is found for name, found in ORIGINALS.items()), "between windows all is as it was"


def test_a_short_run_counts_nothing_and_writes_nothing(counting):
    loop(counting, 100)
    counting.finish()
    assert not (counting.path / "device").exists()


def test_a_device_takes_over(counting):
    loop(counting, 501)
    assert counting.windows == 1
    counting.stop()
    assert all(vars(torch.Tensor).get(name) is found for name, found in ORIGINALS.items())
    loop(counting, 2_000)
    counting.finish()
    assert not (counting.path / "device").exists()


def test_a_compiler_sees_the_methods_it_knows(counting):
    loop(counting, 501)
    p.undo_parts("traced")  # what torch.compile does first
    assert all(vars(torch.Tensor).get(name) is found for name, found in ORIGINALS.items())
    loop(counting, 5_000)
    assert counting.windows == 1


def test_a_forked_child_does_not_write_over_its_parents_counts(counting, monkeypatch):
    loop(counting, 2_000)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        counting.finish()
    assert not (counting.path / "device").exists()
