"""From a directory to its diagnosis: how every verb reads a session."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..analyse.diagnosis import Diagnosis
    from ..model.session import SessionData


def read_diagnosis(
    path: Path | str, select: Collection[str] = (), ignore: Collection[str] = (), ended: bool = False
) -> Diagnosis:
    """What a session says. A deep window's trace is folded first, once, and kept beside it. `ended`: its script ended just now,
    so that the text of its lines can be kept."""
    from ..analyse.diagnosis import diagnose
    from ..model.history import History
    from ..store.predictions import read_outcomes
    from ..store.reader import read_session

    folder = Path(path)
    if folder.is_dir():
        _keep_operators(folder)
    session = read_session(folder)
    return diagnose(_with_sources(session) if ended else session, select, ignore, History(read_outcomes()))


def _with_sources(session: SessionData) -> SessionData:
    from ..store.sources import keep_sources

    places = (place for shard in session.shards for place in shard.samples.places)
    try:
        return replace(session, sources=keep_sources(session.path, places))
    except OSError as error:
        click.echo(f"hotloop: the text of the script could not be kept ({error.strerror or error})", err=True)
        return session


def _keep_operators(session: Path) -> None:
    """Fold the session's trace into `torch_ops.json`, if there is one that was not."""
    from ..store.operators import OPS_FILE, find_trace

    trace = find_trace(session)
    if trace is None or (session / OPS_FILE).exists():
        return
    from ..analyse.operators import fold_operators
    from ..errors import HotloopError
    from ..store.operators import read_trace, write_ops

    try:
        write_ops(session, fold_operators(read_trace(trace), _iterations(session)))
    except HotloopError as error:
        click.echo(f"hotloop: {error}", err=True)
    except OSError as error:
        click.echo(f"hotloop: the operators of the deep window could not be kept ({error.strerror or error})", err=True)


def _iterations(session: Path) -> int:
    """How many the window was asked to hold."""
    from ..errors import HotloopError
    from ..store.reader import read_json
    from ..store.schema import SESSION_FILE

    try:
        said = read_json(session / SESSION_FILE)["options"]["torch_trace"]["active_steps"]
    except (HotloopError, KeyError, TypeError):
        return 0
    return said if isinstance(said, int) and 0 < said < 1000 else 0
