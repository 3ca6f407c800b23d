from __future__ import annotations


def test_a_suspended_generators_span_stops_its_clock(rig):
    lift, lower, depth = rig.module.lift, rig.module.lower, rig.module.depth
    rig.enter("consumer")
    base = depth()
    rig.enter("gen")
    rig.tick(10)
    token = lift(base, False)
    rig.tick(100)
    lower(token)
    rig.tick(5)
    rig.exit("gen")
    rig.exit("consumer")
    gen, consumer = rig.operation("gen"), rig.operation("consumer")
    assert (gen.calls, gen.busy_ns, gen.union_ns, gen.self_ns) == (1, 15, 15, 15)
    assert (consumer.busy_ns, consumer.self_ns) == (115, 100)
    assert rig.read().losses == {}


def test_spans_inside_a_suspended_generator_are_suspended_with_it(rig):
    rig.enter("gen")
    rig.enter("inner")
    rig.tick(3)
    token = rig.module.lift(0, False)
    rig.tick(50)
    rig.span("elsewhere", 7)
    rig.module.lower(token)
    rig.tick(4)
    rig.exit("inner")
    rig.exit("gen")
    assert rig.operation("inner").busy_ns == 7
    assert rig.operation("gen").busy_ns == 7
    assert rig.operation("elsewhere").busy_ns == 7
    assert rig.node("elsewhere").count == 1  # not below the suspended spans


def test_an_awaiting_tasks_span_stays_open_but_does_not_run(rig):
    tokens = []
    for _ in range(3):
        rig.enter("request")
        rig.tick(1)
        tokens.append(rig.module.lift(0, True))
    rig.tick(100)
    for token in tokens:
        rig.module.lower(token)
        rig.tick(1)
        rig.exit("request")
    operation = rig.operation("request")
    assert operation.calls == 3
    assert operation.self_ns == 6
    assert operation.union_ns == 106
    assert operation.busy_ns == (3 + 100 + 1) + (2 + 100 + 2) + (1 + 100 + 3)


def test_awaiting_spans_are_shown_as_open(rig):
    rig.enter("request")
    token = rig.module.lift(0, True)
    rig.tick(9)
    shard = rig.read()
    assert [(s.track, shard.label_of(s.path).name) for s in shard.open_spans] == [(-1, "request")]
    rig.module.lower(token)
    rig.exit("request")
    assert rig.read().open_spans == ()


def test_a_dropped_token_is_counted_as_abandoned(rig):
    rig.enter("task")
    rig.tick(4)
    token = rig.module.lift(0, True)
    rig.tick(4)
    del token
    assert rig.read().losses == {"abandoned": 1}
    assert rig.read().open_spans == ()
    rig.span("task", 2)
    assert rig.operation("task").union_ns == 10


def test_a_generator_may_go_on_in_another_thread(rig):
    rig.enter("outer")
    rig.enter("gen")
    rig.tick(5)
    token = rig.module.lift(1, False)
    rig.track(1)
    rig.module.lower(token)
    rig.tick(7)
    rig.exit("gen")
    rig.track(-1)
    rig.exit("outer")
    assert rig.operation("gen").busy_ns == 12
    assert rig.node("outer", "gen", track=1).count == 1
    assert rig.read().losses == {}


def test_nothing_to_lift_gives_nothing(rig):
    assert rig.module.lift(0, False) is None
    rig.enter("x")
    assert rig.module.lift(1, True) is None
    rig.module.lower(None)
    rig.exit("x")


def test_a_token_of_an_earlier_recording_is_void(rig):
    rig.enter("old")
    token = rig.module.lift(0, True)
    rig.open()
    rig.module.lower(token)
    rig.exit("old")
    assert rig.read().losses == {"inherited": 1}
    assert rig.module.depth() == 0


def test_recursion_is_recognised_across_a_lifted_span(rig):
    """A generator made below `a` goes on at the top; inside it `a` is opened: that is no recursion."""
    rig.enter("a")
    rig.enter("gen")
    token = rig.module.lift(1, False)
    rig.exit("a")
    rig.module.lower(token)
    rig.enter("a")
    rig.tick(5)
    rig.enter("gen")  # this is
    rig.tick(5)
    rig.exit("gen")
    rig.exit("a")
    rig.exit("gen")
    assert rig.operation("a").busy_ns == 10
    assert rig.operation("gen").busy_ns == 10
    assert rig.operation("gen").calls == 2
    assert rig.operation("gen").union_ns == 10


def test_generator_segments_are_events_of_their_own(rig, recorder):
    rig.enter("gen")
    rig.tick(5)
    token = rig.module.lift(0, False)
    rig.tick(100)
    rig.module.lower(token)
    rig.tick(6)
    rig.exit("gen")
    assert rig.read().logged_events == 2


def test_work_handed_over_hangs_below_the_span_that_handed_it_over(rig):
    rig.enter("rollout")
    origin = rig.module.here()
    rig.track(1)
    rig.module.adopt(*origin)
    rig.tick(2)
    rig.span("env_step", 10)
    rig.module.release()
    rig.tick(30)
    rig.track(-1)
    rig.exit("rollout")
    assert rig.node("rollout", "(handed over)", "env_step", track=1).count == 1
    worker = rig.fold().balances[1]
    assert (worker.exclusive_ns, worker.unattributed_ns, worker.waiting_ns) == (10, 2, 30)
    assert rig.operation("rollout").busy_ns == 42


def test_work_from_another_process_keeps_its_origin(rig):
    rig.module.adopt(77, 5)
    rig.span("x", 3)
    rig.module.release()
    shard = rig.read()
    path = next(p for p in shard.paths if p.origin)
    assert path.origin == (77, 5)
    assert shard.labels[path.label].name == "(handed over)"


def test_release_without_adopt_is_counted(rig):
    rig.module.release()
    assert rig.read().losses == {"stray_exit": 1}


def test_held_across_yield_is_flagged_with_its_place(rig):
    from hotloop.record.yields import yield_site

    rig.module.set_callbacks(yield_check=yield_site, memory_span=None, decorate=None)

    def bad():
        with rig.module.profile("held"):
            yield 1

    def good():
        with rig.module.profile("not held"):
            rig.tick(1)
        yield 1

    assert list(bad()) == [1]
    assert list(good()) == [1]
    sites = {label.name: label.held_across_yield for label in rig.read().labels if label.held_across_yield}
    line = bad.__code__.co_firstlineno + 1
    assert sites == {"held": f"{__file__}:{line}"}


def test_more_awaiting_spans_than_the_header_lists(rig):
    tokens = []
    for _ in range(1100):
        rig.enter("task")
        tokens.append(rig.module.lift(0, True))
    rig.tick(5)
    shard = rig.read()
    assert len(shard.open_spans) == 1024
    assert shard.lifted == shard.open_count == 1100
    for token in tokens:
        rig.module.lower(token)
        rig.exit("task")
    assert rig.read().lifted == 0
    assert rig.operation("task").calls == 1100
    assert rig.operation("task").busy_ns == 5500
    assert rig.operation("task").union_ns == 5


def test_a_deep_stack_can_be_lifted_and_lowered(rig):
    for i in range(300):
        rig.enter(f"level {i}")
    rig.tick(1)
    token = rig.module.lift(0, False)
    rig.tick(10)
    rig.track(7)
    rig.module.lower(token)
    rig.tick(1)
    for i in reversed(range(300)):
        rig.exit(f"level {i}")
    rig.track(-1)
    assert rig.operation("level 0").busy_ns == 2
    assert rig.read().losses == {"deep": 60}


def test_a_resumed_span_is_lifted_again(rig):
    rig.enter("gen")
    for _ in range(3):
        rig.tick(2)
        token = rig.module.lift(0, False)
        rig.tick(50)
        rig.module.lower(token)
    rig.exit("gen")
    assert rig.operation("gen").busy_ns == 6
    assert rig.read().logged_events == 4
