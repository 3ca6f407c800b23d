"""Which half a case belongs to, by a digest of its name: `python tests/diagnosis/half.py NAME ...`."""

from __future__ import annotations

import hashlib
import sys

SEEN, UNSEEN = "cases", "unseen"


def half_of(name: str) -> str:
    return (SEEN, UNSEEN)[hashlib.sha256(name.encode()).digest()[0] & 1]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, half_of(name))
