"""`hotloop calibrate`: what calls, copies and hand-overs cost on this machine."""

from __future__ import annotations

import click

from .files import dump

_ROWS = (
    ("call_ns", "a Python function call", "ns"), ("array_ns", "a NumPy call on four numbers", "ns"),
    ("dispatch_ns", "a torch call on four numbers", "ns"), ("dispatch_grad_ns", "the same with gradients", "ns"),
    ("gemm_small_gflops", "matrix product 64 × 64, one thread", "GFLOP/s"),
    ("gemm_gflops", "matrix product 512 × 512, one thread", "GFLOP/s"),
    ("gemm_all_gflops", "matrix product 512 × 512, all threads", "GFLOP/s"), ("copy_gb_s", "copying memory", "GB/s"),
    ("thread_us", "a job to a thread and back", "µs"), ("pipe_us", "1 kB to a process and back", "µs"),
    ("process_ms", "starting and ending a process", "ms"),
)  # fmt: skip


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the constants as JSON.")
def calibrate(as_json: bool) -> None:
    """Measure this machine's constants and keep them (a few seconds). `hotloop run` does it by itself once.

    \b
    hotloop calibrate
    hotloop calibrate --json
    """
    from ..run.machine import calibrate as measure
    from ..store.machine import machine_data

    machine, path = measure()
    if as_json:
        click.echo(dump(machine_data(machine)))
        return
    for name, what, unit in _ROWS:
        value = getattr(machine, name)
        click.echo(f"{what:<40} {f'{value:,.1f} {unit}' if value else 'not measured':>16}")
    click.echo(f"kept in {path}; next: hotloop run train.py")
