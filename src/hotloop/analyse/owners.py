"""Who owns the time: your code, the environment's library, the RL framework, the tensor runtime, IPC, logging.

What lives here: from the place a span was opened (file) to an owner, and the sum over a sheet. What lies between hooked calls
is owned by the files the sampler saw there. The rest is "unknown", never guessed from a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..adapters import ADAPTERS
from ..model.adapter import OWNERS, OWNS
from ..model.code import package_of
from ..model.ledger import Branch
from ..model.phase import STARTUP
from ..model.shard import INFERRED, ROOT
from ..model.sheet import SPAN, Sheet, split_exactly

YOURS, ENV, FRAMEWORK, TENSOR, IPC, LOGGING, LIBRARY, UNKNOWN, STARTING = (
    "your code", "env library", "RL framework", "tensor runtime", "IPC", "logging", "other library", "unknown", "start-up",
)  # fmt: skip

Owners = Mapping[str, str]  # by package
OWNER_OF: Owners = {package: adapter.owner for adapter in ADAPTERS for package in adapter.packages}


def known_owners(hooks: Iterable[Mapping[str, str]]) -> Owners:
    """Ours, and what the adapters of other packages said in this session, which anyone may have written.

    >>> known = known_owners([{"state": OWNS, "detail": "env library: snakes torch"}, {"state": OWNS, "detail": "me: pits"}])
    >>> known["snakes"], known["torch"], "pits" in known
    ('env library', 'tensor runtime', False)
    """
    said = [row["detail"].partition(": ") for row in hooks if row.get("state") == OWNS]
    return {**{package: owner for owner, _, packages in said if owner in OWNERS for package in packages.split()}, **OWNER_OF}


def owner_of(file: str, known: Owners = OWNER_OF) -> str:
    """The owner of a source file.

    >>> owner_of("/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py"), owner_of("/home/me/train.py")
    ('tensor runtime', 'your code')
    """
    if not file:
        return UNKNOWN
    package = package_of(file)
    if package:
        return known.get(package, LIBRARY)
    return LIBRARY if file.startswith("<frozen") else YOURS


def share_out(
    sheet: Sheet,
    files: Mapping[str, str],
    tree: Sequence[Branch] = (),
    between: Mapping[str, int] | None = None,
    known: Owners = OWNER_OF,
) -> dict[str, int]:
    """Nanoseconds by owner, with waiting, unattributed and profiler beside them; they add up to the sheet. `between`: samples
    by owner of what lies between hooked calls."""
    totals: Counter[str] = Counter()
    owners: list[str] = []
    gaps = 0
    for row in sheet.rows:
        branch = tree[row.branch] if 0 <= row.branch < len(tree) else None
        own = owner_of(files.get(row.name, ""), known) if row.kind == SPAN and branch is not None else UNKNOWN
        if branch is not None and branch.phase == STARTUP:
            own = STARTING
        inherited = owners[row.parent] if row.parent >= 0 else UNKNOWN
        owners.append(own if own != UNKNOWN else inherited)
        if row.leaf and row.account == SPAN and between and branch is not None and branch.kind == INFERRED:
            gaps += row.ns
        elif row.leaf:
            totals[owners[-1] if row.account == SPAN else row.account] += row.ns
    if between:
        names = sorted(between)
        totals.update(dict(zip(names, split_exactly(gaps, [between[name] for name in names]), strict=True)))
    return {owner: ns for owner, ns in totals.most_common() if ns}


def owners_between(stacks: Iterable[tuple[int, str, int]], tree: Sequence[Branch], known: Owners = OWNER_OF) -> dict[str, int]:
    """Samples by owner, of (branch, innermost file, count), where no hooked call was open."""
    found: Counter[str] = Counter()
    for branch, file, count in stacks:
        if tree[branch].kind in (ROOT, INFERRED) and file:
            found[owner_of(file, known)] += count
    return dict(found)
