"""What `hotloop run` does inside the script's processes, before the script's first line.

What lives here: importing `hotloop.api` joins the session named in the environment; integrations are installed as the libraries
they know are imported. Invariant: standard library and our own modules only; nothing here raises.
"""

from __future__ import annotations

import hotloop.api  # noqa: F401  reads HOTLOOP_SESSION and joins it
