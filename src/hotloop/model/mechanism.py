"""Mechanisms: what a second of the loop is spent on, whatever the code is called. The one place where they are listed.

What lives here: the words. Who may touch it: anyone. docs/mechanisms.md is the page for users.
"""

from __future__ import annotations

INTERPRETING = "interpreting"  # Python bytecode, and Python's own objects
DISPATCHING = "dispatching"  # calls of tensors and arrays whose arithmetic is negligible
COMPUTING = "computing"  # arithmetic in native code
MOVING = "moving"  # copies, casts, putting together, packing
WAITING = "waiting"  # for a lock, a pipe, a socket, a disk, a sleep, a child, a device, the interpreter
GARBAGE = "garbage"  # the collector
STARTING = "starting"  # imports, processes, environments, compilations
MECHANISMS = (INTERPRETING, DISPATCHING, COMPUTING, MOVING, WAITING, GARBAGE, STARTING)
