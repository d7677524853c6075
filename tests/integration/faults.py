"""The fault campaign: a study whose processes are killed at random until it is done.

    python -m tests.integration.faults --kills 100 --seed 0

A round is one study from nothing to its last file. Every kind of its processes is killed by
SIGKILL and SIGTERM, or stopped by SIGSTOP and after a while killed or let go on, and the very same
command is given again until it is done. Then the results must be those of a run that nobody
disturbed, see `same_results`, and nothing may be left over. In the first round of the long campaign
all trainings of a re-run with other settings then fail, and the first command must bring the same
results back. All lies in a folder of its own.

Only processes of this campaign are killed: those with its mark in their environment.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml

from tests.integration.conftest import Project, environment
from tests.integration.same_results import differences
from tests.integration.test_tracking import free_port, parents, stored
from tests.integration.ui_screenshot import _wait as wait_for_server
from tnfdt.study.schema import ROOT
from tnfdt.tracking import init_store
from tnfdt.tracking.sqlite_store import server_command, server_settings

MARK = "TNFDT_FAULTS"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
NAMES = {  # of the kinds of processes, in print
    "snakemake": "Snakemake",
    "data": "data",
    "train": "training",
    "attack": "attack",
    "audit": "audit",
    "tables": "tables, figures",
    "audit_tables": "tables of the audit",
    "summary": "summary",
    "multiverse": "tables of the readings",
    "pack": "evidence bundle",
    "report": "report",
    "follow": "tracking (the follower)",
    "server": "MLflow server",
}
ONCE = "report"  # made when all else is done: killed at most once a round
KINDS = tuple(kind for kind in NAMES if kind != ONCE)
ALWAYS = ("snakemake", "server", "follow")  # alive all the time
PATIENCE = 1800.0  # seconds in which a run comes to its end however busy the machine is


@dataclass
class Report:
    """What a campaign did and found."""

    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    rounds: int = 0
    reruns: int = 0
    resumed: int = 0  # jobs that went on where they were
    failed: bool = False  # all trainings of a re-run failed, and it was no success
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def table(self) -> str:
        """The table of docs/guarantees.md, and the sentence before it."""
        rows = {kind: [self.kills[kind, s.name] for s in SIGNALS] for kind in NAMES}
        rows = {NAMES[kind]: counts for kind, counts in rows.items() if any(counts)}
        rows["all"] = [sum(counts) for counts in zip(*rows.values(), strict=True)] or [0]
        head = [f"| killed | {' | '.join(s.name for s in SIGNALS)} |", "|---|---:|---:|---:|"]
        lines = [f"| {name} | {' | '.join(map(str, counts))} |" for name, counts in rows.items()]
        return "\n".join([self._sentence(), "", *head, *lines, "", *self.differences])

    def _sentence(self) -> str:
        failed = "once all trainings of a re-run failed, " if self.failed else ""
        return (
            f"{self.seconds / 60:.0f} minutes, {self.rounds} rounds: {self.kills.total()} kills, "
            f"{failed}the command given again {self.reruns} times, {self.resumed} jobs resumed "
            f"where they were, {len(self.differences) or 'no'} differences."
        )


@dataclass
class Campaign:
    """Kill `kills` processes over as many rounds as it takes."""

    folder: Path
    study: dict  # what is in its file
    reference: Path  # results folder of an undisturbed run
    kills: int
    seed: int = 0
    kinds: tuple[str, ...] = KINDS
    of_a_kind: int = 3  # kills of each kind in a round
    is_long: bool = True  # the report is killed, too, and all jobs of a re-run fail
    pace: tuple[float, float] = (1.0, 4.0)  # seconds between two kills

    def __post_init__(self) -> None:
        self.rng, self.report, self.mark = random.Random(self.seed), Report(), uuid.uuid4().hex
        self.begin, self.cards = time.monotonic(), []

    def run(self) -> Report:
        while self.left and not self.report.differences:
            self.report.rounds += 1
            self._deal()
            round_ = Round(self, self.folder / f"round{self.report.rounds}")
            self.report.differences += round_.run()
            if not self.report.differences:
                shutil.rmtree(round_.project.folder)
        self.report.seconds = time.monotonic() - self.begin
        return self.report

    @property
    def left(self) -> int:
        return self.kills - self.report.kills.total()

    def _deal(self) -> None:
        """The kinds to kill in the next round; what the last one did not reach is put on top, and
        is all there is where that suffices: a short campaign kills one of each kind."""
        if self.left <= len(self.cards):
            return
        self.cards += [*self.kinds * self.of_a_kind, *([ONCE] if self.is_long else ())]

    def say(self, text: str) -> None:
        seconds = time.monotonic() - self.begin
        head = f"[{seconds // 60:3.0f}:{seconds % 60:02.0f}] round {self.report.rounds}"
        print(f"{head}, {self.report.kills.total()}/{self.kills} kills: {text}", flush=True)


class Round:
    """One study from nothing to its tables, with kills on the way."""

    def __init__(self, campaign: Campaign, folder: Path) -> None:
        self.campaign, self.rng, self.say = campaign, campaign.rng, campaign.say
        folder.mkdir(parents=True)
        self.project = Project(folder)
        self.project.write(campaign.study)
        self.server = Server(folder, campaign.mark)
        self.command = self.project.snakemake_command(tracking_uri=self.server.uri)
        self.env = {**environment(), "PYTHONPATH": str(ROOT), MARK: campaign.mark}
        self.run_: subprocess.Popen | None = None
        self.killed = 0
        self.read: set[tuple[Path, int]] = set()  # logs of trainings that went on
        self.stopped: list[tuple[float, psutil.Process]] = []  # until when, and who

    def run(self) -> list[str]:
        self.server.start()
        try:
            self._to_the_end()
            found = self._check()
            if self.campaign.is_long and not (found or self.campaign.report.failed):
                self._fail()
                self._to_the_end()
                found = self._compare()
            return found + self._check_tracking()
        except AssertionError as error:
            return [str(error)]
        finally:
            self.server.stop()
            for process in self.processes():
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def _to_the_end(self) -> None:
        while self._once() != 0:
            self.campaign.report.reruns += 1
            self.say("the same command again")

    def _fail(self) -> None:
        """A re-run of all trainings, every one of which fails, twice: no success either time."""
        self.say("a re-run of which all trainings fail")
        with damaged(next(self.project.results.glob("data/*/train_x.npy"))):
            for _ in range(2):
                options = ("precision=bf16", "tracking_uri=none")
                done = self.project.run(*self.command, *options, check=False, env=self.env)
                assert done.returncode != 0, "a re-run of which all jobs failed reports success"
                found = self.project.results.glob("train/*/*/*/*/record.json")
                # A best epoch is taken from a training: its job has not come to its turn.
                left = [path for path in found if "checkpoint-best" not in str(path)]
                assert not left, f"{left} did not fail:\n{done.stderr[-2000:]}"
        self.campaign.report.failed = True

    def _once(self) -> int:
        """Run the command to its end or to its kill; one that nobody disturbed must succeed."""
        before, log = self.killed, self.project.folder / "snakemake.log"
        with log.open("w") as file:
            self.run_ = subprocess.Popen(
                self.command, cwd=self.project.folder, env=self.env, stdout=file, stderr=file
            )
        due = self._due()
        until = time.monotonic() + PATIENCE
        while (code := self.run_.poll()) is None:
            assert time.monotonic() < until, f"Snakemake hangs:\n{log.read_text()[-3000:]}"
            self.server.keep_up()
            self._release()
            if time.monotonic() > due and self._kill():
                due = self._due()
            time.sleep(0.1)
        self._read_logs()
        disturbed = self.killed > before
        assert code == 0 or disturbed, f"Snakemake failed by itself:\n{log.read_text()[-3000:]}"
        return code

    def _read_logs(self) -> None:
        """A job that was killed goes on where it was; its log is of its last try."""
        for path in self.project.results.glob("logs/**/*.log"):
            text = path.read_text(errors="replace")
            assert "starts over" not in text, f"{path}: {text}"
            if "going on at" in text:
                self.read.add((path, path.stat().st_mtime_ns))

    def _due(self) -> float:
        return time.monotonic() + self.rng.uniform(*self.campaign.pace)

    def _kill(self) -> bool:
        """Kill one process, if one of a kind is alive that is to be killed in this round."""
        live = self._victims() if self.campaign.left else {}
        kinds = [kind for kind in live if kind in self.campaign.cards]
        if not kinds:
            return False
        # Leave something for later of those that live all the time.
        kind = self.rng.choices(kinds, [1 if k in ALWAYS else 5 for k in kinds])[0]
        time.sleep(self.rng.uniform(0, 0.2 * self.campaign.pace[1]))
        counts, victim = self.campaign.report.kills, self.rng.choice(live[kind])
        chosen = min(SIGNALS, key=lambda s: (counts[kind, s.name], self.rng.random()))
        if not self._send(kind, victim, chosen):
            return False
        self.killed += 1
        counts[kind, chosen.name] += 1
        self.campaign.cards.remove(kind)
        self.say(f"{chosen.name} to {kind}")
        return True

    def _send(self, kind: str, victim: psutil.Process, number: signal.Signals) -> bool:
        pause = self.rng.uniform(0, self.campaign.pace[1])
        if kind == "server":
            self.server.kill(number, pause)
            return True
        try:
            victim.send_signal(number)  # psutil makes sure that it is still the same process
        except psutil.NoSuchProcess:
            return False
        if number == signal.SIGSTOP:
            self.stopped.append((time.monotonic() + pause, victim))
        return True

    def _release(self) -> None:
        """Kill or let go on what has been stopped for its time."""
        for until, process in [item for item in self.stopped if item[0] < time.monotonic()]:
            self.stopped.remove((until, process))
            with contextlib.suppress(psutil.NoSuchProcess):
                self.rng.choice([process.kill, process.resume])()

    def processes(self) -> list[psutil.Process]:
        """The living processes of this campaign, but for the server's."""
        return [process for process in marked(self.campaign.mark) if not self.server.owns(process)]

    def _victims(self) -> dict[str, list[psutil.Process]]:
        found = {"server": [self.server.process]} if self.server.alive else {}
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if (kind := kind_of(process.cmdline())) is not None:
                    found.setdefault(kind, []).append(process)
        return found

    def _check(self) -> list[str]:
        """What is wrong when all is done."""
        self.say("done; checking")
        self.campaign.report.resumed += len(self.read)
        found = [f"left running: {name}" for name in self._orphans()]
        before = self._times()
        again = self.project.run(*self.command, check=False, env=self.env)
        if again.returncode or self._times() != before:
            found.append(f"a new run does not find all done:\n{again.stderr[-2000:]}")
        return found + self._compare()

    def _compare(self) -> list[str]:
        return differences(self.project.results, self.campaign.reference)

    def _times(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self.project.results.glob("t*/**/*.*")}

    def _orphans(self, seconds: float = 15) -> list[str]:
        until = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.2)
        return [" ".join(process.cmdline()) for process in left if process.is_running()]

    def _check_tracking(self) -> list[str]:
        """After `tnfdt track` the server has what a store rebuilt from the disk has, once."""
        self.server.keep_up(wait=True)
        self._track(self.server.uri)
        self.server.stop()
        rebuilt = Path(shutil.copy(self.server.empty, self.project.folder / "rebuilt.db"))
        self._track(f"sqlite:///{rebuilt}")
        made, expected = stored(self.server.database), stored(rebuilt)
        found = [f"MLflow: runs of {sorted(made)}"] if set(made) != set(expected) else []
        found += [f"MLflow: {c} differs" for c in made if made[c] != expected.get(c)]
        twice = [cell for cell, run in made.items() if set(run["points"].values()) != {1}]
        found += [f"MLflow: {cell} has points twice" for cell in twice]
        runs = len(parents(self.server.database))
        return [*found, f"MLflow: {runs} runs of the study"] if runs != 1 else found

    def _track(self, uri: str) -> None:
        self.project.tnfdt("track", "--set", f"tracking_uri={uri}", env=self.env)


def kind_of(words: list[str]) -> str | None:
    """Which kind a process of a run is, by its command line."""
    if "--report" in words:
        return "report"
    name = os.path.basename(words[1]) if len(words) > 2 else ""
    if name == "tnfdt":
        if "--follow" in words:
            return "follow"
        return part_of(words) if words[2] == "tables" else words[2]
    return "snakemake" if name == "snakemake" else None


def part_of(words: list[str]) -> str:
    """Which of the parts of `tnfdt tables` is made."""
    (part,) = words[words.index("--only") + 1 :][:1]
    return {"audit": "audit_tables", "summary": part, "multiverse": part}.get(part, "tables")


@contextlib.contextmanager
def damaged(path: Path) -> Iterator[None]:
    """A file with another last byte for a while, which no time stamp shows."""
    times, content = path.stat(), path.read_bytes()

    def write(content: bytes) -> None:
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    write(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        yield
    finally:
        write(content)


def marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process


class Server:
    """An MLflow server on loopback with SQLite behind it, killed and started again."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.database, self.port = folder / "server.db", free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.env = {**os.environ, **server_settings(), MARK: mark}
        self.back = 0.0  # when it is started again after a kill
        self.process: psutil.Popen | None = None
        self.empty = folder / "empty.db"
        init_store(f"sqlite:///{self.empty}")
        shutil.copy(self.empty, self.database)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def owns(self, process: psutil.Process) -> bool:
        with contextlib.suppress(ProcessLookupError):
            return self.process is not None and os.getpgid(process.pid) == self.process.pid
        return False

    def start(self) -> None:
        self.process = psutil.Popen(
            server_command(self.database, self.port),
            env=self.env,
            cwd=self.database.parent,
            process_group=0,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, number: signal.Signals, pause: float) -> None:
        os.killpg(self.process.pid, number)
        self.back = time.monotonic() + pause

    def keep_up(self, wait: bool = False) -> None:
        """Start the server again when it was dead for its pause, or let it go on."""
        if wait or time.monotonic() > self.back:
            if not self.alive:
                self.stop()
                self.start()
            os.killpg(self.process.pid, signal.SIGCONT)
            if wait:
                wait_for_server(self.port)

    def stop(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def small_demo() -> dict:
    """The demo with every stage and readings, and with as few jobs as that takes: most of a job's
    time is the start of its process, whatever is killed. Only its trainings are long enough to be
    met in the midst of them, after an epoch to go on from."""
    study = yaml.safe_load((ROOT / "config/studies/demo.yaml").read_text())
    study["grid"]["table1"]["methods"] = ["vanilla", "tn_fdt"]
    study["training"] = {"epochs": 30, "lr_drop_every": 6}
    study["attack"]["epsilons"] = [0.1]
    study["multiverse"] = {"include": True, "checkpoint": ["best"]}
    return study


def undisturbed(folder: Path, study: dict) -> Path:
    """The results of a study that nobody disturbs; those that are there already are taken."""
    folder.mkdir(parents=True, exist_ok=True)
    project = Project(folder)
    project.write(study)
    project.run(*project.snakemake_command(tracking_uri="none"), env={"PYTHONPATH": str(ROOT)})
    return project.results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="default: one that goes if all is well")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="tnfdt-faults-"))
    print(f"seed {given.seed}, in {folder}; first a run without kills", flush=True)
    reference = undisturbed(folder.absolute() / "undisturbed", small_demo())
    of_a_kind = max(1, min(3, given.kills // len(KINDS)))
    campaign = Campaign(
        folder.absolute(), small_demo(), reference, given.kills, given.seed, of_a_kind=of_a_kind
    )
    report = campaign.run()
    print(f"`make faults N={given.kills} SEED={given.seed}`, {report.table()}")
    if not given.folder and not report.differences:
        shutil.rmtree(folder)
    return int(bool(report.differences))


if __name__ == "__main__":
    sys.exit(main())
