"""Every result once and in order, whatever is dropped, doubled or restarted: against a model of a node."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_app.client.follower import Follower, WantEpochs, WantReplay
from edge_app.client.messages import Position, Start


def message(epoch: str, seq: int) -> dict[str, Any]:
    return {"epoch": epoch, "seq": seq, "t_done_us": int(epoch[1:]) * 1_000_000 + seq}


class FakeNode:
    """A node that remembers what it published, from `oldest` on: what the follower's wishes are answered from."""

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}
        self.oldest: dict[str, int] = {}
        self.holes: set[tuple[str, int]] = set()

    def publish(self, epoch: str) -> dict[str, Any]:
        self.runs[epoch] = self.runs.get(epoch, 0) + 1
        return message(epoch, self.runs[epoch])

    def serve(self, follower: Follower, limit: int = 7) -> bool:
        want = follower.want()
        if isinstance(want, WantEpochs):
            follower.epochs([(epoch, int(epoch[1:]) * 1_000_000) for epoch in self.runs])
        elif isinstance(want, WantReplay):
            if want.epoch not in self.runs:
                follower.gone(want.epoch, None)
                return True
            oldest, last = self.oldest.get(want.epoch, 1), self.runs[want.epoch]
            if want.after_seq + 1 < oldest:
                follower.gone(want.epoch, oldest)
                return True
            seqs = [s for s in range(want.after_seq + 1, last + 1) if (want.epoch, s) not in self.holes]
            batch = [message(want.epoch, s) for s in seqs[:limit]]
            follower.replayed(want.epoch, batch, more=len(seqs) > limit, last_seq=last)
        return want is not None

    def serve_all(self, follower: Follower) -> None:
        for _ in range(10_000):
            if not self.serve(follower):
                return
        raise AssertionError("the follower never has enough")


def taken(follower: Follower) -> list[tuple[str, int]]:
    got = [(due.message["epoch"], due.message["seq"]) for due in follower.ready]
    follower.ready.clear()
    return got


def test_live_results_pass_through() -> None:
    node, follower = FakeNode(), Follower(Start.NOW, can_replay=True)
    for _ in range(3):
        follower.live(node.publish("e1"))
        assert follower.want() is None
    assert taken(follower) == [("e1", 1), ("e1", 2), ("e1", 3)]


def test_a_gap_is_replayed_and_what_came_meanwhile_waits() -> None:
    node, follower = FakeNode(), Follower(Start.NOW, can_replay=True)
    follower.live(node.publish("e1"))
    for _ in range(3):
        node.publish("e1")
    follower.live(node.publish("e1"))
    assert follower.want() == WantReplay("e1", 1)
    assert taken(follower) == [("e1", 1)]
    node.serve_all(follower)
    assert [(d.message["seq"], d.replayed) for d in follower.ready] == [(2, True), (3, True), (4, True), (5, True)]
    assert follower.lost == 0


def test_the_heartbeat_shows_the_loss_of_the_last_result() -> None:
    node, follower = FakeNode(), Follower(Start.NOW, can_replay=True)
    follower.live(node.publish("e1"))
    node.publish("e1")
    follower.heartbeat("e1", 2)
    node.serve_all(follower)
    assert taken(follower) == [("e1", 1), ("e1", 2)]


def test_a_restart_is_followed_to_the_end_of_the_old_run_and_through_runs_in_between() -> None:
    node, follower = FakeNode(), Follower(Start.NOW, can_replay=True)
    follower.live(node.publish("e1"))
    for epoch in ("e1", "e1", "e2", "e2", "e3"):
        node.publish(epoch)
    follower.live(node.publish("e3"))
    node.serve_all(follower)
    assert taken(follower) == [("e1", 1), ("e1", 2), ("e1", 3), ("e2", 1), ("e2", 2), ("e3", 1), ("e3", 2)]


def test_what_was_live_but_never_durable_is_lost_and_counted() -> None:
    node, follower = FakeNode(), Follower(Start.NOW, can_replay=True)
    follower.live(node.publish("e1"))
    follower.heartbeat("e1", 5)  # 2 to 5 were published, but the journal never saw them
    follower.heartbeat("e2", 0)
    node.publish("e2")
    node.serve_all(follower)
    follower.live(message("e2", 1))
    node.serve_all(follower)
    handed = [(d.message["epoch"], d.message["seq"], d.lost_before) for d in follower.ready]
    assert handed == [("e1", 1, 0), ("e2", 1, 4)]
    assert follower.lost == 4


def test_a_node_that_stops_to_answer_in_a_replay_has_said_how_much_is_missing() -> None:
    follower = Follower(Position("e1", 0), can_replay=True)
    follower.heartbeat("e2", 0)
    follower.replayed("e1", [message("e1", 1), message("e1", 2)], more=True, last_seq=9)
    follower.gone("e1", None)  # as the session says when no answer came for too long
    follower.epochs([("e1", 1_000_000), ("e2", 2_000_000)])
    follower.live(message("e2", 1))
    handed = [(d.message["epoch"], d.message["seq"], d.lost_before) for d in follower.ready]
    assert handed == [("e1", 1, 0), ("e1", 2, 0), ("e2", 1, 7)]


def test_a_run_that_is_gone_whole_is_never_skipped_in_silence() -> None:
    """Nobody knows how many there were after the position: at least one counts as lost."""
    node, follower = FakeNode(), Follower(Position("e1", 5), can_replay=True)
    node.publish("e3")
    follower.heartbeat("e3", 1)
    node.serve_all(follower)
    assert [(d.message["epoch"], d.message["seq"], d.lost_before) for d in follower.ready] == [("e3", 1, 1)]
    assert follower.lost == 1


def test_a_run_that_was_heard_and_had_no_result_loses_none() -> None:
    """A node without a journal that is started again before its first part."""
    node, follower = FakeNode(), Follower(Start.NOW, can_replay=True)
    follower.heartbeat("e1", 0)
    node.publish("e2")
    follower.heartbeat("e2", 1)
    node.serve_all(follower)
    assert taken(follower) == [("e2", 1)]
    assert follower.lost == 0


def test_past_retention_the_rest_goes_on() -> None:
    node, follower = FakeNode(), Follower(Position("e1", 3), can_replay=True)
    for _ in range(20):
        node.publish("e1")
    node.oldest["e1"] = 11
    follower.heartbeat("e1", 20)
    node.serve_all(follower)
    assert [d.message["seq"] for d in follower.ready] == list(range(11, 21))
    assert (follower.ready[0].lost_before, follower.lost) == (7, 7)


def test_the_oldest_there_is_loses_nothing() -> None:
    node, follower = FakeNode(), Follower(Start.OLDEST, can_replay=True)
    for epoch in ("e1", "e1", "e1", "e2"):
        node.publish(epoch)
    node.oldest["e1"] = 3
    follower.heartbeat("e2", 1)
    node.serve_all(follower)
    assert taken(follower) == [("e1", 3), ("e2", 1)]
    assert follower.lost == 0


def test_a_hole_in_the_journal_is_filled_from_what_came_live() -> None:
    node, follower = FakeNode(), Follower(Start.NOW, can_replay=True)
    follower.live(node.publish("e1"))
    node.publish("e1")
    node.publish("e1")
    node.holes = {("e1", 2), ("e1", 4)}
    follower.live(node.publish("e1"))
    follower.live(node.publish("e1"))
    node.serve_all(follower)
    assert taken(follower) == [("e1", 1), ("e1", 3), ("e1", 4), ("e1", 5)]
    assert follower.lost == 1


def test_without_replay_a_gap_is_lost_at_once_and_counted() -> None:
    follower = Follower(Start.NOW, can_replay=False)
    follower.live(message("e1", 5))
    follower.live(message("e1", 8))
    follower.heartbeat("e1", 10)
    follower.live(message("e2", 2))
    assert [(d.message["epoch"], d.message["seq"], d.lost_before) for d in follower.ready] == [
        ("e1", 5, 0), ("e1", 8, 2), ("e2", 2, 3),
    ]
    assert follower.want() is None
    assert follower.lost == 5


def test_a_run_that_is_over_and_speaks_again_is_told() -> None:
    follower = Follower(Start.NOW, can_replay=True)
    assert follower.live(message("e1", 1))
    assert follower.live(message("e2", 1))
    assert not follower.live(message("e1", 2))
    assert not follower.heartbeat("e1", 2)


@pytest.mark.parametrize("start", [Start.OLDEST, Position("e1", 0)])
@given(data=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_order_of_losses_and_restarts_ends_with_each_result_once(
    start: Start | Position, data: st.DataObject, seed: int
) -> None:
    """Live messages are dropped and doubled, the node restarts, replies are late: all arrives once, in order."""
    node, follower, chance = FakeNode(), Follower(start, can_replay=True), random.Random(seed)
    epoch, handed = 1, []
    for step in data.draw(st.lists(st.sampled_from("lllldrbs"), max_size=120)):
        if step == "l":
            live = node.publish(f"e{epoch}")
            follower.live(live)
            if chance.random() < 0.2:
                follower.live(live)
        elif step == "d":
            node.publish(f"e{epoch}")
        elif step == "r" and f"e{epoch}" in node.runs:
            epoch += 1
        elif step == "b" and f"e{epoch}" in node.runs:
            follower.heartbeat(f"e{epoch}", node.runs[f"e{epoch}"])
        elif step == "s":
            node.serve(follower, limit=chance.randint(1, 9))
        handed += taken(follower)
    node.publish(f"e{epoch}")
    follower.heartbeat(f"e{epoch}", node.runs[f"e{epoch}"])
    node.serve_all(follower)
    handed += taken(follower)
    assert handed == [(e, s) for e, last in node.runs.items() for s in range(1, last + 1)]
    assert follower.lost == 0
