"""history.csv is read whole or refused in one line."""

import pytest

from tnfdt.files.history import read_history
from tnfdt.study.schema import UserError


def test_columns_have_one_number_per_epoch(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("epoch,loss,test_accuracy\n1,0.1,0.30000000000000004\n2,1e-3,0.5\n")
    history = read_history(path)
    assert history == {
        "epoch": [1, 2],
        "loss": [0.1, 0.001],
        "test_accuracy": [0.30000000000000004, 0.5],
    }


def test_a_missing_file_has_no_columns(tmp_path):
    assert read_history(tmp_path / "history.csv") == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no epoch"),
        ("epoch,test_accuracy\n", "no epoch"),
        ("epoch,loss\n1,2\n", "no test_accuracy"),
        ("epoch,test_accuracy\n1,good\n", "good"),
        ("epoch,test_accuracy\n1\n", "NoneType"),
        ("epoch,test_accuracy\n1,2,3\n", "list"),
        ("epoch,test_accuracy\n1,0.5\n3,0.5\n", "1, 2, 3"),
        ("epoch,test_accuracy\nnan,0.5\n", "1, 2, 3"),
        ("\0", "no epoch"),
    ],
)
def test_what_is_no_history_is_named_in_one_line(tmp_path, text, word):
    path = tmp_path / "history.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=r"history\.csv.*train the cell again") as error:
        read_history(path)
    assert word in str(error.value)
    assert "\n" not in str(error.value)
