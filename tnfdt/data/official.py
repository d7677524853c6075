"""Official files: their checksums, their download, and unpacking them without trust.

A file counts only after its checksum matched: CIFAR's files are pickles, and a pickle from
elsewhere can run code.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import http.client
import shutil
import socket
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tnfdt.files.locks import exclusive
from tnfdt.study.schema import UserError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
TIMEOUT = 20.0  # seconds without an answer after which a server counts as unreachable


class Official(NamedTuple):
    """A file as its publisher offers it."""

    path: str  # below data_dir
    md5: str
    url: str


class DownloadError(Exception):
    """A download that did not happen."""


def check_file(path: Path, algorithm: str, expected: str, shown: Path | None = None) -> None:
    """Raise unless the file has the expected checksum; `shown` is the archive it came from."""
    with path.open("rb") as file:
        # MD5 is what the publishers give; FIPS systems allow it when it is not for security.
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    if found.hexdigest() != expected:
        raise UserError(
            f"{shown or path}: {algorithm.upper()} {'of the content ' if shown else ''}is "
            f"{found.hexdigest()}, the official file has {expected}; "
            "the copy is damaged, cut short or another file: replace or delete it, then run again"
        )


def check_files(folder: Path, md5s: Mapping[str, str]) -> None:
    """Check every file of a folder against its MD5."""
    for name, md5 in md5s.items():
        check_file(folder / name, "md5", md5)


def have_all(folder: Path, names: Mapping[str, str]) -> bool:
    """Whether every file is there, right or wrong."""
    return all((folder / name).is_file() for name in names)


def unpack_tar(archive: Path, names: Mapping[str, str], into: Path) -> None:
    """Copy the named regular files of an archive into a folder, and nothing else.

    Only the content is taken from the archive: its paths, links and modes are never followed.
    """
    missing = set(names)
    with _damage_in(archive), tarfile.open(archive, "r:*") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is None or member.name not in missing:
                continue
            target = into / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(content, file)
            missing.remove(member.name)
    if missing:
        raise UserError(f"{archive}: {min(missing)} is not in it as a file; replace the archive")


def unpack_gzip(archive: Path, into: Path) -> None:
    """Decompress one file."""
    with _damage_in(archive), gzip.open(archive) as content, into.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)


@contextlib.contextmanager
def _damage_in(archive: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error) as error:
        raise UserError(
            f"{archive} is damaged or cut short ({error}); replace or delete it, then run again"
        ) from None


def download(files: tuple[Official, ...], data_dir: Path) -> None:
    """Fetch what is missing with torchvision's downloader; a file appears whole or not at all."""
    try:
        with exclusive(data_dir / ".download.lock"):
            for file in files:
                _download_one(file, data_dir / file.path, data_dir / ".partial")
    except (OSError, RuntimeError, http.client.HTTPException) as error:
        if getattr(error, "errno", None) in NO_SPACE:
            raise
        raise DownloadError(error) from error


def _download_one(file: Official, target: Path, partial: Path) -> None:
    from torchvision.datasets.utils import download_url  # type: ignore[import-untyped]

    if target.is_file():
        return check_file(target, "md5", file.md5)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        download_url(file.url, str(partial), target.name, file.md5)
        target.parent.mkdir(parents=True, exist_ok=True)
        (partial / target.name).replace(target)
    finally:
        socket.setdefaulttimeout(before)
        shutil.rmtree(partial, ignore_errors=True)


def how_to_get(files: tuple[Official, ...], data_dir: Path) -> str:
    """The files that are missing, where they belong, their checksum and where they come from."""
    missing = [file for file in files if not (data_dir / file.path).is_file()]
    wanted = [f"{data_dir / file.path} (MD5 {file.md5}, from {file.url})" for file in missing]
    return ", ".join(wanted)
