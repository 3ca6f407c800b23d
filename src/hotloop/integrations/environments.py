"""What is asked of environments once: are their results an environment's, which one holds another.

What lives here: two questions that the recorder or a hook asks of an object, once each; a third, whether it resets itself a
step late, is for its library's adapter to answer. Invariant: none of the script's code runs for an answer (types and references
are looked at), and nothing is kept alive.
"""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

_NUMBER_CODES = tuple("bBhHiIlLqQfd")  # of the standard library's arrays
TRIES = 3  # results that are looked at before a class is none of an environment
MOST_OBJECTS, MOST_LEVELS = 4000, 8  # of a search; an attribute is one or two levels
_LEAVES = (str, bytes, bytearray, int, float, complex, type(None), type, ModuleType, CodeType, FrameType, BuiltinFunctionType)


# ---- is it an environment? ----


class Trial:
    """Looks at the results of a `step` whose class has no `reset`: 1 an environment's, -1 never one's, 0 not known yet."""

    def __init__(self) -> None:
        self.left = TRIES
        self.give_up: Any = None  # puts the function back

    def __call__(self, result: Any) -> int:
        if shows_environment(result):
            return 1
        self.left -= 1
        if self.left > 0:
            return 0
        if self.give_up is not None:
            self.give_up()
        return -1


def shows_environment(result: Any) -> bool:
    """(observation, reward, done, …), with numbers and flags where they belong, or a time step with reward and discount."""
    if {"reward", "discount"} <= _field_names(type(result)):
        return True
    if not issubclass(type(result), tuple) or not 3 <= len(result) <= 5:
        return False
    items = list(tuple.__iter__(result))
    return _kind_of(items[1]) == "number" and (_kind_of(items[2]) == "flag" or _are_flags_as_numbers(items[1], items[2]))


def _are_flags_as_numbers(rewards: Any, ends: Any) -> bool:
    """Arrays of one shape, the second with nothing but 0 and 1 in it. It is read, if it is no device's."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    plain = {getattr(numpy, "ndarray", None), getattr(torch, "Tensor", None)}
    if type(ends) not in plain or type(rewards) is not type(ends) or rewards.shape != ends.shape or not ends.shape:
        return False
    if getattr(getattr(ends, "device", None), "type", "cpu") != "cpu" or _kind_of(ends) != "number":
        return False
    return bool(((ends == 0) | (ends == 1)).all())


def _field_names(kind: type) -> frozenset[str]:
    """Of a named tuple or a data class."""
    owned = [vars(base).get(key) for base in kind.__mro__ for key in ("_fields", "__dataclass_fields__")]
    return frozenset(name for names in owned for name in _strings(names))


def _strings(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, (tuple, dict)) else []


def _kind_of(value: Any) -> str:
    """A number or a flag, or an array of them; what an array holds is told by its dtype, without reading it."""
    if type(value) is bool:
        return "flag"
    if issubclass(type(value), (int, float)):
        return "number"
    if type(value) in (list, tuple):
        kinds = {_kind_of(item) for item in value}
        return kinds.pop() if len(kinds) == 1 else ""
    if type(value).__module__.partition(".")[0] not in ("numpy", "torch", "jax", "jaxlib", "cupy", "array"):
        return ""
    text = str(getattr(value, "dtype", getattr(value, "typecode", "")))
    if "bool" in text:
        return "flag"
    return "number" if text.startswith(("float", "int", "uint", "torch.", "bfloat")) or text in _NUMBER_CODES else ""


# ---- is it part of another one? ----


def holds(outer: Any, inner: Any) -> bool:
    """Can one be reached from the other within a few references: attributes, containers, threads, bound methods, closures?
    Never through modules, classes or a function's globals, which lead everywhere."""
    seen = {id(outer)}
    level = [outer]
    for _ in range(MOST_LEVELS):
        following: list[Any] = []
        for target in level:
            for found in _references(target):
                if found is inner:
                    return True
                if issubclass(type(found), _LEAVES) or id(found) in seen:
                    continue
                if len(seen) >= MOST_OBJECTS:
                    return False
                seen.add(id(found))
                following.append(found)
        level = following
    return False


def _references(target: Any) -> list[Any]:
    if type(target) is FunctionType:
        return [target.__closure__, target.__defaults__, target.__kwdefaults__]
    return gc.get_referents(target)
