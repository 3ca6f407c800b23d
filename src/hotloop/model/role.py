"""Roles: what a hooked call means in a training loop. The one place where they are listed.

What lives here: the codes that hooks are made with, for the integrations and both recorders.
"""

from __future__ import annotations

# SPAN: a span. ENV: an environment's method; the outermost call is the event, calls within it are its layers, by class.
# MODEL: a network; only the outermost call is a span, and what comes next decides its phase. LISTS: as MODEL, but only
# when the first argument is a list. PHASE: everything within belongs to one phase. TRIAL: its results will show whether it is
# an environment's; until then it leaves no trace.
SPAN, ENV, MODEL, LISTS, PHASE, TRIAL = range(6)
# What is open on a track; a hook is passed by while one of its `within` is.
IN_ENV, IN_MODEL, IN_LEARN, IN_LOG, IN_SAVE, IN_PHASE, IN_DATA, IN_RENDER, IN_TRIAL = (1 << i for i in range(9))
# ENDS: a step that somebody else counts, but for its episodes.
COUNT_NOTHING, COUNT_STEP, COUNT_RESET, COUNT_UPDATE, COUNT_ENDS = range(5)
