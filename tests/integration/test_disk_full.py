"""A full disk: one line that says what, where and what to do, no half file, and the same bytes
after space was made."""

import shutil
import subprocess

import pytest

from tests.integration.conftest import Project
from tests.integration.same_results import differences, files

TRAINED, OTHER = "digits/wrn10_1/tn_fdt/seed0", "digits/wrn10_1/vanilla/seed0"


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A small disk of its own, with nothing on it."""
    folder = tmp_path_factory.mktemp("disk")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tnfdt", str(folder)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def project(finished, disk):
    """A finished study of which one training, one attack and all tables are gone."""
    shutil.copytree(finished.folder, disk, dirs_exist_ok=True)
    project = Project(disk)
    for name in ("tables", "figures", f"train/{TRAINED}", f"attack/{TRAINED}", f"attack/{OTHER}"):
        shutil.rmtree(project.results / name)
    (project.results / "report.html").unlink()
    return project


def fill(folder, kilobytes):
    """Leave so much space on the disk."""
    with (folder / "ballast").open("wb") as file:
        file.write(bytes(max(0, shutil.disk_usage(folder).free - 1024 * kilobytes)))


@pytest.mark.parametrize(
    ("kilobytes", "verb", "words"),
    [
        (20, ["data", "digits", "--set", "results_dir=new"], ["no space", "new/small/data"]),
        (100, ["train", TRAINED], ["cannot write", f"{TRAINED}/checkpoint.pt", "space"]),
        (0, ["attack", OTHER, "--epsilon", "0.1"], ["cannot write", f"{OTHER}/", "No space"]),
        (16, ["tables"], ["cannot write", "small/tables/", "No space"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_stage_ends_with_one_line_and_no_half_file(finished, project, kilobytes, verb, words):
    fill(project.folder, kilobytes)
    done = project.tnfdt(*verb, "--set", "tracking_uri=none", check=False)
    (project.folder / "ballast").unlink()
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("tnfdt: ")]
    for word in (*words, "run again"):
        assert word in line
    assert "Traceback" not in done.stderr
    assert_no_half_file(finished, project)
    assert not [path for path in project.folder.glob("new/**/*") if path.is_file()]


def assert_no_half_file(finished, project):
    whole = {f"train/{TRAINED}/checkpoint.pt"}  # of the epochs before the disk was full
    assert files(project.results) <= files(finished.results) | whole
    torn = [line for line in differences(project.results, finished.results) if "read" in line]
    assert not torn


def test_snakemake_does_not_begin_on_a_full_disk(project):
    fill(project.folder, 0)
    done = project.snakemake(check=False)
    (project.folder / "ballast").unlink()
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("tnfdt: ")]
    assert f"no space left in {project.folder}" in line
    assert "start the same command again" in line
    # Snakemake cannot write its own log either, and says so in its way.
    assert done.stderr.count("Traceback") == done.stderr.count("--- Logging error ---")


def test_snakemake_fails_with_one_line_and_ends_with_the_same_bytes(finished, project):
    fill(project.folder, 1200)
    done = project.snakemake(check=False)
    (project.folder / "ballast").unlink()
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("tnfdt: only ")]
    assert str(project.folder) in line
    assert "start the same command again" in line
    assert_no_half_file(finished, project)
    project.snakemake()
    assert not differences(project.results, finished.results)
