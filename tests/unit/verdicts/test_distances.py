"""Which reading is the paper's: made-up results of the paper's regime, and of a scaled study."""

import math

import pytest

from tests import in_memory
from tnfdt.evidence.statistics import TTest
from tnfdt.study.products import PUBLISHED
from tnfdt.study.schema import ROOT, read_yaml
from tnfdt.study.study import load_study, study_from_dict
from tnfdt.tables.distances import distance_frame, distance_grid
from tnfdt.tables.grid import markdown
from tnfdt.verdicts.distances import Apart, Distance, distances
from tnfdt.verdicts.hypotheses import ClaimRow
from tnfdt.verdicts.multiverse import OWN
from tnfdt.verdicts.published import load_published, published_values

FRAME = load_published(PUBLISHED)
IMAGENET, ALL = "stem: imagenet", "blend_amount: all"


def far_from_the_paper(cell):
    """Points between the truth of a reading and the paper: with the imagenet stem there are none;
    with all classes in a blend, FDT loses ten more."""
    if cell.method.endswith(".stem-imagenet"):
        return 0.0
    return 2.48 - 10 * cell.method.endswith(".blend_amount-all")


def made_up(name="readings"):
    """The CIFAR stem gives 95 % on C10 where the paper has 92.5, the imagenet stem 92.5."""
    raw = read_yaml(ROOT / f"config/studies/{name}.yaml")
    raw |= {"multiverse": {"stem": ["imagenet"], "blend_amount": ["all"]}}
    raw["grid"]["table1"]["datasets"] = ["c10"]
    raw["datasets"] = {"c10": {"augment": {"shift": 4, "flip": True}}}
    study = study_from_dict(raw, name=name, where=name)
    published = in_memory.published_numbers(FRAME)

    def number(cell, epsilon):
        base = study.multiverse.bases.get(cell.method, cell.method)
        mean, sd = published(cell._replace(method=base, model="resnet34"), epsilon)
        return mean + far_from_the_paper(cell), sd

    return in_memory.results(study, number, images=2000, attacked=300, variants=True)


@pytest.fixture(scope="module")
def found():
    return distances(made_up(), published_values(FRAME), load_study("paper"))


def test_the_reading_that_is_the_published_table_comes_first(found):
    assert [one.title for one in found.readings] == [IMAGENET, OWN, ALL]
    nearest, own, _ = found.readings
    assert len(nearest.rows) == nearest.planned == 25  # five methods, five columns
    assert nearest.errors < 2 < 4 < own.errors
    assert nearest.points < 1 < 2 < own.points


def test_the_table_says_which_stem_has_the_papers_baseline(found):
    rows = {row[0]: row[5] for row in distance_grid(found).rows}
    dataset, ours, papers = zip(*(rows[title].split() for title in (OWN, IMAGENET)), strict=True)
    assert (dataset, papers) == (("C10", "C10"), ("(92.52)", "(92.52)"))
    assert float(ours[0]) == pytest.approx(95.0, abs=0.5)
    assert float(ours[1]) == pytest.approx(92.52, abs=0.5)
    frame = distance_frame(found)
    assert len(frame) == 3 * 25
    assert list(dict.fromkeys(frame["reading"])) == [IMAGENET, OWN, ALL]


def test_a_scaled_study_says_why_the_table_is_empty():
    found = distances(made_up("mini_readings"), published_values(FRAME), load_study("paper"))
    assert found.readings == ()
    text = markdown(distance_grid(found))
    assert "Empty: no row is in the paper's regime" in text
    assert "WideResNet-10-1 (the paper: ResNet-34)" in text
    assert "5,000 training images (the paper: all)" in text


def apart(*tests):
    place = ClaimRow(
        table="table1", dataset="c10", model="resnet34", measure="clean", epsilon=None,
        a="tn", b="", hypothesis="", unit="points", side=1, threshold=0.0,
    )  # fmt: skip
    return tuple(Apart(place=place, ours=1.0, published=1.0, test=test) for test in tests)


def test_a_distance_by_hand():
    """3 and 4 standard errors: the root of 12.5; what has no standard error counts in points."""
    rows = apart(TTest(1.5, 0.5, 4), TTest(-4.0, 1.0, 4), TTest(0.5, math.nan, math.nan))
    one = Distance(title="x", rows=rows, planned=3)
    assert one.errors == pytest.approx(math.sqrt(12.5))
    assert one.points == pytest.approx(2.0)
    assert one.furthest is rows[1]
