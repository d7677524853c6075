"""What the doctor finds on machines with and without what a study needs."""

import http.server
import importlib
import json
import socketserver
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.pretended_gpus import PretendedCuda, PretendedNvml
from tnfdt import cli, devices
from tnfdt.data import official
from tnfdt.doctor import checks, selftest
from tnfdt.study.machine import load_machine
from tnfdt.study.study import load_study


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return load_machine(overrides={"device": "cpu", "sample_dir": "none"})


def found(check, machine, study="demo"):
    """The states and the text of one check."""
    findings = list(checks._reported(check, load_study(study), machine))
    return [finding.state for finding in findings], "\n".join(map(str, findings))


def test_a_machine_with_all_that_is_needed(machine, monkeypatch, capsys):
    """What only some need is a note and no failure."""
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    assert checks.run(load_study("demo"), machine, None) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [check.__name__ for check in checks.CHECKS]
    notes = {line.split()[1] for line in lines if line.startswith("note")}
    assert notes == {"gpus", "slurm", "latex"}


@pytest.fixture
def gpus(monkeypatch):
    importlib.import_module("torch._dynamo")  # later it would find a torch.cuda without its insides
    pretended = PretendedCuda()
    monkeypatch.setattr(torch, "cuda", pretended)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setitem(sys.modules, "pynvml", PretendedNvml())
    monkeypatch.setattr(devices, "_gpus_of_driver", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    return pretended


@pytest.mark.usefixtures("gpus")
def test_gpus_with_their_own_free_memory(machine):
    states, text = found(checks.gpus, machine)
    assert states == ["ok"] * 3
    assert "535.104.05, CUDA up to 12.2" in text
    assert "cuda:0    Pretended 3, 3.0 of 24.0 GiB free" in text
    assert "cuda:1    Pretended 1, 1.0 of 24.0 GiB free" in text


@pytest.mark.usefixtures("gpus")
def test_gpus_of_which_nvml_says_nothing_are_a_note(machine, monkeypatch):
    class NotSupportedError(Exception):
        """Of a part of a GPU, or of a system without NVML."""

    def refuse(self, handle):
        raise NotSupportedError("Not Supported")

    monkeypatch.setattr(PretendedNvml, "nvmlDeviceGetMemoryInfo", refuse)
    states, text = found(checks.gpus, machine)
    assert states == ["ok", "note"]
    assert "Not Supported" in text


def test_a_driver_that_is_too_old_needs_a_fix(machine, gpus, capsys):
    gpus.works = False
    assert checks.run(load_study("demo"), machine, None) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("FIX"))
    assert "built for CUDA 13.2, driver 535.104.05 knows CUDA up to 12.2" in line
    assert "make venv TORCH=" in line


def test_a_gpu_that_is_asked_for_and_is_not_there(machine):
    states, text = found(checks.gpus, replace(machine, device="cuda"))
    assert states == ["FIX"]
    assert "set it to auto or cpu" in text


def test_data_that_is_missing_or_damaged(machine, monkeypatch):
    """Where to get it is said; nothing is downloaded."""
    monkeypatch.setattr(official, "download", lambda *_: pytest.fail("a download"))
    states, text = found(checks.data, replace(machine, data_dir="none"), "paper")
    assert states.count("note") >= 3
    assert "https://" in text
    assert "MD5" in text
    assert not Path("none").exists()
    Path("data").mkdir()
    Path("data/cifar-10-python.tar.gz").write_text("no archive")
    states, text = found(checks.data, machine, "paper")
    assert states[0] == "FIX"
    assert "cifar-10-python.tar.gz" in text


def test_a_users_own_file(machine, tmp_path):
    demo = load_study("demo")
    mine = replace(demo.datasets["digits"], path="mine.npz")
    study = replace(demo, datasets={"digits": mine})
    assert [f.state for f in checks.data(study, machine)] == ["FIX"]
    Path("mine.npz").touch()
    assert [f.state for f in checks.data(study, machine)] == ["ok"]


def test_a_disk_that_is_too_small_and_locks_that_do_not_lock(machine, monkeypatch):
    monkeypatch.setattr(checks.space, "left", lambda folder: 10**6)
    assert found(checks.disk, machine)[0] == ["FIX"]
    assert found(checks.flock, machine)[0] == ["ok"]
    monkeypatch.setattr(checks.fcntl, "flock", lambda *_: None)
    assert found(checks.flock, machine)[0] == ["FIX"]
    assert not list(Path().iterdir())


class Server(http.server.BaseHTTPRequestHandler):
    """Answers 200, or 401 where a folder called `closed` is asked for."""

    def do_GET(self):
        self.send_response(401 if "closed" in self.path else 200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_store_that_answers_and_one_that_does_not(machine):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = f"http://127.0.0.1:{server.server_port}"
        with_password = there.replace("//", "//me:secret@")
        for uri in (there, f"{there}/closed", with_password):
            states, text = found(checks.tracking, replace(machine, tracking_uri=uri))
            assert states == ["ok"]
            assert "secret" not in text
        server.shutdown()
    for uri in (there, with_password):
        states, text = found(checks.tracking, replace(machine, tracking_uri=uri))
        assert states == ["FIX"]
        assert "secret" not in text
    assert found(checks.tracking, replace(machine, tracking_uri="none"))[0] == ["note"]


def test_an_address_that_no_store_can_have_is_one_finding(machine):
    class Other(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(b"SSH-2.0-Other\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        wrong = f"http://127.0.0.1:{server.server_address[1]}"
        for uri in (wrong, "http://localhost:abc", "postgresql://me@127.0.0.1:999999/db"):
            states, text = found(checks.tracking, replace(machine, tracking_uri=uri))
            assert states == ["FIX"], text
        server.shutdown()


def test_the_self_test_on_the_cpu_feeds_the_plan(machine, monkeypatch, capsys):
    monkeypatch.setattr(selftest, "_CALIBRATION_SECONDS", 0.0)
    options = ["--study", "demo", "--device", "cpu", "--set", "sample_dir=none"]
    assert cli.main(["doctor", *options]) == 0
    tested = capsys.readouterr().out.splitlines()[len(checks.CHECKS) :]
    names = [line.split()[1] for line in tested]
    assert names == ["vanilla", "ov", "fdt", "tn", "tn_fdt", "speed"]
    assert all("agree with" in line and "same bytes" in line for line in tested[:5])
    assert json.loads(Path("results/calibration.json").read_text())["cpu, fp32, threads 1"]


def test_a_device_that_computes_wrong_or_never_twice_the_same_is_found(machine, monkeypatch):
    def tried(loss, weight):
        return selftest.Tried([1.0, loss], {"w": torch.tensor(weight)}, 1.0)

    config = {"precision": "fp32"}
    for device, words in (
        ([tried(0.5, 1.0), tried(0.5, 1.0)], None),
        ([tried(0.5, 1.0), tried(0.5, 2.0)], "OTHER bytes"),
        ([tried(0.6, 1.0), tried(0.6, 1.0)], "DO NOT agree"),
    ):
        runs = iter([*device, tried(0.5, 1.0)])
        monkeypatch.setattr(selftest, "_train", lambda *_, runs=runs: next(runs))
        works, text = selftest._try_method(config, Path(), torch.device("cpu"))
        assert works == (words is None)
        assert words is None or (words in text and "do not trust" in text)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cpu;rm"])
def test_a_device_that_is_none_is_one_line(machine, device, capsys):
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--device", device])
    assert capsys.readouterr().err.count("\n") == 1
