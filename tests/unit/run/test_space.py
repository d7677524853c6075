"""What is told of the room on a disk."""

from collections import namedtuple

import pytest

from tnfdt.run import space
from tnfdt.study.schema import UserError

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def disk(monkeypatch):
    """Pretend that so much is free."""

    def pretend(free, total=1 << 40):
        monkeypatch.setattr(space.shutil, "disk_usage", lambda place: Usage(total, 0, free))

    return pretend


def test_enough_is_not_worth_a_word(disk, tmp_path):
    disk(space.LITTLE)
    space.require(str(tmp_path))
    assert space.hint(str(tmp_path)) == ""


def test_little_is_told(disk, tmp_path):
    disk(5_000_000)
    folder = str(tmp_path / "not/there/yet")
    space.require(folder)
    assert f"only 4 MB are left in {folder}" in space.hint(folder)


def test_nothing_is_refused_with_the_way_out(disk, tmp_path):
    disk(1_000_000)
    with pytest.raises(UserError, match=r"no space left in .*\(976 kB\); free some"):
        space.require(str(tmp_path))


def test_a_file_system_that_does_not_tell_is_taken_as_roomy(disk, tmp_path):
    disk(0, total=0)
    space.require(str(tmp_path))
    assert space.hint(str(tmp_path)) == ""
