"""The engine: every rule looks, the most specific claims first, and what remains is told in the order of its gain.

What lives here: the causes in the order of their claims, and the merging. One story: time that a specific cause
explains (an env step that is slow because it draws) is taken from the general ones, which then have less to say or nothing.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shlex
from collections.abc import Collection, Iterable
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...model.finding import Finding
from ...model.session import SessionData
from . import causes as folder
from .evidence import Evidence
from .rule import Candidate, predict

if TYPE_CHECKING:
    from ..diagnosis import Diagnosis

# Without phases all is known from samples. Of this many, a place with a tenth of the time is seen 3 ± 1.7 times.
LEAST_SAMPLES = 30


def causes() -> dict[str, ModuleType]:
    """Every cause we can name, by id, in the order of their turns to claim time: the most specific first."""
    modules = [importlib.import_module(f"{folder.__name__}.{x.name}") for x in pkgutil.iter_modules(folder.__path__)]
    return {x.__name__.rpartition(".")[2].replace("_", "-"): x for x in sorted(modules, key=lambda x: x.TURN)}


def title(module: ModuleType) -> str:
    """What a cause is: the first line of its page."""
    return (module.__doc__ or "").partition("\n")[0].removesuffix(".")


def check_causes(names: Iterable[str]) -> None:
    """Refuse, in one sentence, a name that is no cause's."""
    for name in names:
        if name not in causes():
            raise UsageError(f"{name} is no cause; `hotloop explain` lists them")


def find_findings(diagnosis: Diagnosis, select: Collection[str] = (), ignore: Collection[str] = ()) -> tuple[Finding, ...]:
    """What slows this run down, largest gain first."""
    if not _has_begun(diagnosis):
        return ()  # what was seen is importing and setting up
    evidence = Evidence(diagnosis)
    claimed: set[int] = set()
    findings = []
    for name, module in causes().items():
        if name in ignore or (select and name not in select):
            continue
        found = _claim(module.find(evidence), evidence, claimed)
        if found is not None:
            findings.append(_finding(name, module.ACTION, found, evidence))
    return tuple(sorted(findings, key=lambda f: -f.gain.mid))


def _has_begun(diagnosis: Diagnosis) -> bool:
    """Did the loop begin? Hooks know it by its work or its workers; where they saw no loop, the script says it by counting work
    or closing iterations itself."""
    work = diagnosis.counters.get("env_steps") or diagnosis.counters.get("updates")
    if diagnosis.phases.known:
        return bool(work) or len(diagnosis.processes) > 1
    seen = sum(stack.count for stack in diagnosis.stacks)
    return seen >= LEAST_SAMPLES and bool(work or diagnosis.iterations_closed)


def _claim(candidate: Candidate | None, e: Evidence, claimed: set[int]) -> Candidate | None:
    """What is left of a candidate after those before it have taken theirs."""
    if candidate is None or not candidate.slices:
        return candidate
    left = tuple(x for x in candidate.slices if x.index not in claimed)
    before, after = e.share(candidate.slices), e.share(left)
    if before <= 0 or after < 0.5 * before or after < 0.04:
        return None
    claimed.update(x.index for x in left)
    if after >= 0.99 * before:
        return candidate
    share = candidate.share * after / before if candidate.share is not None else None
    return replace(candidate, slices=left, share=share)


def _finding(cause: str, action: str, c: Candidate, e: Evidence) -> Finding:
    share = c.share if c.share is not None else e.share(c.slices)
    gain = c.gain or predict(share, c.removes, c.extra)
    file = shown_file(c.where.file, e.session)
    return Finding(
        cause=cause, title=c.title, span=c.span, file=file, line=c.where.line,
        function=c.where.function, share=min(1.0, max(0.0, share)), gain=gain, evidence=c.evidence,
        action=c.action or action, verify=verify_command(e.session, file),
    )  # fmt: skip


def shown_file(file: str, session: SessionData) -> str:
    """As on the command line, or relative to where the script ran."""
    cwd = session.meta.get("cwd")
    command = session.meta.get("command")
    if isinstance(command, list):
        for word in command:
            if isinstance(word, str) and isinstance(cwd, str) and os.path.join(cwd, word) == file:
                return word
    if isinstance(cwd, str) and file.startswith(cwd.rstrip("/") + "/"):
        return file[len(cwd.rstrip("/")) + 1 :]
    return file


def verify_command(session: SessionData, file: str) -> str:
    """How to prove the fix: keep a copy of what there was, make the change, run both in turns.

    Where the change belongs into the script itself, a copy of the script is enough; elsewhere the whole folder is copied."""
    command = session.meta.get("command")
    words = [w for w in command[1:] if isinstance(w, str)] if isinstance(command, list) else []
    if not words or words[0] == "-c":
        return ""
    after = shlex.quote(f"python {shlex.join(words)}")
    if file != words[0] or not file.endswith(".py"):
        return f"cp -r . ../before; make the change; hotloop ab {after} {after} --a-in ../before"
    copy = f"{file.removesuffix('.py')}_before.py"
    before = shlex.quote(f"python {shlex.join([copy, *words[1:]])}")
    return f"cp {shlex.quote(file)} {shlex.quote(copy)}; make the change; hotloop ab {before} {after}"
