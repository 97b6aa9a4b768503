"""Work that may never come back: whoever waits is told, and what comes late is let go of."""

from __future__ import annotations

import threading

import pytest
from wire_samples import until

from edge_app.errors import ModelError, RuntimeFault
from edge_app.loading import Loading


def test_what_was_made_or_raised_arrives() -> None:
    let_go: list[int] = []
    assert Loading(lambda: 7, let_go.append, "loading").result(60) == 7
    broken = Loading[int](lambda: (_ for _ in ()).throw(ModelError("no such file")), let_go.append, "loading")
    with pytest.raises(ModelError, match="no such file"):
        broken.result(60)
    assert let_go == []


def test_who_waits_for_what_hangs_is_told_and_what_comes_after_all_is_let_go_of() -> None:
    goes_on, let_go = threading.Event(), list[str]()

    def work() -> str:
        goes_on.wait()
        return "a model"

    loading = Loading(work, let_go.append, "loading toy@1")
    with pytest.raises(RuntimeFault, match=r"loading toy@1 did not end\n  wanted: an end within 0\.01 s"):
        loading.result(0.01)
    assert loading.hangs
    goes_on.set()
    until(lambda: let_go == ["a model"])
    assert not loading.hangs
