"""Where the store is: addresses made absolute, checked and masked."""

import pytest

from tnfdt.study.schema import UserError
from tnfdt.tracking import address


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://host:5000", "http://host:5000"),
        ("http://user:secret@host:5000/x", "http://***@host:5000/x"),
        ("https://user@host", "https://***@host"),
        ("https://host/x?token=secret#y", "https://host/x"),
        ("postgresql+psycopg://u:p%40ss@db/mlflow", "postgresql+psycopg://***@db/mlflow"),
        ("http://u:p@ss@host/", "http://***@host/"),
        ("u:secret@host", "***@host"),
        ("sqlite:///results/mlflow.db", "sqlite:///results/mlflow.db"),
    ],
)
def test_credentials_are_masked(uri, shown):
    assert address.mask_uri(uri) == shown


@pytest.mark.parametrize("password", ["secret", "p%40ss", "a:b"])
def test_no_credential_is_left_in_a_message(password):
    uri = f"http://user:{password}@host:5000"
    message = f"cannot\n connect to {uri} as user with {password} or p@ss"
    masked = address.mask_text(message, uri)
    assert password not in masked
    assert "\n" not in masked
    assert masked.startswith("cannot connect to http://***@host:5000")
    assert ("p@ss" in masked) == (password != "p%40ss")


def test_a_relative_store_is_resolved_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert address.resolve_uri("sqlite:///m.db") == f"sqlite:///{tmp_path}/m.db"
    assert address.resolve_uri("sqlite:////data/m.db") == "sqlite:////data/m.db"
    assert address.resolve_uri("https://u:p@host") == "https://u:p@host"


@pytest.mark.parametrize(
    "uri", ["./mlruns", "file:///x/y", "", "sqlite://", "sqlite:///:memory:", "ftp://u:secret@x"]
)
def test_a_store_that_mlflow_refuses_is_a_user_error(uri):
    with pytest.raises(UserError, match="tracking_uri") as error:
        address.resolve_uri(uri)
    assert "secret" not in str(error.value)
