"""`edge_app keys`: pairs are made once, kept secret, and checked."""

from __future__ import annotations

import json
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from edge_app.cli import main
from edge_app.keys import read_public, read_secret


def test_a_new_pair_is_for_its_owner_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "station3", "--dir", str(tmp_path / "keys"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    secret_file = Path(told["secret_file"])
    assert stat.S_IMODE(secret_file.stat().st_mode) == 0o600
    pair = read_secret(secret_file)
    assert (pair.name, pair.public) == ("station3", told["public"])
    assert pair.secret is not None
    assert pair.secret not in repr(pair)
    public_file = Path(told["public_file"])
    assert pair.secret not in public_file.read_text()
    assert read_public(public_file).public == pair.public


def test_a_pair_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "a", "--dir", str(tmp_path)]) == 0
    before = (tmp_path / "a.secret.toml").read_text()
    assert main(["keys", "new", "a", "--dir", str(tmp_path)]) == 2
    assert "never written over" in capsys.readouterr().err
    assert (tmp_path / "a.secret.toml").read_text() == before


@pytest.mark.parametrize("name", ["../x", "", "a b", "-x", "ä", "a\x1b"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "--dir", str(tmp_path), "--", name]) == 2
    assert "\x1b" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_half_key(tmp_path: Path) -> None:
    """An empty secret was left, and the next try was told that there is one already."""
    command = [sys.executable, "-PBm", "edge_app", "keys", "new", "a", "--dir", str(tmp_path / "keys")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path / 'keys'}" in done.stderr
    assert "can't write the key: File too large" in done.stderr
    assert list((tmp_path / "keys").iterdir()) == []


def test_show_never_prints_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "new", "plc", "--dir", str(tmp_path)])
    capsys.readouterr()
    assert main(["keys", "show", str(tmp_path / "plc.secret.toml"), "--role", "controller"]) == 0
    out = capsys.readouterr().out
    pair = read_secret(tmp_path / "plc.secret.toml")
    assert str(pair.secret) not in out
    assert out == f'[[client]]\nname = "plc"\npublic = "{pair.public}"\nrole = "controller"\n'


def test_check_finds_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        main(["keys", "new", name, "--dir", str(tmp_path)])
    clients = tmp_path / "clients.toml"
    clients.write_text(entry(tmp_path / "a.public.toml"))
    files = [str(file) for file in sorted(tmp_path.iterdir())]
    assert main(["keys", "check", *files]) == 0
    mixed = tmp_path / "b.secret.toml"
    other = read_public(tmp_path / "a.public.toml").public
    mixed.write_text(mixed.read_text().replace(read_public(mixed).public, other))
    (tmp_path / "a.secret.toml").chmod(0o644)
    clients.write_text(entry(tmp_path / "a.public.toml") * 2)
    capsys.readouterr()
    assert main(["keys", "check", *files, "--json"]) == 1
    found = {Path(f["file"]).name: f["problem"] for f in json.loads(capsys.readouterr().out)["files"]}
    assert "not of one pair" in found["b.secret.toml"]
    assert "others can read this secret" in found["a.secret.toml"]
    assert "stands twice" in found["clients.toml"]
    assert found["a.public.toml"] is None


@pytest.mark.parametrize("name", ["x.secret.toml", "x.public.toml", "x.toml", "x.yaml"])
@pytest.mark.parametrize(
    "content", [b"", bytes(range(256)), b"a=" + b"[" * 20_000, b"a=" + b"9" * 5_000, b"client=[1]"]
)
def test_check_of_anything_is_a_finding_not_a_traceback(
    tmp_path: Path, name: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    file.chmod(0o600)
    assert main(["keys", "check", str(file), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["files"]
    assert found["problem"]


def entry(public_file: Path) -> str:
    pair = read_public(public_file)
    return f'[[client]]\nname = "{pair.name}"\npublic = "{pair.public}"\nrole = "viewer"\n'
