"""The command line: what it refuses, in one line and with exit code 2."""

import pytest

from tnfdt.cli import main

CELL = "digits/wrn10_1/tn/seed0"

REFUSED = [
    (["train", "--study", "nope", CELL], ["nope", "demo", "mini"]),
    (["train", "--study", "demo", "digits/wrn10_1/tn"], ["digits/wrn10_1/tn", "seed0"]),
    (["train", "--study", "demo", "../../etc/passwd"], ["../../etc/passwd", "not in study"]),
    (["train", "--study", "demo", CELL, "--slice", "abc"], ["changed", "start Snakemake again"]),
    (["train", "--study", "demo", CELL, "--set", "device"], ["device", "key=value"]),
    (["train", "--study", "demo", CELL, "--set", "device=tpu"], ["device", "tpu"]),
    (["train", "--study", "demo", CELL, "--set", "colour=red"], ["colour", "allowed"]),
    (["train", "--study", "demo", CELL, "--set", "threads=[1"], ["threads"]),
    (["data", "--study", "demo", "c10"], ["c10", "digits"]),
    (["attack", "--study", "demo", CELL, "--epsilon", "0.5"], ["0.5", "0.1, 0.01"]),
    (["attack", "--study", "demo", CELL, "--epsilon", "much"], ["much", "0.0001"]),
    (["attack", "--study", "demo", CELL, "--epsilon", "-0.1"], ["-0.1"]),
    (["attack", "--study", "demo", CELL, "--epsilon", "nan"], ["nan"]),
    (["tables", "--study", "demo", "--out", "elsewhere"], ["--evidence", "--out"]),
    (["track", "--study", "demo", "--set", "tracking_uri=none"], ["tracking is none"]),
]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for key in ("TNFDT_STUDY", "TNFDT_SET", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(key, raising=False)


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=lambda item: " ".join(item)[-60:])
def test_bad_arguments_are_one_line_and_change_nothing(
    tmp_path, monkeypatch, capsys, arguments, words
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("tnfdt: ")
    assert told.count("\n") == 1
    for word in words:
        assert word in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["fly"], ["attack", CELL], ["plan", "--gpus", "many"],
                                       ["pack", "--lab", " "]])  # fmt: skip
def test_usage_errors_are_one_line_and_exit_with_2(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("tnfdt: ")
    assert told.count("\n") == 1
    assert "--help" in told


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("tnfdt 0.")


VERBS = [
    "data",
    "train",
    "attack",
    "audit",
    "tables",
    "pack",
    "merge",
    "plan",
    "status",
    "verify",
    "track",
    "ui",
]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(capsys, verb):
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    assert f"example: tnfdt {verb}" in capsys.readouterr().out


def test_a_run_of_snakemake_sets_study_and_machine_through_the_environment(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TNFDT_STUDY", "demo")
    monkeypatch.setenv("TNFDT_SET", "device=cpu\nprecision=fp9")
    assert main(["train", CELL]) == 2
    assert "precision" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("tables --evidence a.zip", "--evidence FILE and --out DIR go together"),
        ("tables --evidence absent.zip --out out", "absent.zip does not exist"),
        ("merge absent.zip b.zip --out c.zip", "absent.zip does not exist"),
        ("verify --cell c10/m/tn/seed0", "a bundle with --evidence"),
        ("verify results/demo --evidence a.zip --cell c10/m/tn/seed0", "a bundle with --evidence"),
    ],
)
def test_what_is_wrong_with_a_bundles_verb_is_one_line(
    command, line, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == 1
    assert not [*tmp_path.iterdir()]
