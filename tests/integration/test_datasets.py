"""Real images: Fashion-MNIST from Debian's package, and samples of the other sets."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tnfdt.core.augment import ShiftFlip
from tnfdt.data.prepare import prepare
from tnfdt.data.prepared import ImageSet, load
from tnfdt.study.schema import ROOT
from tnfdt.train.batch_sources import SingleImages

SAMPLES = Path(os.environ.get("TNFDT_SAMPLES", ROOT / "../shared/data"))

needs_fmnist = pytest.mark.needs("fashion-mnist")

PREPARE = """
import sys
from pathlib import Path
from tnfdt.data.prepare import prepare
print(prepare("fmnist", Path(sys.argv[1]), data_dir=Path(sys.argv[2]), download=False)["source"])
"""


def start(folder: Path) -> subprocess.Popen[str]:
    """Prepare Fashion-MNIST in a process of its own."""
    command = [sys.executable, "-c", PREPARE, str(folder / "out/fmnist"), str(folder / "empty")]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


@pytest.fixture(scope="module")
def fmnist(tmp_path_factory):
    """Two processes prepare it at once."""
    folder = tmp_path_factory.mktemp("fmnist")
    both = [start(folder), start(folder)]
    told = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert all("Debian" in out for out, _ in told)
    return folder / "out/fmnist"


@needs_fmnist
def test_fashion_mnist_is_complete(fmnist):
    begin = time.perf_counter()
    found = load(fmnist)
    assert time.perf_counter() - begin < 1
    assert found.train_x.shape == (60_000, 3, 28, 28)
    assert found.test_x.shape == (10_000, 3, 28, 28)
    assert found.train_y.bincount().tolist() == [6000] * 10
    assert found.test_y.bincount().tolist() == [1000] * 10
    assert found.train_y[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]  # as published
    assert torch.equal(found.train_x[:, 0], found.train_x[:, 2])
    assert abs(found.train_x[:, 0].double().mean().item() / 255 - 0.2860) < 5e-5  # as published
    assert load(fmnist, verify=True).fingerprint == found.fingerprint


@needs_fmnist
def test_nothing_is_left_beside_the_copy(fmnist):
    assert {path.name for path in fmnist.parent.iterdir()} <= {"fmnist", ".fmnist.lock"}


@needs_fmnist
def test_killed_while_preparing_and_run_again(fmnist, tmp_path):
    process = start(tmp_path)
    while process.poll() is None and not (tmp_path / "out/.fmnist.partial").exists():
        time.sleep(0.01)
    time.sleep(0.2)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "out/fmnist/manifest.json").exists()
    again = start(tmp_path)
    assert again.communicate(timeout=300)[0].startswith("Debian")
    assert load(tmp_path / "out/fmnist", verify=True).fingerprint == load(fmnist).fingerprint
    assert not (tmp_path / "out/.fmnist.partial").exists()


FULL_DISK = """
set -e
mount -t tmpfs -o size=1m tmpfs "$1"
"$2" -c "
import sys
from pathlib import Path
from tnfdt.study.study import UserError
from tnfdt.data.prepare import prepare
try:
    prepare('own', Path(sys.argv[1], 'own'), data_dir=Path('.'), path=Path(sys.argv[2]))
except UserError as error:
    print(error, sorted(path.name for path in Path(sys.argv[1]).glob('[!.]*')))
" "$1" "$3"
"""


def test_a_disk_that_is_really_full(tmp_path):
    """Part of an array still fits: numpy.save would report that without the reason."""
    arrays = {}
    for split in ("train", "test"):
        arrays[f"{split}_x"] = np.zeros((1000, 32, 32, 3), np.uint8)
        arrays[f"{split}_y"] = np.arange(1000) % 10
    np.savez(tmp_path / "own.npz", **arrays)
    (tmp_path / "disk").mkdir()
    unshare = ["unshare", "--mount", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"]).returncode:
        pytest.skip("a small disk needs a mount namespace of its own")
    script = ["sh", "-c", FULL_DISK, "sh", tmp_path / "disk", sys.executable, tmp_path / "own.npz"]
    done = subprocess.run([*unshare, *script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.startswith("no space left to prepare"), done.stderr
    assert done.stdout.endswith("[]\n")


def small_network(classes: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, stride=4), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip


def accuracy_after_training(data: ImageSet, augment: ShiftFlip, epochs: int = 4) -> float:
    model = small_network(data.num_classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    source = SingleImages(data, augment=augment, seed=0, batch_size=50)
    for epoch in range(epochs):
        for step in range(source.steps):
            batch = source.batch(source.draw(epoch, step))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch.images), batch.classes).backward()
            optimizer.step()
    with torch.no_grad():
        predicted = model.eval()(data.test_x / 255).argmax(1)
    return (predicted == data.test_y).float().mean().item()


@pytest.mark.parametrize(
    ("name", "classes", "augment", "at_least"),
    [
        ("c10", 10, ShiftFlip(4, True), 0.30),
        ("c100", 100, ShiftFlip(4, True), 0.05),
        ("svhn", 10, ShiftFlip(0, False), 0.40),
    ],
)
def test_samples_can_be_learnt(name, classes, augment, at_least, tmp_path):
    """Far above chance (10 %, 1 %, 19 % for the commonest digit), so the labels are right."""
    path = SAMPLES / f"{name}_sample.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not there; TNFDT_SAMPLES names the folder")
    prepare(name, tmp_path / name, data_dir=tmp_path, path=path)
    data = load(tmp_path / name)
    assert data.num_classes == classes
    stored = np.load(path)["train_x"]
    assert (data.train_x.numpy().transpose(0, 2, 3, 1) == stored).all()
    assert accuracy_after_training(data, augment) > at_least
