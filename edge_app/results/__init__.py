"""What leaves the node: sockets, commands, keys, journal, evidence. `Outlet` is the face of it all."""

from edge_app.results.commands import Code, Deferred, Handler, RefusedError, Reply, Request, Role
from edge_app.results.identity import ClockInfo, NodeIdentity, NodeStatus, Recipe, new_epoch
from edge_app.results.outlet import Outlet
from edge_app.verdict import ModelIdentity

__all__ = [
    "ClockInfo",
    "Code",
    "Deferred",
    "Handler",
    "ModelIdentity",
    "NodeIdentity",
    "NodeStatus",
    "Outlet",
    "Recipe",
    "RefusedError",
    "Reply",
    "Request",
    "Role",
    "new_epoch",
]
