"""Values that stand in files, folders and the environment."""

from __future__ import annotations

import pytest

from ottla.connect.connector_settings import PROVIDERS, resolve
from ottla.errors import ConfigError

WORKER = {"config.providers": "file,dir,env"} | {
    f"config.providers.{name}.class": provider
    for name, provider in zip(("file", "dir", "env"), PROVIDERS, strict=True)
}


def test_three_providers(tmp_path, monkeypatch):
    """A key of a file, a file of a folder, a variable; also within a text."""
    (tmp_path / "db.properties").write_text("user=ann\n")
    (tmp_path / "password").write_text("secret")
    monkeypatch.setenv("HOST", "db1")
    found = resolve(
        WORKER,
        {
            "url": f"${{env:HOST}}/${{file:{tmp_path}/db.properties:user}}",
            "password": f"${{dir:{tmp_path}:password}}",
            "plain": "${other:x}",
        },
    )

    assert found == {"url": "db1/ann", "password": "secret", "plain": "${other:x}"}


def test_without_providers_nothing_is_replaced():
    """A text may hold what looks like a reference."""
    assert resolve({}, {"a": "${env:HOST}"}) == {"a": "${env:HOST}"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${file:/nowhere/x:key}", "cannot be read"),
        ("${dir:/nowhere:key}", "cannot be read"),
        ("${env:NO_SUCH_VARIABLE}", "has no such variable"),
    ],
)
def test_missing_values_are_named(text, message):
    """Never an empty password in the place of one that is not there."""
    with pytest.raises(ConfigError, match=message):
        resolve(WORKER, {"a": text})


def test_missing_key_and_unknown_provider(tmp_path):
    """Both are sentences with the name."""
    (tmp_path / "p").write_text("")
    with pytest.raises(ConfigError, match="the file has no such key"):
        resolve(WORKER, {"a": f"${{file:{tmp_path}/p:key}}"})
    with pytest.raises(ConfigError, match=r"config\.providers\.vault\.class=None: must be one of"):
        resolve({"config.providers": "vault"}, {})
