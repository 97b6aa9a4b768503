"""`edge_app bench`: the document, the ledger, and what is refused."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from edge_app.bench import ledger
from edge_app.bench.start import output_of
from edge_app.cli import main
from edge_app.commands import bench as bench_command
from edge_app.errors import RuntimeFault


def bench(*words: str) -> int:
    return main(["bench", *words])


def test_one_document_with_every_peer_named(capsys):
    assert bench("decode", "--rounds", "2", "--only", "w6_conf25", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    figures = found["w6_conf25"]
    assert figures["ours_ms"] > 0
    assert figures["ratio_numpy_cv2"] > 0
    for peer in ("ultralytics", "torchvision", "edgefirst"):
        assert f"ratio_{peer}" in figures
    assert "w6_conf001" not in found


def test_absent_peers_are_shown_as_not_installed(capsys, monkeypatch):
    monkeypatch.setattr("edge_app.bench.peers.optional", lambda _name: None)
    assert bench("decode", "--rounds", "1", "--only", "w6_conf25") == 0
    table = capsys.readouterr().out
    assert table.count("not installed") == 3


def test_preprocess_beside_the_floor(capsys):
    assert bench("preprocess", "--rounds", "1", "--only", "w2_1280x720_u8", "--json") == 0
    figures = json.loads(capsys.readouterr().out)["w2_1280x720_u8"]
    assert figures["ratio_tuned_cv2"] > 0
    assert figures["ratio_floor"] > 0


def test_runs_go_into_a_ledger_that_can_be_drawn(tmp_path: Path, capsys):
    pytest.importorskip("matplotlib")
    file = tmp_path / "ledger.jsonl"
    for _ in range(2):
        assert bench("decode", "--rounds", "1", "--only", "w6_conf25", "--ledger", str(file), "--json") == 0
    assert len(file.read_text().splitlines()) == 2
    assert bench("--ledger", str(file), "--plot", str(tmp_path / "out.png")) == 0
    assert (tmp_path / "out.png").read_bytes()[:4] == b"\x89PNG"


def test_a_part_that_breaks_off_does_not_cost_the_others(capsys, monkeypatch):
    real = bench_command.measure

    def measure(name, options):
        if name == "bus":
            raise RuntimeError("no sockets")
        return real(name, options)

    monkeypatch.setattr(bench_command, "measure", measure)
    assert bench("bus", "decode", "--rounds", "1", "--only", "w6_conf25", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == {"bus": "RuntimeError: no sockets"}
    assert found["w6_conf25"]["ours_ms"] > 0


def test_a_plot_wants_a_ledger(capsys):
    assert bench("--plot", "out.png") == 2
    assert "--ledger" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["none/out.png", "out.bmp", ""])
def test_a_plot_that_can_not_be_written_is_one_error(tmp_path, capsys, name):
    pytest.importorskip("matplotlib")
    assert bench("--ledger", str(tmp_path / "ledger.jsonl"), "--plot", str(tmp_path / name)) == 2
    assert "the plot can't be written" in capsys.readouterr().err


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as exit_:
        bench("preprocessing")
    assert exit_.value.code == 2
    assert "wanted preprocess, decode, host, bus, start, model" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["host", "start", "model"])
def test_a_pipeline_that_can_not_be_read_is_told_at_once(part: str, capsys):
    assert bench("decode", part, "--pipeline", "nope.yaml") == 2
    assert "nope.yaml: can't read the file" in capsys.readouterr().err


def test_a_ledger_that_can_not_be_written_costs_no_figures(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(bench_command, "measure", lambda _name, _options: pytest.fail("measured for nothing"))
    assert bench("decode", "--ledger", str(tmp_path / "gone" / "ledger.jsonl")) == 2
    assert "can't write the ledger" in capsys.readouterr().err


def test_a_full_disk_adds_no_half_document_to_a_ledger(tmp_path: Path):
    file = tmp_path / "ledger.jsonl"
    ledger.append(file, {"commit": "1" * 40})
    before = file.read_bytes()
    most = len(before) + 20
    add = "from edge_app.bench.ledger import *; import sys; append(Path(sys.argv[1]), {'a': 'b' * 99})"
    done = subprocess.run(
        [sys.executable, "-PBc", add, file], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )  # fmt: skip
    assert "can't write the ledger" in done.stderr
    assert file.read_bytes() == before


def test_a_key_that_no_figure_has_is_refused(tmp_path: Path, capsys):
    file = tmp_path / "ledger.jsonl"
    assert bench("decode", "--only", "zzz", "--ledger", str(file)) == 2
    assert "no figure's key begins with zzz" in capsys.readouterr().err
    assert file.read_text() == ""


def test_what_a_measured_process_died_of_is_told():
    with pytest.raises(RuntimeFault, match="ended with 7") as caught:
        output_of([sys.executable, "-c", "import sys; print('no camera', file=sys.stderr); sys.exit(7)"], {})
    assert caught.value.got == "no camera\n"
