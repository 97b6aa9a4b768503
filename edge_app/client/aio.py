"""The same for asyncio: `async for result in AsyncLine(): ...`; commands may be sent beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import zmq
import zmq.asyncio

from edge_app.client.followed import Followed, monotonic_us
from edge_app.client.messages import Result
from edge_app.client.session import Answer

FoundT = TypeVar("FoundT")
TICK_S = 0.02


class AsyncLine(Followed):
    """One inspection node, as `Line`; made and used inside one running event loop: `async with AsyncLine(...) as line`.

    Messages are taken in by tasks of its own, so heartbeats are seen whatever the program waits for.
    """

    def _begin(self) -> None:
        self._context = zmq.asyncio.Context()
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._dealer: zmq.asyncio.Socket | None = None
        self._error: Exception | None = None
        """What ended one of its tasks: nothing comes any more."""

    async def __aenter__(self) -> Self:
        self._open()
        self._keeper = asyncio.create_task(self._told(self._keep()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends its tasks and lets go of the sockets."""
        tasks = [*([self._keeper] if self._keeper is not None else []), *self._tasks]
        self._keeper, self._tasks = None, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._context.destroy(linger=0)

    async def next(self, timeout_s: float | None = None) -> Result | None:
        """The next result; None if none came within the time (None: wait for ever)."""
        return await self._until(self._take, timeout_s)

    async def __aiter__(self) -> AsyncIterator[Result]:
        """Results, for ever."""
        while True:
            result = await self.next()
            if result is not None:
                yield result

    async def command(self, name: str, /, timeout_s: float = 3.0, **fields: Any) -> Mapping[str, Any]:
        """Sends a command and waits for its reply; raises CommandRefused or NoAnswer."""
        return (await self._wait_for(name, timeout_s, fields)).fields

    async def image(self, image_id: str, timeout_s: float = 5.0) -> bytes:
        """A picture as JPEG, by the `image` id of a result; raises as `command` does."""
        return (await self._wait_for("image", timeout_s, {"id": image_id})).blob or b""

    async def announce(self, trigger_id: int, part_id: str) -> None:
        """Says which part a trigger will be, before its result is sealed; raises as `command` does."""
        await self.command("announce", trigger_id=trigger_id, part_id=part_id)

    async def _wait_for(self, name: str, timeout_s: float, fields: Mapping[str, Any]) -> Answer:
        request_id = self._ask(name, fields)
        try:
            await self._send_due()
            answer = await self._until(lambda: self._session.answer(request_id), timeout_s)
        finally:  # cancelled, too: a command must not be sent when nobody wants it any more
            self._session.forget(request_id)
        return self._answered(name, answer, timeout_s)

    async def _until(self, look: Callable[[], FoundT | None], timeout_s: float | None) -> FoundT | None:
        if self._keeper is None:
            raise RuntimeError("this AsyncLine is not open: use it as `async with AsyncLine(...) as line`")
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                while (found := look()) is None:
                    if self._error is not None:
                        raise self._error
                    await self._changed.wait()
                self._changed.notify_all()  # there may be room for more now
                return found
        except TimeoutError:
            return None

    async def _told(self, work: Coroutine[Any, Any, None]) -> None:
        """Does it; an error that ends it is raised where the program waits."""
        try:
            await work
        except Exception as error:
            async with self._changed:
                self._error = error
                self._changed.notify_all()

    def _open(self) -> None:
        sub = self._open_sub(self._context)
        self._tasks = [asyncio.create_task(self._told(self._receive(sub, self._session.published, lambda: self._full)))]
        self._dealer = self._open_dealer(self._context)
        if self._dealer is not None:
            self._tasks.append(asyncio.create_task(self._told(self._receive(self._dealer, self._session.replied))))

    async def _receive(
        self,
        sock: zmq.asyncio.Socket,
        take: Callable[[Sequence[bytes], int], None],
        full: Callable[[], bool] = lambda: False,
    ) -> None:
        """Takes in messages until it is cancelled, but none while it is full; the socket is its own."""
        try:
            while True:
                async with self._changed:
                    while full():
                        await self._changed.wait()
                take(await sock.recv_multipart(), monotonic_us())
                await self._send_due()
                async with self._changed:
                    self._changed.notify_all()
        finally:
            sock.close(linger=0)

    async def _keep(self) -> None:
        """Sends what is due, and makes new sockets where libzmq would not try again."""
        while True:
            if self._session.wants_new_sockets(monotonic_us()):
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                self._open()
            await self._send_due()
            await asyncio.sleep(TICK_S)

    async def _send_due(self) -> None:
        dealer = self._dealer
        if dealer is None or dealer.closed:
            return
        connected = bool(int(dealer.get(zmq.EVENTS)) & zmq.POLLOUT)
        for frame in self._session.due(monotonic_us(), connected=connected):
            try:
                await dealer.send(frame, zmq.NOBLOCK)
            except zmq.Again:
                return  # lost since the look; what has no answer is sent again
