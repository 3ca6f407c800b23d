"""What `hotloop run` does inside the script's processes, before the script's first line.

What lives here: importing `hotloop.api` joins the session named in the environment; the hooks the supervisor asked for in
`session.json` are installed as the libraries they know are imported. Invariant: standard library and our own modules only;
nothing here raises.
"""

from __future__ import annotations

import json

import hotloop.api  # reads HOTLOOP_SESSION and joins it

from ..integrations import probes
from ..integrations.install import Hooks
from ..record.backend import recorder
from ..store.schema import SESSION_FILE


def install_hooks() -> None:
    """The hooks of this process, as the session says."""
    session = hotloop.api.get_profiler().path
    if session is None:
        return
    options = json.loads((session / SESSION_FILE).read_bytes()).get("options", {})
    names = options.get("hooks", "")
    if options.get("probe") is True:
        probes.HELD.session, probes.HELD.on = str(session), True
        hotloop.api.get_profiler().after_all = probes.run
    if names:
        deep = options.get("torch_trace") if hotloop.api.is_root() else None  # one window, in the main process
        trace = None
        if deep:
            from ..model.trace import trace_settings

            trace = trace_settings(deep)
        Hooks(recorder, str(session), names.split(","), trace, options.get("adapters")).install()


install_hooks()
