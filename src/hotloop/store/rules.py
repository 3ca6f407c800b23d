"""Which rules a session was read by.

What lives here: what the numbers and findings of a session depend on beside the session itself.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from ..version import __version__


@cache
def rules_version() -> str:
    """The version, and a digest of the code that makes the numbers: nobody can forget to count it up."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("model", "adapters", "store", "analyse"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"
