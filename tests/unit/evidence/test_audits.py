"""The audits of a study as one frame."""

from dataclasses import replace
from types import SimpleNamespace

import yaml

from tests import synthetic
from tnfdt.evidence import audits, measured_shares
from tnfdt.files.atomic import write_json
from tnfdt.tables import stage


def record(**change):
    accuracies = {"robust_accuracy": 0.5, "last_accuracy": 0.25, "worst_accuracy": 0.125}
    attacks = dict.fromkeys(("paper", "exact", "noise"), accuracies)
    entry = {"attacks": attacks, "worst_case": 0.0625, "indicators": {}}
    cell = {"dataset": "d", "model": "m", "method": "tn", "seed": 0}
    base = {**cell, "images": 8, "badge": "sound", "metrics": {"clean_accuracy": 0.75}}
    return {**base, "epsilons": {"0.1": entry, "0.01": entry}, **change}


def test_the_table_has_a_row_per_cell_and_epsilon_in_percent():
    table = audits.audit_table([record(), record(seed=1, badge="zero gradients")])
    assert list(table.columns) == list(audits.COLUMNS)
    assert table[["seed", "epsilon"]].to_numpy().tolist() == [
        [0, 0.1],
        [0, 0.01],
        [1, 0.1],
        [1, 0.01],
    ]
    row = table.iloc[0]
    assert (row.clean, row.paper_eq7, row.exact_eq7) == (75, 50, 50)
    assert (row.paper, row.noise, row.worst_case) == (12.5, 12.5, 6.25)
    assert table[["restarts", "transfer", "black_box"]].isna().all(axis=None)
    assert row.paper_last == 25
    assert table.autoattack.isna().all()
    assert (table.not_run == "").all()
    assert table.badge.tolist() == ["sound"] * 2 + ["zero gradients"] * 2
    assert audits.audit_table([]).empty


def test_what_autoattack_leaves_is_a_share_by_epsilon(monkeypatch):
    attacks = record()["epsilons"]["0.1"]["attacks"]
    left = [{"attacks": attacks | {"autoattack": attacks["paper"] | {"worst_accuracy": value}},
             "worst_case": 0.0} for value in (0.25, 0.75)]  # fmt: skip
    records = [record(seed=seed, epsilons={"0.03": left[seed]}) for seed in (0, 1)]
    table = audits.audit_table([*records, record(method="fdt")])
    monkeypatch.setattr(measured_shares, "read_audits", lambda results: table)
    share = measured_shares.Share(0.5, (0, 1))
    for asked, expected in ((object(), {0.03: {("d", "m", "tn"): share}}), (None, {})):
        audit = SimpleNamespace(autoattack=asked)
        results = SimpleNamespace(study=SimpleNamespace(audit=audit))
        assert measured_shares.autoattack_shares(results) == expected


MEASURE = {"table": "table1", "quantity": "autoattack_accuracy", "epsilon": 0.1, "a": "tn",
           "at_most": 0.2}  # fmt: skip


def attacked_by_autoattack(folder, seeds):
    """A study whose TN networks are audited; only of these seeds with the weights of now."""
    grid = {"datasets": ["c10"], "models": ["resnet34"], "methods": ["tn"]}
    audit = {"include": True, "autoattack": {"epsilons": [0.1]}}
    study = synthetic.study(grid={"table1": grid}, attack={"epsilons": [0.1]}, audit=audit)
    written = synthetic.write(study, folder, synthetic.World(images=40))
    for cell in study.cells:
        found = synthetic.audit_record(study, cell, written)
        attacks = found["epsilons"]["0.1"]["attacks"]
        attacks["autoattack"] = attacks["exact"] | {"worst_accuracy": 0.1}
        if cell.seed not in seeds:
            found["model_sha256"] = "other weights"
        path = written / "audit" / cell.path / "audit.json"
        path.parent.mkdir(parents=True)
        write_json(path, found)
    return stage.load(study, folder, synthetic.machine())


def test_the_evidence_on_autoattack_counts_audited_seeds_and_names_those_that_are_not(tmp_path):
    material = attacked_by_autoattack(tmp_path / "results", (0, 2))
    claim = {"says": "s.", "sentence": "S.", "section": "1", "measures": [MEASURE]}
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"families": {"f": {"title": "F", "claims": {"x": claim}}}}))
    _, (verdict,) = stage.judge_study(replace(material, claims=path))
    (row,) = verdict.evidence
    assert (row.status, row.seeds_a, row.seeds_b) == ("supported", 2, 0)
    assert row.missing == ("c10/resnet34/tn/seed1 (autoattack accuracy not measured)",)
    assert verdict.verdict == "reproduced"


def test_each_epsilon_has_its_own_badge_and_what_could_not_run():
    plain = record()["epsilons"]["0.1"]
    own = plain | {"badge": "square wins", "not_run": {"autoattack": "not installed"}}
    table = audits.audit_table([record(epsilons={"0.1": plain, "0.01": own})])
    assert table.badge.tolist() == ["sound", "square wins"]
    assert table.not_run.tolist() == ["", "autoattack not installed"]
