"""Who may look: this machine, or whoever has the token."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from aiohttp import web
from yarl import URL

from edge_app.errors import ConfigError
from edge_app.keys import others_can_read
from edge_app.results.endpoint import is_loopback

LEAST_TOKEN = 16
COOKIE_DAYS = 30


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `ADDRESS:PORT`; IPv6 addresses stand in brackets. Raises ConfigError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535 or (":" in host and host[0] != "["):
        raise ConfigError(
            "not an address to listen at",
            where="monitor.http",
            wanted="ADDRESS:PORT, e.g. 127.0.0.1:8560 (port 0: any free one)",
            got=address,
        )
    return host.strip("[]"), int(port)


def read_token(file: Path) -> str:
    """The token in a file. Raises ConfigError."""
    try:
        token = file.read_text(encoding="ascii").strip()
        status = file.stat()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("the token can't be read", where="monitor.token_file", got=f"{file}: {error}") from error
    if others_can_read(status, os.geteuid()):
        raise ConfigError(
            "others can read this token", where="monitor.token_file", got=str(file), remedy=f"chmod 600 {file}"
        )
    if len(token) < LEAST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            "this token can't be used",
            where="monitor.token_file",
            wanted=f"one line of {LEAST_TOKEN} or more printable ASCII characters without spaces",
            got=f"{len(token)} characters in {file}",
            remedy=f"openssl rand -hex 24 > {file}",
        )
    return token


class Access:
    """Checks each request before any page sees it.

    Args:
        host: where the server listens.
        token: None: this machine alone may look.

    Raises:
        ConfigError: other machines could reach it, and there is no token.
    """

    def __init__(self, host: str, token: str | None) -> None:
        if token is None and not is_loopback(host):
            raise ConfigError(
                "without a token only this machine may look",
                where="monitor.http",
                wanted="a loopback address, e.g. 127.0.0.1:8560, or monitor.token_file",
                got=host,
                remedy="openssl rand -hex 24 > token; chmod 600 token; and set monitor.token_file",
            )
        self._token = token
        self._cookie = "" if token is None else hashlib.sha256(f"edge_app page {token}".encode()).hexdigest()

    def check(self, request: web.Request) -> None:
        """Raises the HTTP answer of a request that may not pass."""
        if self._token is None:
            self._refuse_foreign_names(request)
            return
        if "token" in request.query:
            self._let_browser_in(request)
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Bearer" and _same(given, self._token):
            return
        if _same(request.cookies.get(self._cookie_name(request), ""), self._cookie):
            return
        raise web.HTTPUnauthorized(
            text="This page needs the node's token: open it as .../?token=TOKEN once.\n",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _refuse_foreign_names(self, request: web.Request) -> None:
        """A site whose name is made to point at this machine would else read the page through a visitor's browser."""
        try:
            name = URL(f"http://{request.headers.get('Host', '')}").host or ""
        except ValueError:
            name = ""
        if not is_loopback(name):
            raise web.HTTPForbidden(text=f"This server answers to localhost alone, not to {name!r}.\n")

    def _let_browser_in(self, request: web.Request) -> None:
        """A right token becomes a cookie, and leaves the address bar."""
        assert self._token is not None
        if not _same(request.query["token"], self._token):
            raise web.HTTPUnauthorized(text="This is not the node's token.\n")
        answer = web.HTTPFound(request.path)
        answer.set_cookie(
            self._cookie_name(request), self._cookie, max_age=COOKIE_DAYS * 86400, httponly=True, samesite="Strict"
        )
        raise answer

    @staticmethod
    def _cookie_name(request: web.Request) -> str:
        """Cookies do not know ports, and several nodes may share a machine: the name is by the port listened at."""
        own = None if request.transport is None else request.transport.get_extra_info("sockname")
        return f"edge_app_{own[1] if own else 0}"


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogatepass"), wanted.encode())  # headers are not always UTF-8
