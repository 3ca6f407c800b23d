"""Who owns the time: by the file a span was opened in, by the samples between hooked calls, and the start-up apart."""

from __future__ import annotations

from hotloop.analyse.owners import ENV, FRAMEWORK, STARTING, TENSOR, UNKNOWN, YOURS, owners_between, share_out
from hotloop.model import shard as m
from hotloop.model.ledger import fold
from hotloop.model.phase import LEARN, STARTUP
from hotloop.model.sheet import make_sheet

from .shards import ROOT, node, shard

TORCH = "/usr/lib/python3.11/site-packages/torch/autograd/__init__.py"


def books():
    labels = [
        ROOT,
        m.Label("learn/backward", m.USER, 100, 0, phase=LEARN),
        m.Label("learn/other", m.INFERRED, 0, 0, phase=LEARN),
        m.Label("(start-up)", m.USER, 0, 0, phase=STARTUP),
        m.Label("mine", m.USER, 0, 0),
    ]
    paths = [m.Path(0, i) for i in range(5)]
    ledger = fold([shard(labels, paths, [node(0, 0, 0), *(node(0, i, 100 * i, 1, 100 * i) for i in range(1, 5))])])
    return ledger, make_sheet(ledger, ledger.balances[0])


def test_what_lies_between_calls_is_owned_by_the_files_seen_there():
    ledger, sheet = books()
    gap = next(i for i, b in enumerate(ledger.tree) if b.kind == m.INFERRED)
    call = next(i for i, b in enumerate(ledger.tree) if b.name == "learn/backward")
    looks = [
        (gap, "/home/me/train.py", 3),
        (gap, "/x/site-packages/torchrl/a.py", 1),
        (call, "/x/site-packages/gymnasium/a.py", 9),
    ]
    between = owners_between(looks, ledger.tree)
    assert between == {YOURS: 3, FRAMEWORK: 1}
    owners = share_out(sheet, {"learn/backward": TORCH, "mine": "/home/me/train.py"}, ledger.tree, between)
    assert owners == {YOURS: 400 + 150, STARTING: 300, TENSOR: 100, FRAMEWORK: 50}
    assert ENV not in owners


def test_without_samples_it_is_unknown_and_all_adds_up():
    ledger, sheet = books()
    owners = share_out(sheet, {"learn/backward": TORCH}, ledger.tree)
    assert owners == {UNKNOWN: 200 + 400, STARTING: 300, TENSOR: 100}
    assert sum(owners.values()) == sheet.wall_ns
