"""The asyncio face of the library against a real outlet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from nodes import free_port
from wire_samples import PLACEMENT, config, outlet
from wire_samples import Line as Sealing

from edge_app.client import AsyncLine, CommandRefused, NoAnswer, Position, Start
from edge_app.results import Outlet, Reply, Request
from edge_app.verdict import Mode


@pytest.fixture
def sealing() -> Sealing:
    return Sealing()


@pytest.fixture
def node(sealing: Sealing) -> Iterator[Outlet]:
    opened = outlet(sealing, {"start": lambda _request: Reply({"mode": "RUNNING"})})
    opened.start()
    yield opened
    opened.close()


def line_to(node: Outlet, start: Position | Start = Start.NOW) -> AsyncLine:
    return AsyncLine(str(node.publish_endpoint), node.commands_endpoint, start=start, max_age_s=60)


async def subscribed(node: Outlet, line: AsyncLine) -> None:
    while line.heartbeat is None:
        node.state(Mode.RUNNING, Mode.READY, PLACEMENT, "are you there")
        await asyncio.sleep(0.01)


def test_an_error_of_its_own_tasks_is_raised_where_the_program_waits(
    node: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looked at the task that had ended: `next` waited for ever."""

    async def main() -> None:
        async with line_to(node) as line:
            await subscribed(node, line)

            def no_memory(_now_us: int) -> bool:
                raise MemoryError("no sockets any more")

            monkeypatch.setattr(line._session, "wants_new_sockets", no_memory)
            with pytest.raises(MemoryError, match="no sockets any more"):
                await line.next(30)

    asyncio.run(main())


def test_results_and_commands_side_by_side(node: Outlet, sealing: Sealing) -> None:
    async def main() -> list[int]:
        async with line_to(node) as line:
            await subscribed(node, line)
            seqs: list[int] = []

            async def read() -> None:
                async for result in line:
                    seqs.append(result.seq)
                    if len(seqs) == 2000:
                        return

            reading = asyncio.create_task(read())
            for n in range(2000):
                node.result(sealing.seal())
                if n % 200 == 0:
                    assert (await line.command("start"))["mode"] == "RUNNING"
            await asyncio.wait_for(reading, 90)
            return seqs

    assert asyncio.run(main()) == list(range(1, 2001))


def test_commands_are_answered_however_many_results_nobody_has_taken(node: Outlet, sealing: Sealing) -> None:
    async def main() -> None:
        async with line_to(node) as line:
            await subscribed(node, line)
            while not line._full:  # one by one: what a busy machine's sockets drop would never be asked for
                node.result(sealing.seal())
                await asyncio.sleep(0.001)
            assert (await line.command("start", timeout_s=60))["mode"] == "RUNNING"

    asyncio.run(main())


def test_what_was_missed_is_replayed_first(node: Outlet, sealing: Sealing) -> None:
    async def main() -> list[tuple[int, str]]:
        for _ in range(300):
            node.result(sealing.seal())
        async with line_to(node, Start.OLDEST) as line:
            got = []
            while len(got) < 300:
                result = await line.next(60)
                assert result is not None
                got.append((result.seq, str(result.delivery)))
            await subscribed(node, line)
            node.result(sealing.seal())
            last = await line.next(60)
            assert last is not None
            return [*got, (last.seq, str(last.delivery))]

    got = asyncio.run(main())
    assert [seq for seq, _ in got] == list(range(1, 302))
    assert got[-1][1] == "live"


def test_time_outs_and_refusals(node: Outlet) -> None:
    async def main() -> None:
        async with line_to(node) as line:
            assert await line.next(0.05) is None
            with pytest.raises(CommandRefused) as caught:
                await line.command("stop")
            assert caught.value.code == "UNAVAILABLE"
        async with AsyncLine("tcp://127.0.0.1:9", "tcp://127.0.0.1:9") as nobody:
            with pytest.raises(NoAnswer):
                await nobody.command("hello", timeout_s=0.1)
            assert nobody.fault == "no heartbeat yet"

    asyncio.run(main())


def test_a_command_that_was_cancelled_is_not_sent_when_the_node_comes() -> None:
    """A line must not start because somebody asked for it, gave up, and the node came minutes later."""

    async def main() -> list[str]:
        started: list[str] = []
        publish, commands = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))

        def start(request: Request) -> Reply:
            started.append(request.request_id)
            return Reply()

        async with AsyncLine(publish, commands) as line:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(line.command("start", timeout_s=600), 0.1)
            node = outlet(Sealing(), {"start": start}, results=config(publish=publish, commands=commands))
            node.start()
            try:
                await line.command("hello", timeout_s=60)  # asked after it: it would have been sent before
                await asyncio.sleep(0)
                return started
            finally:
                node.close()

    assert asyncio.run(main()) == []


def test_results_survive_programs_that_cancel_their_waits(node: Outlet, sealing: Sealing) -> None:
    async def main() -> list[int]:
        got: list[int] = []
        async with line_to(node) as line:
            await subscribed(node, line)
            chance = random.Random(1)
            while len(got) < 500:
                for _ in range(min(5, 500 - sealing.triggers)):
                    node.result(sealing.seal())
                waiting = asyncio.create_task(line.next())
                with suppress(TimeoutError):
                    await asyncio.wait_for(waiting, chance.choice([0, 0.0005, 0.002, 0.1]))
                if not waiting.cancelled():  # from Python 3.12 on wait_for can be late for a task that has ended
                    result = waiting.result()
                    assert result is not None
                    got.append(result.seq)
        return got

    assert asyncio.run(asyncio.wait_for(main(), 90)) == list(range(1, 501))


def test_a_line_that_is_not_open_says_so_instead_of_waiting_for_ever() -> None:
    async def main() -> None:
        line = AsyncLine("tcp://127.0.0.1:9", "tcp://127.0.0.1:9")
        for _ in range(2):
            with pytest.raises(RuntimeError, match="async with"):
                await line.next()
            await line.close()

    asyncio.run(main())
