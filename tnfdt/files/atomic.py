"""Files written whole or not at all.

Every file of a result is written to a temporary name in its own folder, flushed to disk and
renamed: a half-written one never exists under its real name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tnfdt.study.schema import UserError

if TYPE_CHECKING:
    import numpy.typing as npt

NPZ_BYTES = 4 << 30  # far more than any array of results has

Array: TypeAlias = "npt.NDArray[Any]"
Arrays: TypeAlias = dict[str, "npt.NDArray[Any]"]


def namespace() -> str:
    """Where numbers of processes mean the same: not across the wall of a container."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


# Of a temporary file: a number of a process counts on one machine and in one container.
_OWNER = f".{platform.node()}-{namespace().strip('pid:[]')}."


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it on success and removed on an error."""
    _refuse_special(path)
    temporary = path.with_name(f".{path.name}{_OWNER}{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; "
            "free space or fix the folder, then run again"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _refuse_special(path: Path) -> None:
    """A rename replaces whatever it can, a device such as /dev/null too."""
    with contextlib.suppress(OSError):  # it does not exist, or its folder is none
        kind = path.lstat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
            raise UserError(f"cannot write {path}: it is not a plain file; name another")


def sweep(folder: Path) -> None:
    """Remove the temporary files that killed processes of this machine have left in a folder."""
    for left in folder.glob(f".*{_OWNER}*.tmp"):
        pid = left.name.removesuffix(".tmp").rpartition(_OWNER)[2]
        if pid.isdigit() and not _is_alive(int(pid)):
            left.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; NaN and infinity are refused, they are never a result."""
    try:
        text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    except ValueError as error:
        raise UserError(f"{path}: a value is NaN or infinite, nothing was written") from error
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def read_json(path: Path) -> Any:
    """Read JSON; one clear line when it is missing, torn or holds NaN."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; run the stage that makes it") from None
    except (ValueError, OSError, RecursionError) as error:
        raise UserError(
            f"{path} is not a valid JSON record ({error}); delete it and run again"
        ) from None


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_npz(path: Path, arrays: Arrays, *, compress: bool = True) -> None:
    """Arrays by name, atomically; the same arrays give the same bytes."""
    import numpy as np

    save = np.savez_compressed if compress else np.savez
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        save(file, **arrays)  # type: ignore[arg-type]


def refuse_bomb(path: Path, most: int | None = None) -> None:
    """Raise ValueError if a zip file declares more than so many bytes; nothing is unpacked."""
    most = NPZ_BYTES if most is None else most
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > most:
        raise ValueError(f"it unpacks to {size >> 20} MiB, more than {most >> 20}")


def read_arrays(path: Path) -> Arrays:
    """All arrays of a file that `write_npz` wrote; never unpickles."""
    import numpy as np

    try:
        refuse_bomb(path)
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; run the stage that makes it") from None
    except Exception as error:  # whatever a damaged file makes numpy, zipfile and zlib raise
        raise UserError(f"{path} cannot be read ({error}); delete it and run again") from None
