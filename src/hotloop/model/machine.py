"""Constants of a machine: what a call, a copy, a hand-over costs there. Plain data.

Who may touch it: anyone; standard library only. `run/calibration.py` measures them, `store/machine.py` keeps them. Invariant:
a constant that could not be measured is 0, and whoever uses it does without.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

# Of the machine the rules' own constants were taken on: two cores of a server, CPython 3.11.
REFERENCE_CALL_NS = 55.0


@dataclass(frozen=True, slots=True)
class Machine:
    call_ns: float = 0.0  # of a Python function that adds two numbers
    array_ns: float = 0.0  # of a NumPy addition of four numbers
    dispatch_ns: float = 0.0  # of a torch addition of four numbers, without autograd
    dispatch_grad_ns: float = 0.0  # ... and with it
    gemm_small_gflops: float = 0.0  # of a matrix product, 64 × 64, one thread
    gemm_gflops: float = 0.0  # 512 × 512, one thread
    gemm_all_gflops: float = 0.0  # 512 × 512, all of torch's threads
    copy_gb_s: float = 0.0  # bytes copied from memory to memory
    pipe_us: float = 0.0  # 1 kB of pickled array to another process and back
    thread_us: float = 0.0  # a job handed to a thread and waited for
    process_ms: float = 0.0  # a Python process from start to end

    @property
    def slowness(self) -> float:
        """Of its interpreter, against the machine the rules' constants are from; 1 where it is not known."""
        return self.call_ns / REFERENCE_CALL_NS if self.call_ns else 1.0


NAMES = tuple(x.name for x in fields(Machine))
