"""Memory of a span: the true peak, and nothing of it in what the user reads."""

from __future__ import annotations


def test_the_peak_inside_a_span_is_seen_though_it_is_gone_at_the_end(run):
    done = run("""
        from hotloop import *
        start()
        with profile("outer", track_memory=True):
            with profile("peaky", track_memory=True):
                x = bytearray(80 << 20); del x
            with profile("flat", track_memory=True): pass
            y = bytearray(40 << 20); del y
        stop()
    """)
    mb = {o.name: o.rise_max_bytes / 2**20 for o in done.report.operations}
    assert 78 < mb["peaky"] < 90
    assert 78 < mb["outer"] < 90
    assert mb["flat"] < 5
    assert done.report.quality.memory_method == "kernel peak per span"
    assert all(o.peak_readings == 1 for o in done.report.operations if o.name in ("outer", "peaky", "flat"))


def test_what_the_user_reads_is_as_without_us(run):
    done = run("""
        import resource
        from resource import getrusage     # held from before
        from hotloop import *
        def high_water():
            with open("/proc/self/status") as f: return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
        start()
        x = bytearray(250 << 20); del x    # more than what ru_maxrss may have inherited from before exec
        top, mark = getrusage(resource.RUSAGE_SELF).ru_maxrss, high_water()
        for _ in range(5):
            with profile("small", track_memory=True): y = bytearray(1 << 20); del y
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >= top - 4096
        with profile("reads inside", track_memory=True):
            z = bytearray(50 << 20)
            resource.getrusage(resource.RUSAGE_SELF)
            del z
        stop()
        for read in (resource.getrusage, getrusage):
            assert top - 4096 <= read(resource.RUSAGE_SELF).ru_maxrss <= top + 8192
        assert mark - 4096 <= high_water() <= mark + 8192, (high_water(), mark)
    """)
    small, inside = done.operation("small"), done.operation("reads inside")
    assert small.rise_max_bytes < 20 << 20
    assert 45 << 20 < inside.rise_max_bytes < 75 << 20


def test_spans_in_threads_share_the_process_peak(run):
    done = run("""
        import threading, time
        from hotloop import *
        start()
        def other():
            x = bytearray(60 << 20); time.sleep(0.1); del x
        with profile("waits", track_memory=True):
            t = threading.Thread(target=other); t.start(); t.join()
        stop()
    """)
    assert done.operation("waits").rise_max_bytes > 55 << 20


def test_long_spans_are_read_at_their_end_points_without_being_asked(run):
    done = run("""
        import time
        from hotloop import *
        start()
        kept = []
        for i in range(4):
            with profile("grows"):
                kept.append(bytearray(20 << 20)); time.sleep(0.11)
        stop()
    """)
    grows = done.operation("grows")
    assert grows.peak_readings == 0
    assert grows.end_readings == 3
    assert 18 << 20 < grows.rise_max_bytes < 24 << 20
    assert grows.cpu_wall_ns > 0
    assert grows.cpu_ns < 0.9 * grows.cpu_wall_ns


def test_a_script_that_has_no_descriptor_left_is_left_alone(run):
    done = run("""
        import os, resource
        from hotloop import *
        from hotloop.record.memory import meter
        def high_water():
            with open("/proc/self/status") as f: return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
        start()
        x = bytearray(250 << 20); del x
        mark = high_water()
        with profile("before", track_memory=True): pass
        meter._fast = False                # as where ru_maxrss is stuck at what the process was before exec
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        held = []
        try:
            while True: held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError: pass
        with profile("full", track_memory=True): x = bytearray(1 << 20)
        for fd in held: os.close(fd)
        stop()
        assert high_water() >= mark - 4096, "put up again"
    """)
    assert done.operation("full").calls == 1
    assert done.operation("full").peak_readings == 0, "what was not read is not claimed"
