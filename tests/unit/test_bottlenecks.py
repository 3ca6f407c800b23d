from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.analyse.bottlenecks import find_bottlenecks, levels_of, score_of
from hotloop.analyse.categories import categorise
from hotloop.model import sheet as s
from hotloop.model.ledger import Branch
from hotloop.model.listing import Books, Entry, Listing, Own, share_out_own_times
from hotloop.model.shard import HANDOFF, PROFILER, ROOT, USER, WAIT
from hotloop.present.analysis import _columns, analysis_text, fit


@pytest.mark.parametrize(
    ("time_percent", "avg_ms", "peak_mb", "gpu_mb", "score"),
    [
        (0, 0, 0, 0, 0),
        (25.3, 12.5, 0, 0, 13.87),  # 10.12 + 3.75
        (100, 100, 1000, 1000, 73),  # every part at its cap: 40 + 30 + 1.5 + 1.5
        (100, 5000, 90_000, 90_000, 73),  # beyond the caps
        (50, 40, 200, 0, 32.3),  # 20 + 12 + 0.3
        (10, 1, 0, 350, 4.825),  # 4 + 0.3 + 0.525
        (0.5, 0.02, 50, 50, 0.356),  # 0.2 + 0.006 + 0.075 + 0.075
    ],
)
def test_the_score_is_the_formula_of_seed_000(time_percent, avg_ms, peak_mb, gpu_mb, score):
    assert score_of(time_percent, avg_ms, peak_mb, gpu_mb) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(
    ("measures", "levels"),
    [
        ((30, 100, 100, 100), ()),  # above, not at
        ((30.1, 0, 0, 0), ("CRITICAL",)),
        ((0, 100.1, 0, 0), ("SLOW",)),
        ((0, 0, 100.1, 0), ("MEMORY",)),
        ((0, 0, 0, 100.1), ("GPU MEMORY",)),
        ((99, 101, 101, 101), ("CRITICAL", "SLOW", "MEMORY", "GPU MEMORY")),
    ],
)
def test_an_operation_has_every_level_it_deserves(measures, levels):
    assert levels_of(*measures) == levels


CATEGORIES = {
    "Environment": "env_step env_reset env_parallel_execution VecEnv.step reset simulator battle_turn",
    "Rendering": "env_rgb_observation_generation env_rgb_rendering env_rgb_resizing env_rgb_draw_grid render",
    "Model": "convlstm_forward_pass convlstm_boundary_padding convlstm_conv_encoder convlstm_layers convlstm_projection "
    "student_forward teacher_calls model.predict",
    "Policy": "recurrent_policy_forward recurrent_policy_get_hidden_states recurrent_policy_action_value policy_step "
    "recurrent_policy_action_sampling agent_action_selection agent_value_calculation act evaluate_actions log_prob",
    "Training": "training_total simulated_training_step simulated_model_update gradient_calculation optimizer_step "
    "loss_calculation policy_loss backward update learn PPOTrainer.policyUpdate gae train",
    "Data": "simulated_data_collection replay_store ReplayBuffer.push rollout collect tensordict_ops replay_update",
    "Transfer": "gpu_to_cpu copy_to_device GPU→CPU h2d",
    "Evaluation": "evaluate_policy eval evaluation_episode",
    "Logging": "log logging write_log save_checkpoint tensorboard",
    "Other": "flood_fill constraint retrieval catalog interaction factor foo 模型",
}


@pytest.mark.parametrize(("category", "name"), [(c, n) for c, names in CATEGORIES.items() for n in names.split()])
def test_a_name_says_its_category(category, name):
    assert categorise(name) == category


def test_the_users_patterns_win_and_the_first_of_them_first():
    patterns = [("Search", "MCTS_*"), ("Tree", "*_expand"), ("Search", "env_step")]
    assert categorise("mcts_expand", patterns) == "Search"
    assert categorise("node_expand", patterns) == "Tree"
    assert categorise("env_step", patterns) == "Search"
    assert categorise("env_reset", patterns) == "Environment"


def test_a_foreign_report_is_measured_by_its_own_sum():
    listing = Listing("x", (Entry("outer", 20, 6.0, 0.3), Entry("inner", 20, 4.0, 0.2)))
    analysis = find_bottlenecks(listing)
    assert analysis.base_s == 10.0
    outer, inner = analysis.bottlenecks
    assert (outer.time_percent, inner.time_percent) == (60.0, 40.0)
    assert outer.score == pytest.approx(0.4 * 60 + 0.3 * 100)
    assert outer.levels == ("CRITICAL", "SLOW")
    text = analysis_text(analysis)
    assert "Time% is of the sum of all operations" in text
    assert "nested" in text


def test_ours_is_measured_by_the_wall_time_and_never_above_100_percent():
    # Eight threads were busy for 72 s in 10 s of wall time.
    listing = Listing("x", (Entry("env_step", 100, 72.0, 0.72, share=1.2, own=Own(9.5)),), wall_s=10.0, books=Books(0, 0.5, 0))
    analysis = find_bottlenecks(listing)
    (only,) = analysis.bottlenecks
    assert only.time_percent == 100.0
    assert only.own_percent == 95.0
    assert sum(c.percent for c in (*analysis.categories, *analysis.beside)) == pytest.approx(100)


def test_min_calls_moves_rows_but_hides_no_time():
    entries = (
        Entry("env_step", 500, 4.0, 0.008, share=0.4, own=Own(4.0)),
        Entry("training_total", 1, 10.0, 10.0, share=1.0, own=Own(0.5, 1.5)),
        Entry("save", 9, 2.0, 0.22, share=0.2, own=Own(2.0)),
    )
    listing = Listing("x", entries, wall_s=10.0, coverage=0.8, books=Books(1.5, 2.0, 0.0))
    analysis = find_bottlenecks(listing)
    assert [b.name for b in analysis.bottlenecks] == ["env_step"]
    assert {b.name for b in analysis.rare} == {"training_total", "save"}
    assert analysis.categories == find_bottlenecks(listing, min_calls=0).categories
    text = analysis_text(analysis)
    row = next(line for line in text.splitlines() if "fewer than 10 calls" in line)
    assert row.startswith("(2 operations with fewer than 10 calls)")
    assert row.split()[-2:] == ["40.0", "10"]  # 0.5 + 1.5 + 2.0 of 10 s, in 10 calls
    (unattributed,) = [line for line in text.splitlines() if line.startswith("(unattributed")]
    assert unattributed.split()[-1] == "20.0"
    assert "training_total (CRITICAL, SLOW)" in text


def test_operations_beyond_the_top_ten_keep_their_time():
    entries = tuple(Entry(f"op{i}", 50, 1.0, 0.02, share=0.05, own=Own(0.5)) for i in range(14))
    text = analysis_text(find_bottlenecks(Listing("x", entries, wall_s=10.0, books=Books(0, 3, 0))))
    row = next(line for line in text.splitlines() if line.startswith("(4 more operations)"))
    assert row.split()[-2:] == ["20.0", "200"]


def test_advice_is_ranked_by_possible_gain_and_sees_through_containers_and_waits():
    entries = (
        Entry("collect", 100, 9.0, 0.09, share=0.9, own=Own(0.1)),
        Entry("env_step", 100, 8.0, 0.08, share=0.8, own=Own(1.0, 5.0)),
        Entry("env_render", 100, 4.0, 0.04, share=0.4, own=Own(4.0), memory_peak_mb=300.0),
        Entry("loop", 100, 9.5, 0.095, share=0.95, own=Own(0.3, 0.0, 4.0)),
    )
    analysis = find_bottlenecks(Listing("x", entries, wall_s=10.0, books=Books(5, 4, 0)))
    advice = {a.operation.name: a for a in analysis.advice}
    assert [a.operation.name for a in analysis.advice][:2] == ["env_step", "env_render"]
    assert advice["env_step"].gain_percent == pytest.approx(60)
    assert "waits" in advice["env_step"].text
    assert "collect" not in advice  # 1 % is its own: whoever makes that free gains nothing that could be seen
    assert "none of its parts" in advice["loop"].text
    assert advice["env_render"].text == ""  # its time is its own


def test_own_times_of_the_balance_sheet_add_up_to_the_wall():
    tree = [
        Branch(-1, "MainThread", ROOT, 0, 0), Branch(0, "collect", USER, 1, 0), Branch(1, "env_step", USER, 9, 0),
        Branch(2, "(waiting: socket)", WAIT, 9, 0), Branch(1, "", HANDOFF, 0, 0), Branch(4, "env_step", USER, 3, 0),
    ]  # fmt: skip

    def row(parent, kind, ns, branch=-1, leaf=True, waited=False):
        return s.Row(parent, 0, "", kind, waited, ns, 0, 0, branch, leaf, waited)

    rows = (
        row(-1, s.SPAN, 100, leaf=False),
        row(0, s.SPAN, 80, 1, leaf=False),  # collect
        row(1, s.SPAN, 40, 2, leaf=False),  # env_step
        row(2, s.WAITING, 25, 3),
        row(2, s.SPAN, 15),  # (itself)
        row(1, s.SPAN, 30, 4, leaf=False, waited=True),  # (handed over)
        row(5, s.SPAN, 20, 5, waited=True),  # env_step in a worker
        row(5, s.UNATTRIBUTED, 10, waited=True),  # the worker between its spans
        row(1, s.UNATTRIBUTED, 10),  # outside its parts
        row(0, s.UNATTRIBUTED, 15),  # no span open
        row(0, s.PROFILER, 5),
    )
    own, books = share_out_own_times(s.Sheet(rows), tree)
    assert own == {("env_step", USER): Own(15e-9, 45e-9, 0.0), ("collect", USER): Own(0.0, 0.0, 10e-9)}
    assert books == Books(55e-9, 25e-9, 5e-9)  # what is waited for is waiting, whoever works meanwhile
    assert PROFILER not in {kind for _, kind in own}


@given(st.text(max_size=60), st.integers(4, 40))
def test_fitting_gives_exactly_the_columns_asked_for(text, columns):
    assert _columns(fit(text, columns)) == columns


NUMBERS = st.floats(0, 1e11)
ENTRIES = st.lists(
    st.builds(
        Entry, name=st.text(max_size=200), calls=st.integers(0, 2**63), total_s=NUMBERS, mean_s=NUMBERS, share=st.floats(0, 1),
        own=st.builds(Own, NUMBERS, st.none() | NUMBERS, NUMBERS), memory_peak_mb=st.none() | st.floats(0, 1e9),
        gpu_memory_peak_mb=st.none() | st.floats(0, 1e9),
    ),
    max_size=30,
)  # fmt: skip


@given(ENTRIES, st.none() | st.floats(1e-9, 1e11), st.integers(0, 100))
def test_any_listing_becomes_a_table_of_80_columns_that_moves_no_cursor(entries, wall_s, min_calls):
    if wall_s is None:
        entries = [Entry(e.name, e.calls, e.total_s, e.mean_s) for e in entries]
    analysis = find_bottlenecks(Listing("x", tuple(entries), wall_s=wall_s, coverage=0.5 if wall_s else None), min_calls)
    assert all(0 <= b.time_percent <= 100 for b in analysis.bottlenecks)
    assert sum(c.percent for c in analysis.categories) <= 100 + 1e-6
    assert len(analysis.bottlenecks) + len(analysis.rare) == len(entries)
    text = analysis_text(analysis)
    assert all(c.isprintable() or c == "\n" for c in text)
    table = text.split("\n\n")[1]
    assert max(map(_columns, table.splitlines()[:16])) <= 80
