"""What the Snakefile asks the package."""

import re
import subprocess
import sys

import pytest

from tnfdt.run.snakemake import one_of

WORDS = {
    "seeds": [str(seed) for seed in range(0, 2000, 3)],
    "epsilons": ["0.1", "0.01", "0.001", "1e-05"],
    "methods": ["tn", "tn_fdt", "fdt", "vanilla", "ov", "t-n", "tn.fdt"],
    "one": ["c10"],
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS.keys())
def test_a_constraint_admits_the_studys_values_and_nothing_else(words):
    pattern = re.compile(one_of(words))
    letters = sorted(set("".join(words)))
    assert all(pattern.fullmatch(word) for word in words)
    near = {word[:-1] for word in words} | {word + letter for word in words for letter in letters}
    near |= {word[:-1] + letter for word in words for letter in letters} | {"", "x"}
    assert not [word for word in near - set(words) if pattern.fullmatch(word)]


def test_a_constraint_of_many_seeds_is_short():
    assert len(one_of(map(str, range(10_000)))) < 200


def test_snakemake_reads_it_without_torch():
    """It would be 200 MiB and two seconds of every Snakemake, and of each job on a cluster."""
    code = "import sys, tnfdt.run.snakemake, tnfdt.run.slurm; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
