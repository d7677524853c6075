"""Downloads: offline, hanging, damaged and good, with servers on this machine only."""

import socket
import threading
import time

import pytest
import torchvision

from tests.unit.data.miniature import Miniature
from tnfdt.data import official, sources
from tnfdt.data.prepare import prepare
from tnfdt.data.registry import DATASETS
from tnfdt.study.schema import UserError


@pytest.fixture
def offline(monkeypatch):
    """A network on which no name resolves."""

    def refuse_name(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse_name)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["c10", "c100", "fmnist", "svhn"])
def test_offline_without_data_says_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "DEBIAN_FMNIST", tmp_path / "nowhere")
    with pytest.raises(UserError) as caught:
        prepare(name, tmp_path / "out" / name, data_dir=tmp_path / "data")
    message = str(caught.value)
    for file in DATASETS[name].files():
        assert f"{tmp_path / 'data' / file.path} (MD5 {file.md5}, from {file.url})" in message
    assert "the download failed" in message
    assert "\n" not in message
    assert ("apt install dataset-fashion-mnist" in message) == (name == "fmnist")
    assert not list((tmp_path / "out").glob("[!.]*"))
    assert not list((tmp_path / "data").glob("[!.]*"))


def test_a_repair_after_the_offline_message_just_works(tmp_path, monkeypatch, offline):
    svhn = Miniature("svhn", tmp_path, monkeypatch)
    path = tmp_path / "test_32x32.mat"
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(UserError, match=r"test_32x32.mat") as caught:
        prepare("svhn", tmp_path / "out/svhn", data_dir=tmp_path)
    assert "train_32x32.mat" not in str(caught.value)  # that one is there
    path.write_bytes(data)
    svhn.check()


class Server:
    """A server on this machine: it answers with `body`, or never."""

    def __init__(self, bodies=None):
        self.bodies, self.stop = bodies, threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        self.open = []
        while not self.stop.is_set():
            connection, _ = self.socket.accept()
            self.open.append(connection)
            if self.bodies is not None and not self.stop.is_set():
                path = connection.recv(65536).split()[1].decode().lstrip("/")
                body = self.bodies[path]
                head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)
                connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop.set()
        socket.create_connection(self.socket.getsockname()).close()
        self.thread.join()
        for connection in [*self.open, self.socket]:
            connection.close()


def serve_svhn(miniature, server, monkeypatch):
    """Let torchvision look for the miniature on `server`."""
    split_list = {
        split: [server.url + file, file, checksum]
        for split, (_, file, checksum) in torchvision.datasets.SVHN.split_list.items()
    }
    monkeypatch.setattr(torchvision.datasets.SVHN, "split_list", split_list)


def test_missing_files_are_downloaded(tmp_path, monkeypatch):
    svhn = Miniature("svhn", tmp_path, monkeypatch)
    bodies = {path.name: path.read_bytes() for path in tmp_path.glob("*.mat")}
    for path in tmp_path.glob("*.mat"):
        path.unlink()
    with Server(bodies) as server:
        serve_svhn(svhn, server, monkeypatch)
        prepare("svhn", tmp_path / "out/svhn", data_dir=tmp_path)
    assert {path.name for path in tmp_path.glob("[!.]*")} == {*bodies, "out"}
    svhn.check()


def test_a_damaged_download_leaves_nothing(tmp_path, monkeypatch):
    svhn = Miniature("svhn", tmp_path, monkeypatch)
    bodies = {path.name: b"an error page" for path in tmp_path.glob("*.mat")}
    for path in tmp_path.glob("*.mat"):
        path.unlink()
    with Server(bodies) as server:
        serve_svhn(svhn, server, monkeypatch)
        with pytest.raises(UserError, match=r"download failed \(File not found or corrupted"):
            prepare("svhn", tmp_path / "out/svhn", data_dir=tmp_path)
    assert not list(tmp_path.glob("*.mat"))
    assert not (tmp_path / ".partial").exists()


def test_a_server_that_never_answers_does_not_hang(tmp_path, monkeypatch):
    svhn = Miniature("svhn", tmp_path, monkeypatch)
    for path in tmp_path.glob("*.mat"):
        path.unlink()
    monkeypatch.setattr(official, "TIMEOUT", 0.2)
    start = time.monotonic()
    with Server() as server:
        serve_svhn(svhn, server, monkeypatch)
        with pytest.raises(UserError, match=r"download failed .*timed out"):
            prepare("svhn", tmp_path / "out/svhn", data_dir=tmp_path)
    assert time.monotonic() - start < 10
    assert socket.getdefaulttimeout() is None
