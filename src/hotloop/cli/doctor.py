"""`hotloop doctor`: is everything in place on this machine?"""

from __future__ import annotations

import platform

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """Say which recorder serves, how it reads time and memory, and which waits it sees.

    \b
    hotloop doctor
    hotloop doctor --json
    """
    checks = _checks()
    if as_json:
        import json

        click.echo(json.dumps([{"what": w, "state": s, "detail": d} for w, s, d in checks], indent=1))
        return
    wide = max(len(what) for what, _, _ in checks)
    for what, state, detail in checks:
        click.echo(f"{'ok ' if state == 'ok' else '!  '} {what:<{wide}}  {detail}")


def _checks() -> list[tuple[str, str, str]]:
    from ..model.shard import PEAK_METHODS
    from ..record import backend, calibrate
    from ..record.memory import meter
    from ..record.recorder import DEFAULTS

    recorder = backend.recorder
    checks = [("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")]
    if recorder.NATIVE:
        checks.append(("recorder", "ok", "native (C extension)"))
    else:
        checks.append(
            (
                "recorder",
                "note",
                f"the Python twin, about 30 times slower: {backend.why_not_native}. "
                "Install a C compiler and the Python headers, then reinstall hotloop.",
            )
        )
    inside, outside, error = calibrate.span_costs(recorder, DEFAULTS)
    checks.append(("span cost", "ok", f"{(inside + outside) / 1000:.0f} ± {error / 1000:.1f} ns"))
    recorder.open(**{**DEFAULTS, "armed": False})
    from ..store.shard import decode

    clocks = {1: "clock_gettime", 2: "time-stamp counter, tied to CLOCK_MONOTONIC every second", 3: "time.perf_counter_ns"}
    checks.append(("clock", "ok", clocks.get(decode(recorder.snapshot()).clock, "?")))
    recorder.close()
    method = meter.prepare()
    checks.append(("memory peaks", "ok" if method == 1 else "note", PEAK_METHODS[method]))
    hooked = recorder.hook_waits()
    recorder.unhook_waits()
    missing = [name[1:] for name in hooked if name.startswith("!")]
    seen = f"{len(hooked) - len(missing)} functions"
    checks.append(("waits", "note" if missing else "ok", seen + (f"; not seen: {', '.join(missing)}" if missing else "")))
    return checks
