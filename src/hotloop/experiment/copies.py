"""A patched copy of a folder: the original is never touched.

What lives here: copying what a program needs, applying a patch file by git (or patch), and the sentences for when that fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ..errors import UsageError

LEFT_OUT = (".git", "runs", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", "*.egg-info")
MOST_BYTES = 500 << 20


def make_patched_copy(folder: Path, patch: Path, target: Path) -> Path:
    """`target` becomes `folder` with the patch applied."""
    ignore = shutil.ignore_patterns(*LEFT_OUT)
    size = 0
    for place, folders, files in os.walk(folder):
        skipped = ignore(place, [*folders, *files])
        folders[:] = [f for f in folders if f not in skipped]
        size += sum(os.lstat(os.path.join(place, f)).st_size for f in files if f not in skipped)
        if size > MOST_BYTES:
            raise UsageError(
                f"{folder} holds more than {MOST_BYTES >> 20} MB, too much to copy for {patch.name}; set directory in the plan"
            )
    shutil.copytree(folder, target, ignore=ignore, symlinks=True)
    _apply(patch, target)
    return target


def _apply(patch: Path, target: Path) -> None:
    # Outside of any repository, so that git takes the copy as it is.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(target.parent)}
    tools = {"git": ["git", "apply", str(patch.resolve())], "patch": ["patch", "-p1", "-s", "-N", "-i", str(patch.resolve())]}
    for tool, words in tools.items():
        if shutil.which(tool):
            done = subprocess.run(words, cwd=target, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                why = (done.stderr or done.stdout).strip().splitlines()
                raise UsageError(
                    f"{patch} does not fit ({why[0][:160] if why else f'{tool} says no'}); make it with git diff there"
                )
            return
    raise UsageError(f"neither git nor patch is installed, so {patch} cannot be applied; install one of them")
