"""A real Slurm of one node, on loopback, for tests: three partitions, two pretended GPUs.

    python -m tests.integration.slurm_cluster start FOLDER    prints what to export
    python -m tests.integration.slurm_cluster stop FOLDER

All state lies in FOLDER, which must have a short path (it holds a socket). Nothing of the
system is touched: munge has a key and a socket of its own, and the commands find the
configuration by SLURM_CONF. Snakemake's executor takes SLURM_CONF away from the srun inside
of a job, so a wrapper of srun, first in PATH, gives it back.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.packages import which

CPUS, MEMORY_MB = 8, 64_000

CONFIG = """\
ClusterName=tnfdt
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
MpiDefault=none
MinJobAge=300
KillWait=5
ReturnToService=2
GresTypes=gpu
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} \
RealMemory={memory} Gres=gpu:2 State=UNKNOWN
PartitionName=cpu Nodes={node} Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes={node} MaxTime=INFINITE State=UP
PartitionName=short Nodes={node} MaxTime=1 State=UP
"""
# A pretended GPU needs a device file of its own; these two exist everywhere.
GRES = """\
AutoDetect=off
NodeName=node1 Name=gpu File=/dev/null
NodeName=node1 Name=gpu File=/dev/zero
"""
SRUN = '#!/bin/sh\nSLURM_CONF="{folder}/slurm.conf" exec {srun} "$@"\n'


def _program(name: str) -> str:
    found = which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed; on Debian: apt install slurm-wlm munge")
    return found


class SlurmCluster:
    """`with SlurmCluster(folder) as cluster:` runs it; `cluster.environment` leads to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }

    def __enter__(self) -> SlurmCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Configure, start the daemons and wait until the node takes jobs."""
        self._configure()
        self._start_munge()
        self.start_controller()
        conf = str(self.folder / "slurm.conf")
        self._daemon("slurmd", "-D", "-N", "node1", "-f", conf)
        self._wait("a node to be idle", lambda: "idle" in self.run("sinfo", "-h", "-o", "%T"))

    def start_controller(self) -> None:
        conf = str(self.folder / "slurm.conf")
        self._daemon("slurmctld", "-D", "-f", conf)
        self._wait("slurmctld", lambda: "UP" in self.run("scontrol", "ping"))

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def stop(self) -> None:
        """End all jobs and daemons of this cluster."""
        if self._runs("slurmd"):
            if not self._runs("slurmctld"):
                self.start_controller()  # only it can end the jobs
            self.run("scancel", "--user", getpass.getuser())
            with contextlib.suppress(TimeoutError):
                self._wait("jobs to end", lambda: not self.run("squeue", "-h").strip())
        for name in ("slurmd", "slurmctld", "munged"):
            self._end(name)
        for process in self._left_by_jobs():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _left_by_jobs(self) -> list[psutil.Process]:
        """What has slipped away from its job: without cgroups Slurm loses sight of orphans."""
        conf, found = self.environment["SLURM_CONF"], []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                if environment.get("SLURM_CONF") == conf and "SLURM_JOB_ID" in environment:
                    found.append(process)
        return found

    def run(self, *command: str, timeout: float = 30) -> str:
        """The output of one of Slurm's commands on this cluster; empty if it fails."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout
        )
        return done.stdout if done.returncode == 0 else ""

    def _configure(self) -> None:
        for name in ("bin", "munge", "state", "spool"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        text = CONFIG.format(
            host=socket.gethostname(),
            ports=_free_ports(2),
            user=getpass.getuser(),
            folder=self.folder,
            node="node1",
            cpus=CPUS,
            memory=MEMORY_MB,
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(GRES)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        srun = self.folder / "bin" / "srun"
        srun.write_text(SRUN.format(folder=self.folder, srun=_program("srun")))
        srun.chmod(0o755)

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        key = folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = {name: str(folder / name) for name in ("key", "pid", "log", "seed")}
        options = [f"--{name}-file={path}" for name, path in files.items()]
        # --force: the folder of a test may be closed to other users, who have no business here.
        self._daemon("munged", "--foreground", "--force", f"--socket={folder}/socket", *options)
        self._wait("munged", (folder / "socket").exists)

    def _daemon(self, name: str, *args: str) -> None:
        """Start a daemon in a session of its own and remember its number."""
        with (self.folder / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                [_program(name), *args],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.folder / f"{name}.child").write_text(str(process.pid))

    def _runs(self, name: str) -> bool:
        path = self.folder / f"{name}.child"
        return path.exists() and _alive(int(path.read_text()))

    def _end(self, name: str) -> None:
        for request in (signal.SIGTERM, signal.SIGKILL):
            if self._runs(name):
                os.kill(int((self.folder / f"{name}.child").read_text()), request)
                with contextlib.suppress(TimeoutError):
                    self._wait(f"{name} to end", lambda: not self._runs(name), 5)

    def _wait(self, what: str, ready: Callable[[], object], seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                raise TimeoutError(
                    f"waited {seconds:.0f} s for {what}; see the logs in {self.folder}"
                )
            time.sleep(0.02)


def _alive(number: int) -> bool:
    """Whether a process is there and not only a name on its parent's list."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(number, os.WNOHANG)
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]


def main(verb: str, folder: str) -> None:
    cluster = SlurmCluster(Path(folder).resolve())
    begin = time.monotonic()
    getattr(cluster, {"start": "start", "stop": "stop"}[verb])()
    print(f"# {verb} took {time.monotonic() - begin:.2f} s")
    if verb == "start":
        for key in ("SLURM_CONF", "PATH"):
            print(f'export {key}="{cluster.environment[key]}"')


if __name__ == "__main__":
    main(*sys.argv[1:])
