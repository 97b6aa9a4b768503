"""Keys with real sockets: who gets in, who may do what, and that the node proves its locks before it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from wire_samples import Line as Sealing
from wire_samples import config, outlet, until, until_subscribed

from edge_app.client import CommandRefused, Keys, Line, NoAnswer
from edge_app.errors import BusError, ConfigError
from edge_app.keys import KeyPair, write_pair
from edge_app.results import Outlet, Reply, selftest
from edge_app.results.auth import Gate, load_clients
from edge_app.results.commands import Role
from edge_app.results.sockets import Sockets


def new_pair(name: str) -> KeyPair:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return KeyPair(name, public, secret)


class Plant:
    """A folder of keys: the node's, and clients with roles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = new_pair("node")
        write_pair(folder, self.node)
        self.pairs = {name: new_pair(name) for name in ("viewer", "controller", "engineer")}
        self.clients = folder / "clients.toml"
        self.allow("viewer", "controller", "engineer")

    def allow(self, *names: str, role: str | None = None) -> None:
        self.clients.write_text("\n".join(
            f'[[client]]\nname = "{n}"\npublic = "{self.pairs[n].public}"\nrole = "{role or n}"' for n in names
        ))  # fmt: skip

    def security(self) -> dict[str, Any]:
        return {"key": self.folder / "node.secret.toml", "clients": self.clients}

    def keys(self, name: str) -> Keys:
        return Keys(self.pairs[name], self.node.public)


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    return Plant(tmp_path)


@pytest.fixture
def sealing() -> Sealing:
    return Sealing()


@pytest.fixture
def node(plant: Plant, sealing: Sealing) -> Iterator[Outlet]:
    handlers = {"start": lambda request: Reply({"by": request.client, "role": request.role.name})}
    opened = outlet(sealing, handlers, results=config(security=plant.security()))
    opened.start()
    yield opened
    opened.close()


def connect(node: Outlet, keys: Keys | None) -> Line:
    return Line(str(node.publish_endpoint), node.commands_endpoint, keys=keys)


def status(node: Outlet, plant: Plant) -> dict[str, Any]:
    with connect(node, plant.keys("engineer")) as line:
        return dict(line.command("status"))


def test_a_known_key_gets_results_and_answers(node: Outlet, plant: Plant, sealing: Sealing) -> None:
    with connect(node, plant.keys("controller")) as line:
        reply = line.command("start")
        assert (reply["by"], reply["role"]) == ("controller", "CONTROLLER")
        assert line.command("hello")["role"] == "controller"
        until_subscribed(node, line)
        node.result(sealing.seal())
        result = line.next(40)
        assert result is not None
        assert result.seq == 1


def stranger(plant: Plant) -> Keys:
    return Keys(new_pair("stranger"), plant.node.public)


def wrong_node(plant: Plant) -> Keys:
    return Keys(plant.pairs["viewer"], new_pair("other").public)


def no_keys(_plant: Plant) -> None:
    return None


@pytest.mark.parametrize("keys", [stranger, wrong_node, no_keys])
def test_others_meet_silence_and_are_counted(
    node: Outlet, plant: Plant, sealing: Sealing, keys: Callable[[Plant], Keys | None]
) -> None:
    for _ in range(3):
        with connect(node, keys(plant)) as line:
            node.result(sealing.seal())
            with pytest.raises(NoAnswer):
                line.command("hello", timeout_s=0.3)
            assert line.next(0.1) is None
            assert line.fault == "no heartbeat yet"
    until(lambda: status(node, plant)["wire"]["connections_refused"] >= 6)
    until(lambda: [a["alarm"] for a in status(node, plant)["alarms"]] == ["CONNECTIONS_REFUSED"])


def test_the_nodes_own_test_is_not_counted(node: Outlet, plant: Plant) -> None:
    with connect(node, plant.keys("engineer")) as line:
        line.command("hello")
        first = line.heartbeat
        until(lambda: line.next(0.05) is None and line.heartbeat not in (None, first))
        assert line.command("status")["wire"]["connections_refused"] == 0


def test_a_role_bounds_what_a_client_may_do(node: Outlet, plant: Plant) -> None:
    with connect(node, plant.keys("viewer")) as line:
        assert line.command("status")["ok"]
        for _ in range(5):
            with pytest.raises(CommandRefused, match="needs the role controller; this key is viewer") as caught:
                line.command("start")
            assert caught.value.code == "FORBIDDEN"
        told = line.command("status")
    assert told["wire"]["commands_refused"] == 5
    assert [alarm["alarm"] for alarm in told["alarms"]] == ["COMMANDS_REFUSED"]
    with connect(node, plant.keys("controller")) as line, pytest.raises(CommandRefused, match="role engineer"):
        line.command("self_test")


def test_a_new_role_holds_from_the_reload_on(node: Outlet, plant: Plant) -> None:
    with connect(node, plant.keys("viewer")) as line:
        with pytest.raises(CommandRefused):
            line.command("start")
        plant.allow("viewer", "engineer", role="engineer")
        node.reload()
        assert line.command("start")["role"] == "ENGINEER"


def test_a_revoked_key_is_out_at_once_and_the_others_lose_nothing(
    node: Outlet, plant: Plant, sealing: Sealing
) -> None:
    with connect(node, plant.keys("viewer")) as revoked, connect(node, plant.keys("controller")) as kept:
        for line in (revoked, kept):
            line.command("hello")
            until_subscribed(node, line)
        node.result(sealing.seal())
        assert [line.next(40).seq for line in (revoked, kept)] == [1, 1]  # type: ignore[union-attr]
        plant.allow("controller", "engineer")
        node.reload()
        for _ in range(50):
            node.result(sealing.seal())
        assert [kept.next(40).seq for _ in range(50)] == list(range(2, 52))  # type: ignore[union-attr]
        with pytest.raises(NoAnswer):
            revoked.command("hello", timeout_s=1)
        late = revoked.next(0.5)
        assert late is None or late.delivery != "replayed", "what came in before the revocation"
        node.result(sealing.seal())
        assert kept.next(40).seq == 52  # type: ignore[union-attr]
        while (result := revoked.next(0.3)) is not None:
            assert result.seq < 52


def test_a_client_that_was_refused_gets_in_once_its_key_is_known(node: Outlet, plant: Plant) -> None:
    plant.allow("engineer")
    node.reload()
    with connect(node, plant.keys("viewer")) as line:
        assert line.next(0.5) is None
        plant.allow("engineer", "viewer")
        node.reload()
        until(lambda: line.next(0.1) is None and line.fault is None)


def test_a_list_that_can_not_be_read_leaves_the_old_one_in_force(node: Outlet, plant: Plant) -> None:
    plant.clients.write_text("[[client]]\nname = 'half an entry'")
    node.reload()
    with connect(node, plant.keys("viewer")) as line:
        (alarm,) = line.command("status")["alarms"]
        assert alarm["alarm"] == "CLIENTS_INVALID"
        assert str(plant.clients) in alarm["text"]
        plant.allow("viewer")
        node.reload()
        assert line.command("status", timeout_s=5)["alarms"] == []


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ((Sockets, "_lock", lambda _self, _sock: None), "a client without a key was not refused"),
        ((Gate, "serve", lambda self: serve_all(self, b"200")), "a client with an unknown key was not refused"),
        ((Gate, "serve", lambda self: serve_all(self, b"400")), "the node's own key was not let in"),
    ],
)
def test_a_node_whose_locks_do_not_hold_does_not_start(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, broken: tuple[Any, str, Any], told: str
) -> None:
    monkeypatch.setattr(*broken)
    opened = outlet(Sealing(), results=config(security=plant.security()))
    with pytest.raises(BusError, match=told) as caught:
        opened.start()
    assert caught.value.exit_code == 6
    assert not opened.healthy()


def serve_all(gate: Gate, code: bytes) -> None:
    """A gate that does not look."""
    while gate.socket is not None and gate.socket.poll(0):
        version, request_id, *_ = gate.socket.recv_multipart()
        gate.socket.send_multipart([version, request_id, code, b"", b"u", b""])


def test_nobody_gets_in_while_the_gate_is_down(plant: Plant, node: Outlet) -> None:
    bus = node._bus
    assert bus is not None
    assert bus._gate is not None
    assert bus.sockets.context is not None
    bus._gate.serve = lambda: None  # type: ignore[method-assign]
    for _ in range(2):  # the bus may be in the middle of the serve that was: two more turns, and it is not
        before = bus.last_turn_us
        bus._wakeup.set()
        until(lambda before=before: bus.last_turn_us != before)  # type: ignore[misc]
    let_in = selftest.let_in(
        bus.sockets.context, str(node.publish_endpoint), zmq.SUB, plant.node.public, plant.pairs["viewer"]
    )
    assert let_in is not True


PUBLIC = "A" * 40


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("client = 3", "unknown keys"),
        ("[[clients]]\nname='x'", "unknown keys"),
        ("[[client]]\nname='x'", "not an entry"),
        (f"[[client]]\nname='x'\npublic='{PUBLIC}'\nrole='viewer'\nextra=1", "not an entry"),
        (f"[[client]]\nname='x'\npublic='{PUBLIC}'\nrole='boss'", "role: unknown"),
        ("[[client]]\nname='x'\npublic='short'\nrole='viewer'", "public: not a key"),
        (f'[[client]]\nname="\\u001b"\npublic="{PUBLIC}"\nrole="viewer"', "name: wanted"),
        (f"[[client]]\nname='x'\npublic='{PUBLIC}'\nrole='viewer'\n" * 2, "stands twice"),
        ("[[client", "not a TOML file"),
        (f"[[client]]\nname='x'\npublic='{PUBLIC}'\nrole=['viewer']", "role: unknown"),
        (f"[[client]]\nname='x'\npublic='{PUBLIC}'\nrole={{a=1}}", "role: unknown"),
        ("client=" + "[" * 20_000, "not a TOML file"),
        ("client=" + "9" * 5_000, "not a TOML file"),
    ],
)
def test_a_wrong_list_of_clients_is_one_clear_error(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        load_clients(file)
    assert str(file) in str(caught.value)


def test_a_list_that_others_can_write_is_refused(plant: Plant) -> None:
    assert {c.role for c in load_clients(plant.clients).values()} == set(Role)
    plant.clients.chmod(0o666)
    with pytest.raises(ConfigError, match="others can write"):
        load_clients(plant.clients)


def test_a_secret_that_others_can_read_is_refused(plant: Plant) -> None:
    (plant.folder / "node.secret.toml").chmod(0o640)
    with pytest.raises(ConfigError, match="others can read this secret") as caught:
        outlet(Sealing(), results=config(security=plant.security()))
    assert caught.value.exit_code == 2
