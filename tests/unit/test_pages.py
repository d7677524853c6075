"""Pages for readers: tables made from the schemas, links that lead somewhere, names that exist."""

import re
import subprocess
import tomllib

import pytest

from tests import config_readme
from tnfdt.study.schema import ROOT, read_yaml

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += [ROOT / "config/README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_keys_in_config_readme_are_the_schemas():
    page = config_readme.PAGE.read_text(encoding="utf-8")
    assert page == config_readme.filled(page), "run python -m tests.config_readme"


def test_a_key_of_the_schema_that_the_page_lacks_is_seen():
    page = config_readme.PAGE.read_text(encoding="utf-8")
    lines = [line for line in page.splitlines(True) if "`interpretation.stem`" not in line]
    assert config_readme.filled("".join(lines)) == page


def test_every_study_is_listed():
    page = config_readme.PAGE.read_text(encoding="utf-8").split("## The studies")[1]
    named = re.findall(r"^\| `(\w+)` \|", page.split("## ")[0], re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))


def test_every_meaning_is_a_whole_sentence():
    """YAML ends an unquoted text at a comma, and the rest of it is a key that nobody reads."""
    rows = [row for name in config_readme.TABLES for row in config_readme.table(name).splitlines()]
    assert [row for row in rows[2:] if row.startswith("| `") and not row.endswith(". |")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_of_the_project(page):
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page):
    named = re.findall(r"`((?:tnfdt|tests|workflow|config|profiles)/[\w./-]+)`", page.read_text())
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_that_a_page_names_exist(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:^|`|&& )make ([a-z]+)", page.read_text(), re.MULTILINE)
    assert set(named) <= targets


def interpretation_rows():
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Where the paper is silent")
    return dict(re.findall(r"^\| `(\w+)`(.*)\|$", section[1], re.MULTILINE))


def test_the_readme_has_every_choice_with_its_default_and_its_other_values():
    rows = interpretation_rows()
    schema = read_yaml(ROOT / "workflow/schemas/study.schema.yaml")
    keys = schema["properties"]["interpretation"]["properties"]
    assert {key for key, row in rows.items() if "(constant)" not in row} <= set(keys) <= set(rows)
    for key, entry in keys.items():
        values = entry.get("enum", [True, False] if entry.get("type") == "boolean" else [])
        words = [str(value).lower() for value in values] if len(values) > 1 else []
        assert [word for word in words if f"`{word}`" not in rows[key]] == []


def test_the_import_order_in_contributing_is_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    names = [set(re.findall(r"tnfdt\.(\w+)", layer)) for layer in reversed(layers)]
    page = (ROOT / "CONTRIBUTING.md").read_text()
    order = next(line for line in page.splitlines() if line.startswith("core < "))
    assert [set(re.findall(r"\w+", layer)) for layer in order.split("<")] == names


def test_footnotes_of_the_guarantees_are_used_and_defined_once():
    page = (ROOT / "docs/guarantees.md").read_text()
    defined = re.findall(r"^\[\^([\w-]+)\]:", page, re.MULTILINE)
    used = re.findall(r"\[\^([\w-]+)\](?!:)", page)
    assert sorted(defined) == sorted(set(used)) == sorted(set(defined))


def test_pre_commit_and_ci_run_what_make_does():
    assert (
        read_yaml(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"][0]["entry"] == "make lint"
    )
    steps = (ROOT / ".github/workflows/ci.yml").read_text()
    assert "run: .ci/run" in steps
    listed = subprocess.run(["git", "ls-files", "-s", ".ci/run"], cwd=ROOT, capture_output=True)
    assert listed.stdout.startswith(b"100755")
