"""What can go wrong, and the exit code of each.

    HotloopError (4: an internal fault)
    ├── UsageError (2: the call is wrong)
    ├── UnreadableError (3: the input cannot be read)
    └── GateError (1: a check that was asked for failed)

    HotloopWarning: something is odd but goes on; never raised into training.

Messages say what happened, to which file or label, and what to do next.
"""

from __future__ import annotations


class HotloopError(Exception):
    exit_code = 4


class UsageError(HotloopError):
    exit_code = 2


class UnreadableError(HotloopError):
    exit_code = 3


class GateError(HotloopError):
    exit_code = 1


class HotloopWarning(UserWarning):
    pass
