"""The HTTP server: who may look, what it refuses, and that no browser costs the others anything."""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from edge_app.errors import BusError, ConfigError
from edge_app.keys import others_can_read
from edge_app.monitor import server as server_module
from edge_app.monitor.access import Access, parse_address, read_token
from edge_app.monitor.server import MOST_CONNECTIONS, MOST_STREAMS, Server, event, stream

TOKEN = "0123456789abcdef"


class Ticks:
    """A page with a word, a stream of numbers, and a stream that never pauses."""

    def routes(self) -> Iterable[web.AbstractRouteDef]:
        return [web.get("/", self._word), web.get("/numbers", self._numbers), web.get("/flood", self._flood)]

    async def _word(self, _request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def _numbers(self, request: web.Request) -> web.StreamResponse:
        async def parts() -> AsyncIterator[bytes]:
            for number in itertools.count():
                yield event({"number": number})
                await asyncio.sleep(0.01)

        return await stream(request, "text/event-stream", parts)

    async def _flood(self, request: web.Request) -> web.StreamResponse:
        async def parts() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1 << 20)

        return await stream(request, "application/octet-stream", parts)


def serve(token: str | None = None, **more: Any) -> Server:
    made = Server("127.0.0.1:0", token, **more)
    made.start([Ticks()])
    return made


@pytest.fixture
def server() -> Iterator[Server]:
    made = serve()
    yield made
    made.close()
    assert not made.alive


def raw(server: Server, request: bytes) -> bytes:
    """The first line of the answer to bytes."""
    host, port = server.url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline()


@pytest.mark.parametrize("header", [b"Authorization: Bearer \xff\xfe", b"Cookie: edge_app_PORT=\xff\xfe"])
def test_a_token_in_other_bytes_is_refused_as_any_other(header: bytes, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(TOKEN)
    port = server.url.rstrip("/").rsplit(":", 1)[1].encode()
    assert b" 401 " in raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % header.replace(b"PORT", port))
    server.close()
    assert not caplog.records


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"])
def test_what_is_no_http_is_answered_and_fills_no_log(
    server: Server, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert b" 400 " in raw(server, garbage)
    assert not caplog.records


def get(url: str, headers: dict[str, str] | None = None, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(url, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_this_machine_may_look(server: Server) -> None:
    assert get(server.url) == (200, "hello")
    assert get(server.url + "nothing")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_is_read_only(server: Server, method: str) -> None:
    assert get(server.url, method=method)[0] == 405


def test_a_site_that_points_its_name_here_gets_nothing(server: Server) -> None:
    port = server.url.rsplit(":", 1)[1].strip("/")
    assert get(server.url, {"Host": f"evil.example:{port}"})[0] == 403
    assert get(server.url, {"Host": f"localhost:{port}"}) == (200, "hello")
    assert get(server.url, {"Host": f"[::1]:{port}"}) == (200, "hello")


def test_every_answer_tells_browsers_to_be_strict(server: Server) -> None:
    for path in ("", "nothing"):
        try:
            with urllib.request.urlopen(server.url + path, timeout=30) as answer:
                headers = answer.headers
        except urllib.error.HTTPError as error:
            headers = error.headers
        assert headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"


class TestToken:
    """With a token, nothing is seen without it."""

    @pytest.fixture
    def locked(self) -> Iterator[Server]:
        made = serve(TOKEN)
        yield made
        made.close()

    @pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"},
                                       {"Cookie": f"edge_app={TOKEN}"}])  # fmt: skip
    def test_strangers(self, locked: Server, given: dict[str, str]) -> None:
        for path in ("", "numbers", "nothing"):
            code, text = get(locked.url + path, given)
            assert code == 401
            assert TOKEN not in text

    def test_programs(self, locked: Server) -> None:
        assert get(locked.url, {"Authorization": f"Bearer {TOKEN}"}) == (200, "hello")

    def test_browsers_give_it_once(self, locked: Server) -> None:
        async def visit() -> None:
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
                async with session.get(locked.url + "?token=wrong") as answer:
                    assert answer.status == 401
                async with session.get(locked.url + f"?token={TOKEN}", allow_redirects=False) as answer:
                    assert answer.status == 302
                    assert answer.headers["Location"] == "/"  # it does not stay in the address bar
                    cookie = answer.headers["Set-Cookie"]
                    assert "HttpOnly" in cookie
                    assert "SameSite=Strict" in cookie
                    assert TOKEN not in cookie
                async with session.get(locked.url) as answer:
                    assert (answer.status, await answer.text()) == (200, "hello")

        asyncio.run(visit())


def test_other_machines_need_a_token() -> None:
    for host in ("0.0.0.0", "192.0.2.7", "::", "station3"):
        with pytest.raises(ConfigError, match="without a token") as raised:
            Access(host, None)
        assert raised.value.exit_code == 2
        Access(host, TOKEN)
    for host in ("127.0.0.1", "::1", "localhost"):
        Access(host, None)


@pytest.mark.parametrize(
    ("address", "wanted"),
    [("127.0.0.1:8560", ("127.0.0.1", 8560)), ("[::1]:0", ("::1", 0)), ("localhost:1", ("localhost", 1))],
)
def test_addresses(address: str, wanted: tuple[str, int]) -> None:
    assert parse_address(address) == wanted


@pytest.mark.parametrize("address", ["", "127.0.0.1", ":8560", "127.0.0.1:", "127.0.0.1:99999", "::1:80", "a:b"])
def test_bad_addresses_say_what_is_wanted(address: str) -> None:
    with pytest.raises(ConfigError, match=r"wanted: ADDRESS:PORT"):
        parse_address(address)


def test_tokens_come_from_files_that_nobody_else_reads(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"(?s)others can read.*chmod 600"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == TOKEN
    for bad in ("short", "two words are not one", "\x07" * 20):
        file.write_text(bad)
        with pytest.raises(ConfigError, match="can't be used"):
            read_token(file)
    with pytest.raises(ConfigError, match="can't be read"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize(
    ("mode", "owner", "user", "open_to_others"),
    [
        (0o600, 1000, 1000, False),
        (0o400, 1000, 1000, False),
        (0o640, 1000, 1000, True),
        (0o604, 1000, 1000, True),
        (0o440, 0, 61234, False),  # as systemd hands over a credential
        (0o640, 0, 61234, False),
        (0o660, 0, 61234, True),
        (0o444, 0, 61234, True),
        (0o640, 0, 0, True),
    ],
)
def test_who_else_can_read(mode: int, owner: int, user: int, open_to_others: bool) -> None:
    status = os.stat_result((0o100000 | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    assert others_can_read(status, user) is open_to_others


def test_a_port_in_use_is_told(server: Server) -> None:
    address = server.url.removeprefix("http://").strip("/")
    second = Server(address, None)
    with pytest.raises(BusError, match=r"(?s)can't be served.*remedy|do: set another port"):
        second.start([Ticks()])
    second.close()
    assert get(server.url) == (200, "hello")


def test_a_browser_that_reads_nothing_costs_nobody_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "WRITE_S", 0.3)
    monkeypatch.setattr(server_module, "MOST_STREAMS", 2)
    made = serve()
    host, port = made.url.removeprefix("http://").strip("/").split(":")

    async def read_numbers() -> list[bytes]:
        async with aiohttp.ClientSession() as session, session.get(made.url + "numbers") as answer:
            return [await answer.content.readline() for _ in range(20)]

    async def take_both_places() -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session:
            for _ in range(2):
                while (await session.get(made.url + "numbers")).status == 503:
                    await asyncio.sleep(0.02)

    with socket.create_connection((host, int(port))) as dead:
        dead.sendall(f"GET /flood HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert dead.recv(12) == b"HTTP/1.1 200"
        got = asyncio.run(read_numbers())
        assert [line for line in got if line.strip()] == [b'data: {"number":%d}\n' % n for n in range(10)]
        asyncio.run(asyncio.wait_for(take_both_places(), 30))  # the dead one is cut off with its socket still open
    made.close()
    assert not made.alive


def test_pages_are_bounded(server: Server) -> None:
    async def open_many() -> list[int]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            answers = [await session.get(server.url + "numbers") for _ in range(MOST_STREAMS)]
            assert {answer.status for answer in answers} == {200}
            one_more = await session.get(server.url + "numbers")
            word = await session.get(server.url)
            answers[0].close()
            for _ in range(3000):
                again = await session.get(server.url + "numbers")
                if again.status == 200:
                    break
                await asyncio.sleep(0.01)
            codes = [one_more.status, word.status, again.status]
            for answer in (*answers, one_more, word, again):
                answer.close()
            return codes

    assert asyncio.run(open_many()) == [503, 200, 200]


def test_strangers_who_say_nothing_use_up_no_file_descriptors() -> None:
    made = serve(TOKEN, tick_s=0.01)
    host, port = made.url.removeprefix("http://").strip("/").split(":")
    silent: list[socket.socket] = []

    async def visit() -> tuple[int, int, list[bytes]]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(made.url + "numbers") as numbers,  # the oldest of all, and still none of the closed
        ):
            assert numbers.status == 200
            for _ in range(200):
                silent.append(socket.create_connection((host, int(port)), timeout=30))
            for stranger in silent[: 200 - MOST_CONNECTIONS + 1]:
                assert await asyncio.to_thread(stranger.recv, 1) == b"", "the oldest strangers are closed"
            async with session.get(made.url) as word:
                assert await word.text() == "hello"
            lines = [await numbers.content.readline() for _ in range(20)]
            return word.status, len(lines), lines

    status, count, lines = asyncio.run(asyncio.wait_for(visit(), 60))
    assert (status, count) == (200, 20)
    assert all(line.startswith(b"data: ") for line in lines[::2])
    newest = silent[-1]
    newest.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    assert newest.recv(12) == b"HTTP/1.1 200", "the newest are not"
    for stranger in silent:
        stranger.close()
    made.close()
    assert not made.alive


NO_HANDLE = """
import resource, sys, time
from edge_app.monitor.server import Server

made = Server("127.0.0.1:0", None)
made.start([])
resource.setrlimit(resource.RLIMIT_NOFILE, (4, 100))
print(made.url, flush=True)
sys.stdin.read()
"""


def test_connections_without_a_file_handle_do_not_fill_the_log() -> None:
    """It was a traceback for each of hundreds of tries a second."""
    command = [sys.executable, "-P", "-c", NO_HANDLE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        host, port = child.stdout.readline().strip().removeprefix("http://").strip("/").split(":")
        asked = [socket.create_connection((host, int(port)), timeout=30) for _ in range(3)]
        assert child.stderr is not None
        first = child.stderr.readline()
        time.sleep(1.5)  # it tries again each second
        rest = child.communicate(timeout=60)[1]
        for one in asked:
            one.close()
    assert "Too many open files" in first
    assert rest == ""


def test_the_tick_goes_on_whatever_happens_in_it() -> None:
    ticks = itertools.count()
    done = threading.Event()

    def tick() -> None:
        if next(ticks) >= 3:
            done.set()
        raise RuntimeError("a line that can't be looked at")

    made = serve(tick=tick, tick_s=0.01)
    assert done.wait(30)
    assert get(made.url) == (200, "hello")
    made.close()


def test_a_server_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    made = serve(died=told.put, tick_s=0.01)
    monkeypatch.setattr(made, "_stop", None)
    assert "AttributeError" in told.get(timeout=30)
    made._thread.join(30)
    assert not made.alive


def test_pages_that_can_not_be_served_are_an_error_at_start() -> None:
    class Broken:
        def routes(self) -> Iterable[web.AbstractRouteDef]:
            raise RuntimeError("no such file in the package")

    with pytest.raises(BusError, match=r"(?s)did not start.*no such file"):
        Server("127.0.0.1:0", None).start([Broken()])


def test_a_request_without_a_name_gets_nothing(server: Server) -> None:
    host, port = server.url.removeprefix("http://").strip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.0 403"
