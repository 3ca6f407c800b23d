"""The RL library's own code takes much of the time.

What to do: let each call do more: more environments (stable-baselines3: `make_vec_env(name, n_envs=16)`), larger batches,
fewer callbacks; or write a leaner loop. With 16 times the environments, divide `n_steps` by 16, so that updates see as many
samples.

The library's containers, checks and conversions are paid for at every call, however little it does. Recognised by: the share
of the loop in which the innermost function is the RL library's, outside models and environments, and neither computes nor
copies data."""

from __future__ import annotations

from ....model.mechanism import DISPATCHING, INTERPRETING
from ....model.shard import WAIT
from ...owners import FRAMEWORK, owner_of
from ..axes import with_envs
from ..evidence import Evidence, Slice
from ..rule import Candidate, main_mechanism, percent

TURN = 290
ACTION = "let each call do more: more environments, larger batches, fewer callbacks"
ENVS = 16  # what is predicted for, where one environment is stepped at a time
LEAST_SHARE, LEAST_SHARE_SINGLE = 0.35, 0.28  # the second where one environment is stepped at a time


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: is_plumbing(e, x))
    share = e.share(found)
    single = 0 < e.env_steps < 1.5 * e.step_calls
    if share < (LEAST_SHARE_SINGLE if single else LEAST_SHARE):
        return None
    where = e.blame(found)
    # one environment a call: with more, what is paid per call (the network's launch cost too) is shared among them
    paid = e.where(lambda x: is_plumbing(e, x) or x.label == "collect/policy") if single else found
    saved = with_envs(e, ENVS).saved_ns(e.slices) / e.loop_ns if single else None
    return Candidate(
        f"{percent(share)} of the training loop is the RL library's own code, outside networks and environments",
        where,
        "collect",
        tuple(paid),
        share=saved,
        removes=1.0 if single else 0.6,
        evidence=(f"in {percent(share)} of the loop the innermost function was one of the library's own",),
    )


def is_plumbing(e: Evidence, piece: Slice) -> bool:
    if not piece.places or piece.kind == WAIT or any(label.endswith(("backward", "optimizer")) for label in piece.labels):
        return False
    return owner_of(piece.places[-1].file, e.owners) == FRAMEWORK and main_mechanism([piece]) in (INTERPRETING, DISPATCHING)
