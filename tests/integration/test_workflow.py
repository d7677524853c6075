"""The DAG, run by the real Snakemake: what is planned, what is re-run, what is refused."""

import copy
import csv
import os
import shutil
import subprocess
import time

import numpy as np
import pytest
import yaml

from tests.integration.conftest import SMALL, Project, environment, job_counts
from tnfdt.study.schema import ROOT


def test_the_papers_study_plans_72_trainings_and_288_attacks(project):
    begin = time.monotonic()
    counts = project.planned(study="paper")
    assert counts["train_cell"] == 72
    assert counts["attack_cell"] == 288
    assert counts["prepare_data"] == 4
    assert "audit_cell" not in counts
    assert time.monotonic() - begin < 60  # under 10 s on an idle machine


def test_the_catalogues_snakefile_plans_the_same_jobs(project):
    command = project.snakemake_command("--dry-run", "--quiet", "rules")
    command[command.index("-s") + 1] = str(project.code / "workflow/Snakefile")
    done = project.run(*command)
    counts = job_counts(done.stdout + done.stderr)
    assert counts.pop("everything") == 1
    assert counts.items() <= project.planned().items()
    assert counts["train_cell"] == 2


@pytest.mark.parametrize(
    ("target", "rules"),
    [
        ("data", {"prepare_data"}),
        ("train", {"prepare_data", "train_cell"}),
        ("attack", {"prepare_data", "train_cell", "attack_cell"}),
        ("audit", {"prepare_data", "train_cell", "audit_cell", "make_audit_tables"}),
    ],
)
def test_stages_are_targets_by_name(project, target, rules):
    assert set(project.planned(target)) - {target, "total"} == rules


@pytest.fixture
def again(finished, tmp_path):
    """A copy of the finished study that a test may change."""
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder)  # keeps modification times
    project = Project(folder)
    assert "train_cell" not in project.planned()
    return project


def edit(project, change):
    study = copy.deepcopy(SMALL)
    change(study)
    project.write(study)


def test_a_finished_study_has_nothing_to_do(finished):
    assert finished.planned() == {}
    for name in ("table1.tex", "table1.csv", "table1.md", "claims.md", "significance.csv"):
        assert (finished.results / "tables" / name).stat().st_size > 0
    assert list((finished.results / "figures").glob("*.png"))
    with (finished.results / "mlflow.csv").open() as file:
        runs = {row["method"]: row["run_id"] for row in csv.DictReader(file)}
    assert set(runs) == {"vanilla", "tn_fdt"}
    assert all(runs.values())


@pytest.mark.parametrize("target", ["all", "tables"])
def test_a_file_that_is_missing_is_made_again(again, target):
    cell = "digits/wrn10_1"
    (again.results / f"train/{cell}/vanilla/seed0/clean.npz").unlink()
    (again.results / f"attack/{cell}/tn_fdt/seed0/eps0.01.npz").unlink()
    counts = again.planned(target)
    assert (counts["train_cell"], counts["attack_cell"]) == (1, 3)
    assert counts["make_tables"] == 1


@pytest.mark.parametrize("target", ["all", "tables"])
def test_weights_are_made_again_whether_or_not_the_tables_are_there(again, target):
    """No table reads them."""
    (again.results / "train/digits/wrn10_1/vanilla/seed0/model.safetensors").unlink()
    assert again.planned(target)["train_cell"] == 1
    (again.results / "tables/table1.md").unlink()
    assert again.planned(target)["train_cell"] == 1


def test_a_cell_of_which_nothing_is_left_is_made_again(again):
    for stage in ("train", "attack"):
        shutil.rmtree(again.results / stage / "digits/wrn10_1/vanilla")
    counts = again.planned("tables")
    assert (counts["train_cell"], counts["attack_cell"], counts["make_tables"]) == (1, 2, 1)


def test_a_failed_rerun_is_not_the_last_word(again):
    """All trainings of a re-run fail: the tables of before are no success, however often."""
    pixels = again.results / "data/digits/train_x.npy"
    times, content = pixels.stat(), pixels.read_bytes()
    pixels.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # every training refuses them
    os.utime(pixels, ns=(times.st_atime_ns, times.st_mtime_ns))
    command = again.snakemake_command(precision="bf16", tracking_uri="none")
    for _ in range(2):
        failed = again.run(*command, check=False)
        assert failed.returncode == 1, failed.stderr
        assert not list(again.results.glob("train/*/*/*/*/record.json"))
    counts = again.planned(precision="bf16", tracking_uri="none")
    assert (counts["train_cell"], counts["attack_cell"], counts["make_tables"]) == (2, 4, 1)


def test_a_dataset_of_ones_own_that_is_replaced_is_prepared_again(project):
    images, labels = np.zeros((20, 8, 8, 3), np.uint8), np.arange(20) % 2
    arrays = {"train_x": images, "train_y": labels, "test_x": images, "test_y": labels}
    own, study = project.folder / "own.npz", copy.deepcopy(SMALL)
    np.savez(own, **arrays)
    study["datasets"] = {"own": {"path": "own.npz"}}
    study["grid"]["table1"]["datasets"] = ["own"]
    project.write(study)
    project.snakemake("data", env={"MLFLOW_TRACKING_URI": "none"})
    assert project.planned("data") == {}
    times = own.stat()
    np.savez(own, **arrays | {"train_x": images + 1})
    os.utime(own, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert project.planned("data")["prepare_data"] == 1
    own.unlink()  # the copy is there: nothing needs it
    assert project.planned("data") == {}


def test_a_new_epsilon_attacks_and_does_not_train(again):
    edit(again, lambda study: study["attack"]["epsilons"].append(0.3))
    counts = again.planned()
    assert counts["attack_cell"] == 2  # one for each of the two cells
    assert "train_cell" not in counts
    assert "prepare_data" not in counts
    assert counts["make_tables"] == 1


def test_a_new_seed_runs_only_that_seeds_cells(again):
    edit(again, lambda study: study["seeds"].append(1))
    counts = again.planned()
    assert counts["train_cell"] == 2
    assert counts["attack_cell"] == 4
    again.snakemake()
    assert again.planned() == {}
    assert (again.results / "train/digits/wrn10_1/tn_fdt/seed1/record.json").exists()


def test_another_caption_makes_only_tables_again(again, tmp_path):
    code = tmp_path / "code"
    for name in ("config", "profiles", "tnfdt", "workflow"):
        shutil.copytree(ROOT / name, code / name)
    for name in ("Snakefile", "environment.yml"):
        shutil.copy(ROOT / name, code / name)
    project = Project(again.folder, code=code)
    project.snakemake()
    assert project.planned() == {}
    captions = code / "tnfdt/tables/paper.py"
    captions.write_text(captions.read_text().replace("All results are the average", "Averages"))
    counts = project.planned()
    made = {"make_tables", "make_audit_tables", "pack"}
    assert set(counts) - {"all", "total"} == made & set(counts)
    assert counts["make_tables"] == 1


def test_another_device_or_store_runs_nothing(again):
    shutil.rmtree(again.results / "data")  # nor do prepared images that were deleted
    assert again.planned(device="cpu", tracking_uri="none", gpu_slots="2") == {}


def test_the_project_is_the_same_by_a_link_and_from_another_folder_without_a_home(again, tmp_path):
    (tmp_path / "code").symlink_to(ROOT)
    (tmp_path / "work").symlink_to(again.folder)
    where = ("-s", f"{tmp_path}/code/Snakefile", "--directory", f"{tmp_path}/work")
    options = ("--workflow-profile", f"{tmp_path}/code/profiles/default", "--cores", "2")
    command = ("env", "-u", "HOME", "snakemake", *where, *options, "--dry-run")
    settings = ("--config", f"study={again.study.name}", "tracking_uri=none")
    env = environment() | {"PYTHONPATH": ""}
    done = subprocess.run([*command, *settings], cwd="/", env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert job_counts(done.stdout + done.stderr) == {}


def test_results_that_cannot_be_written_are_one_line_before_anything_runs(project):
    (project.folder / "results").mkdir(mode=0o555)
    rights = "-dac_override,-dac_read_search,-fowner"  # what root has more than an ordinary user
    ordinary = ("setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}")
    user = ordinary if os.geteuid() == 0 else ()
    command = project.snakemake_command(tracking_uri="none")
    done = project.run(*user, *command, check=False)
    assert done.returncode != 0
    assert "tnfdt: results/small cannot be written (Permission denied)" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "Execute" not in done.stderr + done.stdout


def test_files_that_are_not_those_of_their_records_are_found_whatever_their_time(again):
    assert "all files are those of their records" in again.tnfdt("status", "--check").stdout
    cell = "digits/wrn10_1/vanilla/seed0"
    changed = [
        again.results / f"train/{cell}/model.safetensors",
        again.results / f"attack/{cell}/eps0.1.npz",
        again.results / "data/digits/test_x.npy",
    ]
    for path in changed:
        before, content = path.stat(), bytearray(path.read_bytes())
        content[-1] ^= 1
        path.unlink()  # of the weights there is a second name
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert again.planned() == {}
    done = again.tnfdt("status", "--check", check=False)
    assert done.returncode == 1
    for path in changed:
        assert sum(str(path.relative_to(again.folder)) in line for line in done.stdout.splitlines())


BAD = [
    ("unknown key", lambda s: s.update(colour="red"), ["small.yaml", "colour", "training"]),
    ("dataset", lambda s: s["grid"]["table1"].update(datasets=["imagenet"]), ["imagenet"]),
    ("model", lambda s: s["grid"]["table1"].update(models=["resnet35"]), ["resnet35"]),
    ("depth", lambda s: s["grid"]["table1"].update(models=["wrn11_1"]), ["wrn11_1"]),
    ("method", lambda s: s["grid"]["table1"].update(methods=["magic"]), ["magic", "tn_fdt"]),
    ("epsilon", lambda s: s["attack"].update(epsilons=[-0.1]), ["attack.epsilons", "-0.1"]),
    ("seed twice", lambda s: s.update(seeds=[0, 0]), ["seeds"]),
    ("empty grid", lambda s: s.update(grid={}), ["grid"]),
]


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in BAD], ids=[c[0] for c in BAD])
def test_a_bad_study_is_one_line_before_anything_runs(project, change, words):
    edit(project, change)
    assert_refused(project, project.study.name, words)


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, ["nope.yaml", "demo, fmnist, mini"]), ("a: [", ["nope.yaml", "not valid YAML"])],
)
def test_a_study_file_that_is_not_there_or_not_yaml(project, text, words):
    if text is not None:
        (project.folder / "nope.yaml").write_text(text)
    assert_refused(project, "nope.yaml", words)


def assert_refused(project, study, words):
    done = project.snakemake(study=study, check=False)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("tnfdt: ")]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]
    assert "Traceback" not in done.stderr + done.stdout
    assert not (project.folder / "results").exists()


def test_every_shipped_study_is_valid_yaml_with_a_description():
    for path in (ROOT / "config/studies").glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["description"]
