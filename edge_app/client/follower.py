"""Every result once and in order: the logic alone, without sockets or clocks.

It is told what came (live results, heartbeats, replies) and says what it wants next (`want`). Results that are due
come out of `ready`, in order of epoch and seq. What nobody can give any more is counted, never skipped in silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge_app.client.messages import Position, Start

MAX_STASHED = 10_000
"""Live results that wait behind a gap; those that find no room are replayed."""

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Due:
    """A result whose turn it is."""

    message: Message
    replayed: bool
    lost_before: int


@dataclass(frozen=True, slots=True)
class WantReplay:
    """Results of an epoch after a seq are missing."""

    epoch: str
    after_seq: int


@dataclass(frozen=True, slots=True)
class WantEpochs:
    """The list of the node's runs is needed, to know which comes next."""


@dataclass
class Run:
    """What is known of one epoch."""

    last_seq: int = 0
    known: bool = False
    """Whether anybody said how far it goes: itself while it lived, or the node in a replay."""
    stash: dict[int, Message] | None = None

    def keep(self, seq: int, message: Message) -> None:
        """Stashes a live result that can't be handed over yet."""
        if self.stash is None:
            self.stash = {}
        if len(self.stash) < MAX_STASHED:
            self.stash[seq] = message


class Follower:
    """Follows one node through its epochs.

    Args:
        start: where to begin: a position (what comes after it), the oldest result there is, or now.
        can_replay: whether there is anybody to ask; without, gaps are lost.
    """

    def __init__(self, start: Position | Start, *, can_replay: bool) -> None:
        self.ready: deque[Due] = deque()
        self.lost = 0
        """Results that could not be had."""
        self.live_epoch: str | None = None
        """The run that is going on."""
        self.epoch: str | None = start.epoch if isinstance(start, Position) else None
        """The run whose results are handed over now."""
        self.next_seq = start.seq + 1 if isinstance(start, Position) else 1
        self._from_oldest = start is Start.OLDEST and can_replay
        self._nothing_handed_over = True
        self._can_replay = can_replay
        self._runs: dict[str, Run] = {}
        self._over: set[str] = set()
        self._epoch_ended = False
        self._lost_before = 0
        self._last_t_us = 0

    def live(self, message: Message) -> bool:
        """A result off the wire. False: it is of a run that was over (another node of the same name?)."""
        epoch, seq = message["epoch"], message["seq"]
        if not self._seen_alive(epoch):
            return False
        run = self._runs[epoch]
        run.last_seq = max(run.last_seq, seq)
        if self.epoch is None and not self._from_oldest:
            self.epoch, self.next_seq = epoch, seq
        if epoch == self.epoch and seq < self.next_seq:
            return True
        if epoch == self.epoch and seq == self.next_seq:
            self._hand_over(message, replayed=False)
            self._drain()
        else:
            run.keep(seq, message)
        self._go_on_without_replay()
        return True

    def heartbeat(self, epoch: str, last_seq: int) -> bool:
        """A heartbeat; its last_seq shows a gap at the end. False: as for `live`."""
        if not self._seen_alive(epoch):
            return False
        if self.epoch is None and not self._from_oldest:
            self.epoch, self.next_seq = epoch, last_seq + 1
        self._runs[epoch].last_seq = max(self._runs[epoch].last_seq, last_seq)
        self._go_on_without_replay()
        return True

    def want(self) -> WantReplay | WantEpochs | None:
        """What to ask the node for now; None: nothing is missing."""
        if self.live_epoch is None or not self._can_replay:
            return None
        if self.epoch is None:
            return WantEpochs()
        if self.epoch == self.live_epoch:
            missing = self.next_seq <= self._runs[self.epoch].last_seq
            return WantReplay(self.epoch, self.next_seq - 1) if missing else None
        return WantEpochs() if self._epoch_ended else WantReplay(self.epoch, self.next_seq - 1)

    def replayed(self, epoch: str, messages: Sequence[Message], *, more: bool, last_seq: int) -> None:
        """A batch of a replay; `last_seq` is the last that the node knows of that epoch."""
        if epoch != self.epoch:
            return
        run = self._runs.setdefault(epoch, Run())
        run.last_seq, run.known = max(run.last_seq, last_seq), True  # kept: the next batch may never come
        for message in messages:
            self._advance_to(message["seq"])
            if message["seq"] == self.next_seq:
                self._hand_over(message, replayed=True)
        if more:
            return
        if epoch == self.live_epoch:
            self._advance_to(last_seq + 1)
        else:
            self._advance_to(run.last_seq + 1)
            self._epoch_ended = True
        self._drain()

    def gone(self, epoch: str, oldest_seq: int | None) -> None:
        """The node no longer has what was asked for: it has this epoch from `oldest_seq` on, or not at all.

        Where nobody can tell any more how far an epoch went, one result of it counts as lost: there may be none, or
        many, and that must not look as if nothing was missing.
        """
        if epoch != self.epoch:
            return
        run = self._runs.setdefault(epoch, Run())
        if oldest_seq is not None and self._from_oldest and self._nothing_handed_over:
            self.next_seq = max(self.next_seq, oldest_seq)  # the oldest there is: nothing was lost to us
        elif oldest_seq is not None and oldest_seq > self.next_seq:
            self._advance_to(oldest_seq)
        else:
            self._advance_to((run.last_seq if run.known else self.next_seq) + 1)
            self._epoch_ended = epoch != self.live_epoch
        self._drain()

    def epochs(self, listed: Sequence[tuple[str, int]]) -> None:
        """The node's runs, oldest first, each with its start (us UTC). Chooses the next one to hand over."""
        if self.live_epoch is None or (self.epoch is not None and not self._epoch_ended):
            return
        names = [name for name, _ in listed]
        if self.epoch is None:
            following = names
        elif self.epoch in names:
            following = names[names.index(self.epoch) + 1 :]
        else:
            following = [name for name, started_us in listed if started_us > self._last_t_us]
        following = [name for name in following if name != self.epoch]
        self._enter(following[0] if following else self.live_epoch)

    def _seen_alive(self, epoch: str) -> bool:
        if epoch in self._over:
            return False
        if epoch != self.live_epoch:
            if self.live_epoch is not None:
                self._over.add(self.live_epoch)
            self.live_epoch = epoch
            self._runs.setdefault(epoch, Run()).known = True
        return True

    def _enter(self, epoch: str) -> None:
        if self.epoch is not None:
            self._runs.pop(self.epoch, None)
        self.epoch, self.next_seq, self._epoch_ended = epoch, 1, False
        self._runs.setdefault(epoch, Run())
        self._drain()

    def _hand_over(self, message: Message, *, replayed: bool) -> None:
        self.ready.append(Due(message, replayed, self._lost_before))
        self._nothing_handed_over = False
        self._lost_before = 0
        self._last_t_us = max(self._last_t_us, message["t_done_us"])
        self.next_seq = message["seq"] + 1

    def _drain(self) -> None:
        """Hands over what was stashed and is now due; forgets what was handed over already."""
        run = self._runs.get(self.epoch) if self.epoch is not None else None
        if run is None or not run.stash:
            return
        while (message := run.stash.pop(self.next_seq, None)) is not None:
            self._hand_over(message, replayed=False)
        if run.stash and min(run.stash) < self.next_seq:
            run.stash = {seq: message for seq, message in run.stash.items() if seq >= self.next_seq}

    def _advance_to(self, seq: int) -> None:
        """Goes up to (not including) `seq`: stashed results are handed over, all others before it are lost."""
        run = self._runs.get(self.epoch) if self.epoch is not None else None
        stash = (run.stash if run is not None else None) or {}
        for stashed in sorted(s for s in stash if self.next_seq <= s < seq):
            self._lose(stashed - self.next_seq)
            self._hand_over(stash.pop(stashed), replayed=False)
        self._lose(seq - self.next_seq)
        self.next_seq = max(self.next_seq, seq)

    def _lose(self, count: int) -> None:
        if count > 0:
            self.lost += count
            self._lost_before += count

    def _go_on_without_replay(self) -> None:
        """With nobody to ask, a gap is lost as soon as it is seen."""
        if self._can_replay or self.epoch is None or self.live_epoch is None:
            return
        if self.epoch != self.live_epoch:
            self._advance_to(self._runs.setdefault(self.epoch, Run()).last_seq + 1)
            self._enter(self.live_epoch)
        self._advance_to(self._runs[self.live_epoch].last_seq + 1)
