"""Where the node may listen."""

from __future__ import annotations

import ipaddress
import re

from edge_app.errors import ConfigError

_TCP = re.compile(r"^tcp://(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/\s]+):(?P<port>\d+|\*)$")


def check_endpoint(endpoint: str, key: str, *, secured: bool, simulated: bool, allow_simulated: bool) -> None:
    """Refuses an endpoint that can't be bound, or must not be.

    Args:
        endpoint: `tcp://ADDRESS:PORT`, or `ipc://PATH`, which no other machine can reach.
        key: the YAML key, for the error.
        secured: CURVE is on.
        simulated: results are not the plant's.
        allow_simulated: `results.allow_simulated_off_loopback`.

    Raises:
        ConfigError: says which, and what would be accepted.
    """
    if endpoint.startswith("ipc://") and len(endpoint) > len("ipc://"):
        return
    match = _TCP.match(endpoint)
    if match is None or (match["port"] != "*" and not 0 < int(match["port"]) < 65536):
        raise ConfigError(
            "not an endpoint that can be bound",
            where=f"results.{key}",
            wanted="tcp://ADDRESS:PORT, e.g. tcp://127.0.0.1:5560, or null for none",
            got=endpoint,
        )
    if is_loopback(match["host"]):
        return
    if not secured:
        raise ConfigError(
            "without keys only this machine may listen",
            where=f"results.{key}",
            wanted="a loopback address, e.g. tcp://127.0.0.1:5560",
            got=endpoint,
            remedy="make keys with `edge_app keys new` and name them in results.security, or bind 127.0.0.1",
        )
    if simulated and not allow_simulated:
        raise ConfigError(
            "simulated results may not leave this machine",
            where=f"results.{key}",
            wanted="a loopback address: the camera or the session of this pipeline is simulated",
            got=endpoint,
            remedy="bind 127.0.0.1, or say results.allow_simulated_off_loopback: true",
        )


def is_loopback(host: str) -> bool:
    """Whether a host of an endpoint is this machine only. Names other than `localhost` and `lo` are taken to be not."""
    if host in ("localhost", "lo"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
