"""An outlet with a subscriber, and a journal, for their tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from journals import PATIENCE_S, Opened
from wire_samples import Line, Node, Subscriber, outlet

from edge_app.results import Reply


@pytest.fixture
def node() -> Iterator[Node]:
    line = Line()
    opened = outlet(line, {"start": lambda request: Reply({"mode": "RUNNING", "by": request.client})})
    opened.start()
    client = Subscriber(opened)
    client.until_subscribed(opened)
    yield Node(line, opened, client)
    client.close()
    opened.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal" / "results.db"


@pytest.fixture
def opened(file: Path) -> Iterator[Opened]:
    made = Opened(file)
    yield made
    made.journal.close(PATIENCE_S)
