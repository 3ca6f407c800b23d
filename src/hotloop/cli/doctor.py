"""`hotloop doctor`: is everything in place on this machine?"""

from __future__ import annotations

import platform
from typing import Any

import click

from .files import dump

STDERR = 2  # where a script's own words go when ours are to be read by a program


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(1), help="How long the script may run.")
@click.argument("script", nargs=-1, type=click.UNPROCESSED)
def doctor(as_json: bool, seconds: float, script: tuple[str, ...]) -> None:
    """Say which recorder serves, how it reads time, memory and stacks, and which waits it sees. With a script: run it for a
    while and say whether the hooks are live in every process, and whether threads and processes fit the machine.

    \b
    hotloop doctor
    hotloop doctor train.py --lr 0.1
    """
    checks = _checks()
    if script:
        checks += _script_checks(script, seconds, stdout=STDERR if as_json else None)
    if as_json:
        click.echo(dump([{"what": w, "state": s, "detail": d} for w, s, d in checks]))
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
                f"the Python recorder, about 80 times slower: {backend.why_not_native}. "
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
    stacks, how = _stack_check(recorder)
    checks.append(("line sampler", stacks, how))
    method = meter.prepare()
    checks.append(("memory peaks", "ok" if method == 1 else "note", PEAK_METHODS[method]))
    hooked = recorder.hook_waits()
    recorder.unhook_waits()
    missing = [name[1:] for name in hooked if name.startswith("!")]
    seen = f"{len(hooked) - len(missing)} functions"
    checks.append(("waits", "note" if missing else "ok", seen + (f"; not seen: {', '.join(missing)}" if missing else "")))
    return checks


def _stack_check(recorder: Any) -> tuple[str, str]:
    """Can the stacks of our own threads be read? No rights over other processes are needed for that."""
    import time

    from ..record.recorder import DEFAULTS
    from ..store.shard import decode

    recorder.open(**{**DEFAULTS, "armed": False, "sample_us": 2000})
    time.sleep(0.1)
    samples = decode(recorder.snapshot()).samples
    recorder.close()
    if samples.counts:
        return "ok", f"{samples.ticks} samples in 0.1 s, from inside: no access to other processes is needed"
    return "note", "stacks cannot be read here; reports will show no lines"


def _script_checks(script: tuple[str, ...], seconds: float, stdout: int | None) -> list[tuple[str, str, str]]:
    """Run the script for a while and look at what was recorded."""
    import tempfile
    from pathlib import Path

    from ..analyse.diagnosis import diagnose
    from ..errors import HotloopError
    from ..run.supervisor import Plan, resolve_command, run_child
    from ..store.reader import read_session

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "session"
        plan = Plan(resolve_command(script, None), "doctor", out, duration_s=seconds, quiet=True, stdout=stdout)
        outcome = run_child(plan)
        try:
            session = read_session(out)
            diagnosis = diagnose(session)
        except HotloopError as error:
            return [("script", "note", f"{outcome.how}; {error}")]
        return _judge(session, diagnosis, outcome.how)


def _judge(session: Any, diagnosis: Any, how: str) -> list[tuple[str, str, str]]:
    live = sorted({row["integration"] for row in session.hooks if row["state"] == "live"})
    wrong = [f"{row['integration']}: {row['detail']}" for row in session.hooks if row["state"] in ("note", "failed")]
    checks = [("script", "ok", how), ("hooks", "note" if wrong else "ok", f"live: {', '.join(live) or 'none'}")]
    checks += [("hook note", "note", text) for text in wrong[:5]]
    for process, shard in zip(session.processes, session.shards, strict=True):
        steps, updates = shard.counters.get("env_steps", 0), shard.counters.get("updates", 0)
        seen = (
            f"{shard.recorded:,} spans, {steps:,} env steps, {updates:,} updates, {shard.samples.ticks:,} samples of its lines"
        )
        checks.append((f"process {process.pid}", "ok" if shard.recorded else "note", f"{process.name or 'main'}: {seen}"))
    if not diagnosis.phases.known:
        text = "no env step or update was seen; phases stay unknown (are environment and optimizer of a kind we know?)"
        checks.append(("phases", "note", text))
    looks = diagnosis.facts.get("update_looks", 0)
    threads = round(diagnosis.facts.get("torch_threads", 0) / looks) if looks else 0
    cores = session.meta.get("host", {}).get("cores", 0) or 0
    if threads and cores:
        many = threads * len(session.shards) > cores
        text = f"{threads} torch threads × {len(session.shards)} processes on {cores} cores"
        advice = "; set torch.set_num_threads(1) and measure again" if many else ""
        checks.append(("threads", "note" if many else "ok", text + advice))
    return checks
