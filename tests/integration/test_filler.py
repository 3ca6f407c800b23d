"""How much of what sequence networks are given is filler, as the hooks look at it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch

from hotloop.integrations import reads
from hotloop.integrations.torch import _Watch


def look(network, inputs) -> dict[str, int]:
    counted: Counter[str] = Counter()
    recorder = SimpleNamespace(count_seen=lambda name, n=1: counted.update({name: n}))
    _Watch(SimpleNamespace(recorder=recorder, note=print), torch)._look_for_filler("learn", network, inputs)
    return dict(counted)


def sequences(*lengths: int, steps: int = 10) -> torch.Tensor:
    rows = torch.ones(len(lengths), steps, 3)
    for row, length in zip(rows, lengths, strict=True):
        row[length:] = 0
    return rows


@pytest.mark.parametrize(
    ("inputs", "filler"),
    [
        (sequences(2, 4, 3), 600),  # the longest has four of ten
        (sequences(2, 4, 3).transpose(0, 1), 600),
        (sequences(2, 4, 3).flip(1), 600),
        (sequences(2, 10, 3), 0),
        (sequences(0, 0), 1000),
        (torch.tensor([[5, 6, 0, 0], [7, 0, 0, 0]]), 500),
        (torch.tensor([[9, 9, 5, 6], [9, 9, 9, 6]]), 500),
        (torch.tensor([[5, 6, 7, 8], [5, 7, 0, 0]]), 0),
    ],
    ids=["end", "time first", "beginning", "full", "empty", "tokens", "tokens left", "full tokens"],
)
def test_what_is_filler_in_all_sequences_is_counted_without_reading_a_number(inputs, filler, monkeypatch):
    for name in reads.CALLS:
        monkeypatch.setattr(torch.Tensor, name, lambda *_: pytest.fail("this would count as one of the script's reads"))
    assert look(torch.nn.GRU(3, 4), inputs) == {"~learn_sequences": 1000, "~learn_filler": filler}


def embedded(*lengths: int, steps: int = 10) -> torch.Tensor:
    """As a network gets them whose steps were filled up, then embedded by word and place: nothing in them is zero."""
    places, words = torch.arange(1.0, steps + 1).view(1, steps, 1), torch.arange(1.0, len(lengths) + 1).view(-1, 1, 1)
    rows = (places + 0.01 * words).repeat(1, 1, 3)
    for row, length in zip(rows, lengths, strict=True):
        row[length:] = places[0, length:]
    return rows


@pytest.mark.parametrize(
    ("inputs", "filler"),
    [
        (embedded(2, 4, 3, 6), 400),
        (embedded(2, 4, 3, 6).transpose(0, 1), 400),
        (embedded(2, 4, 3, 10), 0),
        (embedded(2, 4, 6), 0),  # three may be alike by chance
        (embedded(2, 4, 3, 6).flip(1), 0),  # what all begin with may be a question that all answer
        (embedded(0, 0, 0, 0), 0),  # sequences that do not differ
    ],
    ids=["batch first", "time first", "full", "few", "beginning", "alike"],
)
def test_steps_that_were_filled_up_and_then_embedded_are_alike_in_all_sequences(inputs, filler):
    assert look(torch.nn.GRU(3, 4), inputs) == {"~learn_sequences": 1000, "~learn_filler": filler}


def test_pictures_and_networks_without_sequences_are_left_alone():
    assert look(torch.nn.Conv1d(3, 4, 1), sequences(2, 4)) == {}
    assert look(torch.nn.GRU(3, 4), torch.zeros(5, 3)) == {}
