"""The tests on every CPython we support, with both recorders: `python tests/matrix.py [PATH ...]`.

Without paths it is the whole suite where torch can be installed, else what needs no torch. Each interpreter has an environment
of its own in ~/.cache/hotloop-tests; HotLoop is installed anew each time. An interpreter that is not here is named at the end.
"""

from __future__ import annotations

import argparse
import sys
import time

import environments

VERSIONS = ("3.11", "3.12", "3.13")
RECORDERS = ("native", "python")
NEED_NO_TORCH = ("tests/contract", "tests/unit", "tests/faults")


def run_version(version: str, recorders: list[str], paths: list[str]) -> list[str]:
    """What to say of one interpreter, a line each; those that begin with an exclamation mark are failures."""
    python = environments.find_python(version)
    if python is None:
        return [f"CPython {version}: NOT HERE, so nothing was tested on it"]
    lean = bool(paths) and all(path.startswith(NEED_NO_TORCH) for path in paths)
    inside = None if lean else environments.make(f"python{version}-torch", python, ["torch"], "test")
    if inside is None:
        if not lean:
            print(f"CPython {version}: torch cannot be installed, so only the tests that need none are run", flush=True)
        inside = environments.make(f"python{version}", python, [], "test-tools,pandas")
        paths = paths if lean else list(NEED_NO_TORCH)
    if inside is None:
        return [f"! CPython {version}: HotLoop could not be installed"]
    said = []
    for recorder in recorders:
        print(f"== CPython {version}, {recorder} recorder", flush=True)
        began = time.monotonic()
        code = environments.run(inside, "-m", "pytest", "-q", "-n", "auto", *paths, env={"HOTLOOP_RECORDER": recorder})
        outcome = "passed" if code == 0 else f"FAILED ({code})"
        said.append(f"{'! ' * bool(code)}CPython {version}, {recorder} recorder: {outcome} in {time.monotonic() - began:.0f} s")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="*", help="tests to run, as for pytest")
    parser.add_argument("--python", action="append", choices=VERSIONS, help="this version only (may be repeated)")
    parser.add_argument("--recorder", action="append", choices=RECORDERS, help="this recorder only (may be repeated)")
    asked = parser.parse_args()
    said: list[str] = []
    for version in asked.python or VERSIONS:
        said += run_version(version, asked.recorder or list(RECORDERS), asked.path)
    print("\n".join(["", *said]))
    tested = [line for line in said if "recorder:" in line]
    return int(not tested or any(line.startswith("!") for line in said))


if __name__ == "__main__":
    sys.exit(main())
