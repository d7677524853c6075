"""Nothing is lost, whatever is killed: the short campaign. `make faults` is the long one."""

import copy

from tests.integration.conftest import SMALL, Project
from tests.integration.faults import KINDS, Campaign


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
    whole.snakemake()
    paces = {"of_a_kind": 1, "pace": (1, 4)}
    campaign = Campaign(tmp_path / "campaign", one_cell(), whole.results, 6, seed=1, **paces)
    report = campaign.run()
    assert not report.differences, report.table()
    assert {kind for kind, _ in report.kills} == set(KINDS), report.table()
