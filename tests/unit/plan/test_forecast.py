"""The plan: operations by hand, shapes of datasets, schedules, and a prediction that holds."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tnfdt import devices
from tnfdt.data.prepare import prepare
from tnfdt.data.registry import DATASETS
from tnfdt.plan import forecast, rates, workload
from tnfdt.plan.workload import Images, Passes
from tnfdt.run import snakemake
from tnfdt.study.attack_settings import AutoAttack
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
    assert cost.operations.forward == 2 * (stem + first + second + third + head)
    assert cost.operations.learn == pytest.approx(3 * cost.operations.forward, rel=0.05)
    assert cost.operations.attack == pytest.approx(2 * cost.operations.forward, rel=0.05)


def test_the_papers_resnet34_has_its_known_cost() -> None:
    cost = workload.model_cost("resnet34", "cifar", 10, 32, 32)
    assert cost.operations.forward == pytest.approx(2 * 1.16e9, rel=0.01)
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
    assert jobs[0].images == (150 * 10_000, 150 * 50_000, 0)
    attack = next(job for job in jobs if job.stage == "attack")
    assert attack.images == (10_000 + 10_000, 0, 40 * 10_000)


def test_what_each_reading_costs(machine: Machine) -> None:
    """By hand: 2 datasets, 3 seeds; 4 attacks of each of the methods that a reading changes."""
    study = load_study("readings")
    lines = workload.reading_lines(study)
    assert lines[0] == "other readings, a part of `all`: 84 more trainings, 624 more attacks"
    assert lines[1] == "  tn_backward: exact: 12 more trainings, 48 more attacks, 18 shared"
    assert "  random_start: true: 0 more trainings, 120 more attacks, 30 shared" in lines
    jobs = workload.jobs_of(study, machine)
    assert Counter(job.stage for job in jobs) == {"train": 114, "attack": 120 + 624}
    own = workload.jobs_of(study, machine, readings=False)
    assert Counter(job.stage for job in own) == {"train": 30, "attack": 120}
    text = forecast.run(study, machine, gpus=None, gpu="rtx3090")
    assert re.search(r"  stem: imagenet: 30 more trainings, .*; [\d.]+ h of one device\n", text)


def test_the_limit_of_the_attack_counts(demo: Study, machine: Machine) -> None:
    attack = next(job for job in workload.jobs_of(demo, machine) if job.stage == "attack")
    assert attack.images.attack == 100 * 40


def test_work_of_an_audit(demo: Study, machine: Machine) -> None:
    jobs = {job.cell.method: job for job in workload.jobs_of(demo, machine) if job.stage == "audit"}
    runs = {method: job.images.attack / (30 * 40) for method, job in jobs.items()}
    # Four epsilons of (twice the steps, one restart) and one large ball; then the transfer, then
    # the paper's own backward of tensor normalization.
    assert runs == {"vanilla": 13, "ov": 17, "fdt": 17, "tn": 21, "tn_fdt": 21}


def test_work_of_an_audit_with_autoattack(demo: Study, machine: Machine) -> None:
    """The other attacks run at its radius too: five of them for vanilla, then one large ball."""
    audit = replace(demo.audit, autoattack=AutoAttack(images=20, epsilons=(0.03,)))
    jobs = workload.jobs_of(replace(demo, audit=audit), machine)
    vanilla = next(job for job in jobs if job.stage == "audit" and job.cell.method == "vanilla")
    assert vanilla.images.attack == 30 * 40 * (5 * 3 + 1) + 20 * 100


@pytest.mark.parametrize(
    ("slots", "elapsed"), [(1, 14.0), (2, 10.0), (3, 8.0), (4, 6.0), (10, 6.0)]
)
def test_a_schedule_by_hand(slots: int, elapsed: float) -> None:
    """Jobs of 4, 2, 2 and 6 s, in this order."""
    assert forecast.elapsed([4, 2, 2, 6], slots) == elapsed


def on(name: str, machine: Machine, **settings: str) -> tuple[pd.Series, pd.Series]:
    """The first training and the first attack of the paper's study on a GPU by name."""
    paper, machine = load_study("paper"), replace(machine, **settings)
    jobs = forecast.make(paper, machine, rates.of_gpu(name, paper, machine))
    return jobs.iloc[0], jobs[jobs.stage == "attack"].iloc[0]


def test_a_gpu_from_its_data_sheet(machine: Machine) -> None:
    train, _ = on("NVIDIA GeForce RTX 3090", machine)
    assert train.seconds == pytest.approx(train.operations / (35.6e12 * 0.45))
    with pytest.raises(UserError, match="rtx3090"):
        on("voodoo", machine)


def test_only_trainings_gain_by_another_precision(machine: Machine) -> None:
    ieee, bf16, tf32 = (on("a100", machine, precision=p) for p in ("fp32", "bf16", "tf32"))
    assert bf16[0].seconds < tf32[0].seconds < ieee[0].seconds
    assert bf16[1].seconds == tf32[1].seconds == ieee[1].seconds
    slow, same = (on("rtx3090", machine, precision=p)[0].seconds for p in ("fp32", "tf32"))
    assert slow == same  # by the data sheet


def test_a_small_network_waits_for_the_host(demo: Study, machine: Machine) -> None:
    speed = rates.of_gpu("h100", demo, machine)
    layers = workload.model_cost("wrn10_1", "cifar", 10, 16, 16).layers
    for seconds in speed.seconds.values():
        assert seconds.learn == pytest.approx(layers * 2.3e-5 / demo.training.batch_size)


def test_hours_grow_with_the_seeds(machine: Machine) -> None:
    paper = load_study("paper")
    three, nine = (forecast.hours(paper, machine, seeds, gpu="a100") for seeds in (3, 9))
    assert nine == pytest.approx(3 * three)
    assert 100 < three < 400


def test_the_text_for_a_gpu_states_what_is_assumed(machine: Machine) -> None:
    text = forecast.run(load_study("paper"), machine, gpus=4, gpu="a100")
    assert "72 trainings, 288 attacks" in text
    assert "assumed, not measured" in text
    assert "4 jobs at a time" in text
    assert "kWh" in text
    one = forecast.run(load_study("paper"), machine, gpus=None, gpu="a100")
    assert "with 1 jobs" in one


def test_a_kind_that_was_not_measured_is_like_the_most_similar_one() -> None:
    kinds = {
        ("plain", "wrn10_1", "10", "1e6"): Passes(1, 1, 1),
        ("plain", "resnet34", "10", "9e6"): Passes(2, 2, 2),
        ("blend", "wrn10_1", "100", "1e6"): Passes(3, 3, 3),
    }
    speed = rates.Speed("cpu", kinds, 1, "")
    assert speed.of(("plain", "resnet34", "100", "18e6")).learn == 4
    assert speed.of(("blend", "resnet34", "10", "2e6")).learn == 6


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU of 10^10 operations per second."""
    kinds = {("", "", "", "1e10"): Passes(1, 1, 1)}
    speed = rates.Speed("cpu", kinds, 12, "")
    monkeypatch.setattr(rates, "measure", lambda *_, **__: speed)


def record(path: str, seconds: float) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps({"metrics": {"duration_seconds": seconds}}))


@pytest.mark.usefixtures("fast")
def test_what_is_done_corrects_the_rest_of_its_stage(demo: Study, machine: Machine) -> None:
    speed = rates.measure(demo, machine, budget=1)
    jobs = forecast.make(demo, machine, speed)
    before = forecast.left(jobs)
    record(str(workload.jobs_of(demo, machine)[0].output), 3 * jobs.seconds[0])
    after = forecast.left(forecast.make(demo, machine, speed))
    assert len(before) == len(after) + 1 == 55
    assert after[0] - before[1] == pytest.approx(2 * jobs.seconds[1])
    assert after[-1] == before[-1]
    text = forecast.run(demo, machine, gpus=None, gpu=None)
    assert "3.00 x that" in text


def test_a_calibration_is_kept_and_used(
    demo: Study, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rates.measure(demo, machine, budget=0)
    monkeypatch.setattr(rates, "_measure", lambda *_: Passes(7, 7, 7))
    assert rates.measure(demo, machine, budget=0, again=False) == first
    again = rates.measure(demo, machine, budget=60).seconds
    assert again.keys() > first.seconds.keys()
    assert set(again.values()) == {(7, 7, 7)}
    threads = replace(machine, threads=2)
    assert (
        rates.measure(demo, threads, budget=0, again=False).seconds.keys() == first.seconds.keys()
    )
    row = ["a", "b", "10", "1e9", 1, 1, 0]
    for spoilt in ([], {"cpu, fp32, threads 1": [[1]]}, {"cpu, fp32, threads 1": [row]}, "torn"):
        Path("results/calibration.json").write_text(json.dumps(spoilt))
        assert rates.measure(demo, machine, budget=0).seconds.keys() == first.seconds.keys()


def test_attacks_are_measured_in_their_own_precision(
    demo: Study, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(devices, "set_precision", asked.append)
    monkeypatch.setattr(
        "tnfdt.attack.trajectory.pgd_trajectory", lambda *_, **__: asked.append("attack")
    )
    rates.measure(demo, replace(machine, precision="tf32"), budget=0)
    assert asked[-4:] == ["tf32", "fp32", "attack", "attack"]


def test_the_banner_of_the_demo(demo: Study, machine: Machine) -> None:
    text = snakemake.banner(demo, replace(machine, study="demo"), 3, 2)
    assert "10 trainings, 40 attacks, 5 audits; 3 of 10 trainings are done" in text
    assert "device: cpu, up to 2 jobs at a time" in text
    assert "to go" in text
    assert "study=mini" not in text


def test_a_device_that_is_not_there_stops_the_run_at_once(demo: Study, machine: Machine) -> None:
    with pytest.raises(UserError, match=r"^device cuda:7: 0 CUDA devices found; set device"):
        snakemake.banner(demo, replace(machine, study="demo", device="cuda:7"), 0, 1)


def test_a_banner_without_an_estimate_is_still_a_banner(
    demo: Study, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "false")
    assert snakemake.banner(demo, machine, 0, 1).count("\n") == 0
    assert "plan --gpu" in snakemake.banner(demo, machine, 0, None)


@pytest.mark.usefixtures("fast")
def test_the_papers_study_without_a_gpu_points_elsewhere(demo: Study, machine: Machine) -> None:
    text = forecast.estimate(load_study("paper"), machine, 2)
    assert "days to go" in text
    assert "study=demo" in text
    assert "study=mini" in text
    assert "a100" in text
    assert "study=demo" not in forecast.estimate(demo, machine, 2)


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
    predicted = forecast.make(demo, machine, rates.measure(demo, machine, budget=3))
    made = train_cell.run(
        study="demo",
        cell=cell,
        out=Path("out", str(turn)),
        data_dir=Path("digits"),
        config=demo.train_slice(cell, machine),
        interpretation=demo.interpretation,
        machine=machine,
    )
    position = [job.cell for job in workload.jobs_of(demo, machine)].index(cell)
    return float(made["metrics"]["duration_seconds"]) / float(predicted.seconds[position])


def test_a_plan_for_a_gpu_is_made_in_seconds(machine: Machine) -> None:
    begin = time.perf_counter()
    forecast.run(load_study("paper"), machine, gpus=1, gpu="v100")
    assert time.perf_counter() - begin < 20
