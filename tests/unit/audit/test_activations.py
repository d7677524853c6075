"""The share of activations that tensor normalization makes larger."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests import synthetic
from tnfdt.audit.activations import enlarged, measure
from tnfdt.core.tensor_norm import ReLUTensorNorm
from tnfdt.data.prepare import prepare
from tnfdt.evidence.measured_shares import activation_shares
from tnfdt.evidence.read import load_results
from tnfdt.models import create_model
from tnfdt.study.schema import UserError
from tnfdt.tables import stage as stage_tables


def test_enlarged_by_hand():
    # Channels −1, 4 at one pixel: D = 0, 4 with M = 2; |0 − 2| > 0 and |4 − 2| < 4. At the
    # other 3, 5: M = 4, |3 − 4| < 3 and |5 − 4| < 5. Then all is 0: |0 − 0| is not larger.
    pixels = torch.tensor([[[[-1.0, 3.0, 0.0]], [[4.0, 5.0, -2.0]]]])
    assert enlarged(nn.Sequential(ReLUTensorNorm()), pixels) == (1, 6)


def test_enlarged_is_what_tensor_normalization_does():
    torch.manual_seed(0)
    images = torch.randn(3, 8, 5, 5)
    before = torch.relu(images)
    after = ReLUTensorNorm()(images)
    larger = int((after.abs() > before.abs()).sum())
    assert enlarged(ReLUTensorNorm(), images) == (larger, before.numel())
    assert 0.3 < larger / before.numel() < 0.7


@pytest.fixture
def counted(tmp_path):
    study = synthetic.study(
        grid={
            "table1": {
                "datasets": ["digits"],
                "models": ["wrn10_1"],
                "methods": ["vanilla", "tn", "tn_fdt"],
            }
        },
        datasets={"digits": {}},
        attack={"epsilons": [0.1]},
        limit={"train": 20, "test": 20},
        seeds=[0, 1],
    )
    folder = tmp_path / study.name
    assert measure(study, folder) is None
    place = folder / "data/digits"
    prepare("digits", place, data_dir=tmp_path, path=None, limit=study.limit)
    for cell in study.cells:
        weights = folder / "train" / cell.path / "model.safetensors"
        weights.parent.mkdir(parents=True)
        torch.manual_seed(cell.seed)
        norm = "paper" if study.methods[cell.method].tensor_norm else None
        save_file(create_model(cell.model, 10, tensor_norm=norm).state_dict(), weights)
    synthetic.write(study, tmp_path, synthetic.World(images=20))
    return study, folder


def test_the_claim_on_activations_is_judged_by_what_is_counted(counted):
    study, folder = counted
    stage_tables.run(study, folder.parent, synthetic.machine(), parts=("activations", "tables"))
    cells = json.loads((folder / "activations.json").read_text())["cells"]
    assert list(cells) == ["digits/wrn10_1/tn/seed0"]  # not where images are blended
    claims = json.loads((folder / "tables/claims.json").read_text())["claims"]
    (claim,) = [claim for claim in claims if claim["id"] == "tn-smaller-activations"]
    assert claim["verdict"] == "fails here"
    assert claim["evidence"][0]["estimate"] == cells["digits/wrn10_1/tn/seed0"]["share"] > 0.2
    text = (folder / "tables/claims.md").read_text()
    assert "fails here: TN makes no output of a rectifier larger" in text


def test_what_was_counted_in_other_weights_does_not_count(counted):
    study, folder = counted
    path = measure(study, folder)
    results = load_results(study, folder.parent, synthetic.machine())
    assert len(activation_shares(results)) == 1
    value = json.loads(path.read_text())
    value["cells"]["digits/wrn10_1/tn/seed0"]["model_sha256"] = "0"
    path.write_text(json.dumps(value))
    assert activation_shares(results) == {}
    path.write_text('{"cells": {"x": {"share": 3}}}')
    with pytest.raises(UserError, match=r"activations\.json is damaged"):
        activation_shares(results)
