"""The plan: operations by hand, shapes of datasets, schedules, and a prediction that holds."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tnfdt import plan
from tnfdt.data.prepare import prepare
from tnfdt.data.registry import DATASETS
from tnfdt.run import rates, snakemake, workload
from tnfdt.run.workload import Images, Job, Work
from tnfdt.study.machine import Machine, load_machine
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError
from tnfdt.study.study import Limit, Study, load_study
from tnfdt.train import cell as train_cell


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    return load_machine(overrides={"device": "cpu", "sample_dir": "none"})


@pytest.fixture
def demo() -> Study:
    return load_study("demo")


def test_operations_of_a_wide_resnet_by_hand() -> None:
    """WRN-10-1 on 16x16: 2 x kernel x channels in x out x pixels, summed by hand."""
    stem = 9 * 3 * 16 * 256
    first = 2 * 9 * 16 * 16 * 256
    second = 9 * 16 * 32 * 64 + 9 * 32 * 32 * 64 + 16 * 32 * 64
    third = 9 * 32 * 64 * 16 + 9 * 64 * 64 * 16 + 32 * 64 * 16
    head = 64 * 10
    cost = workload.model_cost("wrn10_1", "cifar", 10, 16, 16)
    assert cost.forward == 2 * (stem + first + second + third + head)
    assert cost.learn == pytest.approx(3 * cost.forward, rel=0.05)
    assert cost.attack == pytest.approx(2 * cost.forward, rel=0.05)


def test_the_papers_resnet34_has_its_known_cost() -> None:
    cost = workload.model_cost("resnet34", "cifar", 10, 32, 32)
    assert cost.forward == pytest.approx(2 * 1.16e9, rel=0.01)
    assert cost.parameters == pytest.approx(21.28e6, rel=0.001)


def test_a_registered_set_is_planned_as_it_is_prepared(demo: Study, machine: Machine) -> None:
    from tnfdt.data.prepare import prepare

    before = workload.images_of(demo, machine, "digits")
    prepare("digits", Path("results/demo/data/digits"), data_dir=Path("data"), limit=demo.limit)
    assert workload.images_of(demo, machine, "digits") == before == DATASETS["digits"].images


def test_images_of_an_npz_and_of_a_limit(demo: Study, machine: Machine, tmp_path: Path) -> None:
    arrays = {"train_x": np.zeros((30, 9, 7, 3), np.uint8), "train_y": np.arange(30) % 6}
    arrays |= {"test_x": np.zeros((20, 9, 7, 3), np.uint8), "test_y": np.arange(20) % 6}
    np.savez(tmp_path / "mine.npz", **arrays)
    mine = replace(demo.datasets["digits"], path=str(tmp_path / "mine.npz"))
    study = replace(demo, datasets={"digits": mine})
    assert workload.images_of(study, machine, "digits") == Images(30, 20, 9, 7, 6)
    study = replace(study, limit=Limit(train=12, test=50))
    assert workload.images_of(study, machine, "digits") == Images(12, 20, 9, 7, 6)


def test_a_file_that_is_no_dataset_is_told_in_a_line(demo: Study, machine: Machine) -> None:
    Path("bad.npz").write_text("no")
    bad = replace(demo.datasets["digits"], path="bad.npz")
    with pytest.raises(UserError, match=r"bad\.npz"):
        workload.images_of(replace(demo, datasets={"digits": bad}), machine, "digits")


def test_work_of_the_papers_study(machine: Machine) -> None:
    jobs = workload.jobs_of(load_study("paper"), machine)
    assert [sum(job.stage == stage for job in jobs) for stage in workload.STAGES] == [72, 288, 0]
    cost = workload.model_cost("resnet34", "cifar", 10, 32, 32)
    assert jobs[0].work.learn == 150 * 50_000 * cost.learn
    assert jobs[0].work.forward == 150 * 10_000 * cost.forward
    attack = next(job for job in jobs if job.stage == "attack")
    assert attack.work.attack == 40 * 10_000 * cost.attack


def test_the_limit_of_the_attack_counts(demo: Study, machine: Machine) -> None:
    attack = next(job for job in workload.jobs_of(demo, machine) if job.stage == "attack")
    cost = workload.model_cost("wrn10_1", "cifar", 10, 16, 16)
    assert attack.work.attack == 100 * 40 * cost.attack


def test_work_of_an_audit(demo: Study, machine: Machine) -> None:
    jobs = {job.cell.method: job for job in workload.jobs_of(demo, machine) if job.stage == "audit"}
    cost = workload.model_cost("wrn10_1", "cifar", 10, 16, 16)
    runs = {method: job.work.attack / (30 * 40 * cost.attack) for method, job in jobs.items()}
    # Four epsilons of (twice the steps, one restart) and one large ball; then the transfer, then
    # the paper's own backward of tensor normalization.
    assert runs == {"vanilla": 13, "ov": 17, "fdt": 17, "tn": 21, "tn_fdt": 21}


def made(seconds: list[float], slots: int) -> plan.Plan:
    cell = Cell("digits", "wrn10_1", "tn", 0)
    jobs = [
        Job(stage="train", cell=cell, work=Work(0, 0, 0), output=str(i))
        for i in range(len(seconds))
    ]
    speed = rates.of_cpu(1)
    return plan.Plan(jobs=jobs, seconds=seconds, startup=1.0, slots=slots, speed=speed)


@pytest.mark.parametrize(
    ("slots", "elapsed"), [(1, 14.0), (2, 10.0), (3, 8.0), (4, 6.0), (10, 6.0)]
)
def test_a_schedule_by_hand(slots: int, elapsed: float) -> None:
    """Jobs of 3, 1, 1, 5 s and 1 s of start-up each, in this order."""
    found = made([3, 1, 1, 5], slots)
    assert found.elapsed(found.jobs) == elapsed
    assert found.busy(found.jobs) == 14
    assert found.busy(found.jobs[:1]) == 4


def test_a_gpu_from_its_data_sheet(machine: Machine) -> None:
    speed = rates.of_gpu("NVIDIA GeForce RTX 3090", "fp32")
    paper = load_study("paper")
    one, four = (plan.make(paper, machine, speed, gpus=gpus) for gpus in (1, 4))
    assert one.seconds[0] == pytest.approx(one.jobs[0].work.total / (35.6e12 * 0.45))
    assert 3.5 < one.elapsed(one.jobs) / four.elapsed(four.jobs) <= 4
    with pytest.raises(UserError, match="rtx3090"):
        rates.of_gpu("voodoo", "fp32")


def test_the_text_for_a_gpu_states_what_is_assumed(machine: Machine) -> None:
    text = plan.run(load_study("paper"), machine, gpus=4, gpu="a100")
    assert "72 trainings, 288 attacks" in text
    assert "assumed, not measured" in text
    assert "4 jobs at a time" in text
    assert "kWh" in text


def test_rates_of_a_kind_that_was_not_measured_come_from_its_neighbour() -> None:
    plain, blend = (False, None, True, True), (False, "harmonic", True, True)
    kinds = {
        rates.Kind(plain, 10, "wrn10_1", 1e6): rates.Rates(1, 1, 1),
        rates.Kind(plain, 10, "wrn10_1", 9e6): rates.Rates(2, 2, 2),
        rates.Kind(blend, 100, "wrn10_1", 1e6): rates.Rates(3, 3, 3),
    }
    speed = rates.Speed(device="cpu", rates=kinds, watts=1, basis="")
    assert speed.of(rates.Kind(plain, 10, "wrn10_1", 8e6)).learn == 2
    assert speed.of(rates.Kind(blend, 10, "resnet34", 8e9)).learn == 3


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU of 10^10 operations per second."""
    speed = replace(rates.of_cpu(1), rates={rates.Kind((), 0, "", 1.0): rates.Rates(*[1e10] * 3)})
    monkeypatch.setattr(rates, "measure", lambda *_, **__: speed)
    monkeypatch.setattr(plan, "_startup_seconds", lambda: 2.0)


def record(path: str, seconds: float) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps({"metrics": {"duration_seconds": seconds}}))


@pytest.mark.usefixtures("fast")
def test_predicted_against_measured_of_what_is_done(demo: Study, machine: Machine) -> None:
    found = plan.make(demo, machine, rates.measure(demo, machine, budget=1))
    record(f"results/demo/{found.jobs[0].output}", 3 * found.seconds[0])
    text = plan.run(demo, machine, gpus=1, gpu=None)
    assert "1 of 55 jobs are done" in text
    assert "times 3.00 as measured" in text
    row = next(line for line in text.splitlines() if line.startswith("train   digits/wrn10_1/"))
    assert row.endswith("3.00")


def test_the_banner_of_the_demo(demo: Study, machine: Machine) -> None:
    text = snakemake.banner(demo, replace(machine, study="demo"), 3)
    assert "10 trainings, 40 attacks, 5 audits; 3 of 10 trainings are done" in text
    assert "device: cpu" in text
    assert "to go" in text
    assert "study=mini" not in text


def test_a_banner_without_an_estimate_is_still_a_banner(
    demo: Study, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "false")
    assert snakemake.banner(demo, machine, 0).count("\n") == 0
    assert "plan --gpu" in snakemake.banner(demo, machine, 0, cluster=True)


@pytest.mark.usefixtures("fast")
def test_the_papers_study_without_a_gpu_points_elsewhere(demo: Study, machine: Machine) -> None:
    text = plan.estimate(load_study("paper"), machine)
    assert "days to go" in text
    assert "study=demo" in text
    assert "study=mini" in text
    assert "a100" in text
    assert "study=demo" not in plan.estimate(demo, machine)


@pytest.mark.parametrize("method", ["vanilla", "tn_fdt"])
def test_the_demos_prediction_holds_within_a_factor_of_two(
    demo: Study, machine: Machine, method: str
) -> None:
    """A cell of the demo is really trained; on a busy machine one of three tries has to hold."""
    prepare("digits", Path("digits"), data_dir=Path("data"))
    tries = (_measured_over_predicted(demo, machine, method, turn) for turn in range(3))
    assert any(0.5 < ratio < 2 for ratio in tries)


def _measured_over_predicted(demo: Study, machine: Machine, method: str, turn: int) -> float:
    cell = Cell("digits", "wrn10_1", method, 0)
    predicted = plan.make(demo, machine, rates.measure(demo, machine, budget=3))
    made = train_cell.run(
        study="demo",
        cell=cell,
        out=Path("out", str(turn)),
        data_dir=Path("digits"),
        config=demo.train_slice(cell, machine),
        interpretation=demo.interpretation,
        machine=machine,
    )
    jobs = zip(predicted.jobs, predicted.seconds, strict=True)
    guess = next(s for job, s in jobs if job.cell == cell and job.stage == "train")
    return float(made["metrics"]["duration_seconds"]) / guess


def test_a_plan_for_a_gpu_is_made_in_seconds(machine: Machine) -> None:
    begin = time.perf_counter()
    plan.run(load_study("paper"), machine, gpus=1, gpu="v100")
    assert time.perf_counter() - begin < 20
