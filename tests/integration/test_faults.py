"""Nothing is lost, whatever is killed: the short campaign. `make faults` is the long one."""

import copy
import shutil

from tests.integration.conftest import SMALL, Project
from tests.integration.faults import Campaign

# The long campaign has more: data, summary, the tables of the readings, the follower, the report.
KINDS = ("snakemake", "train", "attack", "audit", "tables", "audit_tables", "pack", "server")


def one_cell() -> dict:
    """A study that has every stage once."""
    study = copy.deepcopy(SMALL)
    study["grid"]["table1"]["methods"] = ["tn_fdt"]
    study["attack"]["epsilons"] = [0.1]
    study["audit"]["include"] = True
    return study


def test_no_kill_changes_a_byte(tmp_path):
    whole = Project(tmp_path)
    whole.write(one_cell())
    whole.run(*whole.snakemake_command(tracking_uri="none"))
    short = {"kinds": KINDS, "of_a_kind": 1, "is_long": False}
    campaign = Campaign(
        tmp_path / "campaign", one_cell(), whole.results, len(KINDS), seed=1, **short
    )
    report = campaign.run()
    assert not report.differences, report.table()
    assert {kind for kind, _ in report.kills} == set(KINDS), report.table()


def test_a_run_killed_at_its_very_end_is_ended_by_the_same_command(finished, tmp_path):
    shutil.copytree(finished.folder, tmp_path, dirs_exist_ok=True)
    project = Project(tmp_path)
    report, mark = project.results / "report.html", project.results / ".unfinished"
    report.unlink()
    mark.touch()
    lock = tmp_path / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir()
    lock.write_text("results/small/tables/table1.csv\n")
    project.planned()
    assert mark.exists()  # a dry run ends nothing
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("results/small/tables/table1.csv\n")
    in_the_way = project.results / ".report.partial.html"
    in_the_way.mkdir()
    project.snakemake()
    assert mark.exists()  # the report could not be made: the next run tries again
    in_the_way.rmdir()
    project.snakemake()
    assert report.stat().st_size > 100_000
    assert not mark.exists()
    assert not lock.exists()
