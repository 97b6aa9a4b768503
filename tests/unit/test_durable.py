"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge_app.durable import replace_durably, write_whole
from edge_app.errors import ModelError

NOBODY = 65534


def test_what_was_before_is_replaced_and_folders_are_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file"
    replace_durably(file, "one")
    write_whole(file, "ä two", "it", ModelError)
    assert file.read_bytes() == "ä two".encode()
    assert list(file.parent.iterdir()) == [file]


def test_what_can_not_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file" / "entry").mkdir(parents=True)
    with pytest.raises(ModelError) as caught:
        write_whole(tmp_path / "file", b"one", "the model", ModelError)
    assert (caught.value.what, caught.value.got) == ("can't write the model", "Is a directory")
    with pytest.raises(IsADirectoryError):
        replace_durably(tmp_path / "file", "one")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """So does /dev/null, which a file of its name would replace for everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "trace", "it", ModelError)
        assert (os.read(reader, 100), pipe.is_fifo(), list(tmp_path.iterdir())) == (b"trace", True, [pipe])
    finally:
        os.close(reader)


def test_in_a_folder_that_can_not_be_read_what_was_before_stands(tmp_path: Path) -> None:
    """Its names can't be brought to the disk. Root may read all: a child that is nobody tries."""
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "file").write_text("before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(tmp_path)
            if os.geteuid() == 0:
                for path in (tmp_path, folder, folder / "file"):
                    os.chown(path, NOBODY, NOBODY)
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            Path("store").chmod(0o300)
            replace_durably(Path("store/file"), "after")
        except PermissionError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    folder.chmod(0o700)
    assert (folder / "file").read_text() == "before"
    assert [path.name for path in folder.iterdir()] == ["file"]
