"""Is a `yield` inside this `with`? Then the span stays open while the generator is suspended, and its time is not its own.

What lives here: one look at a code object. The recorder calls it when a span is opened by a generator's frame; the label
is then flagged in the report with this place. `@profile_function` on the generator is the cure.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType

_ASYNC_GENERATOR = 0x200


def yield_site(code: CodeType, lasti: int) -> str | None:
    """`file:line` of the `with` at `lasti` if its body yields, else None."""
    import dis

    instructions = list(dis.get_instructions(code))
    at = next((i for i in instructions if i.offset == lasti), None)
    if at is None or not at.opname.startswith("BEFORE_"):
        return None
    body = sorted(entry for entry in _handlers(code.co_exceptiontable) if entry[0] > lasti)
    if not body:
        return None
    begin, target = body[0][0], body[0][2]
    end = max(stop for _, stop, where in body if where == target)
    wraps = {i.offset + 2 for i in instructions if i.opname == "ASYNC_GEN_WRAP" or i.argrepr == "INTRINSIC_ASYNC_GEN_WRAP"}
    plain = not code.co_flags & _ASYNC_GENERATOR  # an async generator also yields to await; only wrapped values count
    if any(i.opname == "YIELD_VALUE" and begin <= i.offset < end and (plain or i.offset in wraps) for i in instructions):
        line = at.positions.lineno if at.positions else None
        return f"{code.co_filename}:{line or code.co_firstlineno}"
    return None


def _handlers(table: bytes) -> Iterator[tuple[int, int, int]]:
    """(start, end, handler) in bytes of code, from an exception table: numbers in six-bit digits, bit 6 says "more"."""
    numbers: list[int] = []
    more = False
    for byte in table:
        if not more:
            numbers.append(0)
        numbers[-1] = numbers[-1] << 6 | byte & 63
        more = bool(byte & 64)
    for i in range(0, len(numbers) - 3, 4):
        start, length, target = numbers[i] * 2, numbers[i + 1] * 2, numbers[i + 2] * 2
        yield start, start + length, target
