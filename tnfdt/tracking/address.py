"""Where the tracking store is: its address made absolute, checked, and masked for print."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tnfdt.study.schema import UserError

SQLITE = "sqlite:///"
SERVERS = ("http", "https")
DATABASES = ("postgresql", "mysql", "mssql")


def resolve_uri(uri: str) -> str:
    """The address with a relative SQLite path made absolute.

    The child process, `mlflow server` and a user's shell may each have another working
    directory; all must open the same file.
    """
    path = sqlite_path(uri)
    if path is None:
        _check_scheme(uri)
        return uri
    return SQLITE + str(path.absolute())


def sqlite_path(uri: str) -> Path | None:
    """The file of an embedded store, None for a server or another database."""
    if not uri.startswith("sqlite:"):
        return None
    name = uri.removeprefix(SQLITE)
    if not uri.startswith(SQLITE) or name in ("", ":memory:") or "?" in name:
        raise UserError(f"tracking_uri {uri!r}: write sqlite:///results/mlflow.db or http://…")
    return Path(name)


def artifact_root(database: Path) -> Path:
    """The folder of an embedded store's artifacts, beside its database."""
    return database.with_name(f"{database.stem}-artifacts")


def _check_scheme(uri: str) -> None:
    try:
        scheme = urlsplit(uri).scheme.partition("+")[0]
    except ValueError:  # such as half an IPv6 address
        scheme = ""
    if scheme not in (*SERVERS, *DATABASES):
        raise UserError(
            f"tracking_uri {mask_uri(uri)!r} is not a store that MLflow can use; "
            "write sqlite:///results/mlflow.db or http://…"
        )


def mask_uri(uri: str) -> str:
    """The address without user, password or query: safe to print, log and record."""
    bare = re.split(r"[?#]", uri, maxsplit=1)[0]
    return re.sub(r"^([A-Za-z0-9+.-]+://)?[^/]*@", r"\1***@", bare)


def mask_text(text: str, uri: str) -> str:
    """A message on one line in which no part of the address's credentials is left."""
    masked = " ".join(text.split()).replace(uri, mask_uri(uri))
    found = re.match(r"[^/]*/*(?:[^/@:]*:([^/]*)@)?[^?]*(?:\?(.*))?", uri)
    for secret in found.groups() if found else ():
        for form in {secret, unquote(secret or "")} - {None, ""}:
            masked = masked.replace(form, "***")
    return masked
