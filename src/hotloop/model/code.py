"""Whose a source file is, as far as its path tells. Standard library only: the training process asks too."""

from __future__ import annotations

import re
from functools import lru_cache

_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\]+)")
_STANDARD = re.compile(r"[/\\]lib[/\\]python3[^/\\]*[/\\]([^/\\]+)|[/\\][Ll]ib[/\\]([^/\\]+)")
_OURS = re.compile(r"[/\\]hotloop[/\\](record|printing|integrations|adapters|store|run)[/\\]")


@lru_cache(maxsize=4096)  # a few hundred files, asked for at every place of every stack
def package_of(file: str) -> str:
    """The installed or standard package a file belongs to; "": none.

    >>> package_of("/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py"), package_of("/home/me/train.py")
    ('torch', '')
    """
    found = _INSTALLED.search(file) or _STANDARD.search(file)
    return next(filter(None, found.groups())).removesuffix(".py") if found else ""


def is_yours(file: str) -> bool:
    """A file of the user's own; `<string>` and its like are none.

    >>> is_yours("/home/me/train.py"), is_yours("<string>"), is_yours("")
    (True, False, False)
    """
    return bool(file) and not file.startswith("<") and not package_of(file)


def is_standard(file: str) -> bool:
    """A file of Python's own library.

    >>> is_standard("/usr/lib/python3.11/linecache.py"), is_standard("/usr/lib/python3.11/site-packages/torch/_ops.py")
    (True, False)
    """
    return not _INSTALLED.search(file) and bool(_STANDARD.search(file))


def is_ours(file: str) -> bool:
    """A file of HotLoop that runs inside the training."""
    return bool(_OURS.search(file))
