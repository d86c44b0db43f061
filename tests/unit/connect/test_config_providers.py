"""Values that stand in files, folders and the environment."""

from __future__ import annotations

import os

import pytest

from ottla.connect.config_providers import PROVIDERS, ConfigProviders
from ottla.errors import ConfigError

WORKER = {"config.providers": "file,dir,env"} | {
    f"config.providers.{name}.class": provider
    for name, provider in zip(("file", "dir", "env"), PROVIDERS, strict=True)
}


def resolve(worker, properties):
    return ConfigProviders(worker).resolve(properties)


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


@pytest.fixture
def folders(tmp_path):
    """A folder that connectors may read, beside one that they may not."""
    for name in ("allowed", "other", "allowed-not"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secrets").write_text("password=of-the-database\n")
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "other" / "secrets")
    return tmp_path


def limited(folders, **params):
    return WORKER | {
        "config.providers.file.param.allowed.paths": f"{folders}/allowed",
        "config.providers.dir.param.allowed.paths": f"{folders}/allowed",
        "config.providers.env.param.allowlist.pattern": "CONNECT_.*",
    }


@pytest.mark.parametrize(
    "reference",
    [
        "${file:FOLDERS/other/secrets:password}",
        "${file:FOLDERS/allowed-not/secrets:password}",
        "${file:FOLDERS/allowed/../other/secrets:password}",
        "${file:FOLDERS/allowed/link:password}",
        "${dir:FOLDERS/other:secrets}",
        "${dir:FOLDERS/allowed:link}",
    ],
)
def test_files_outside_of_the_allowed_paths_are_not_read(folders, reference):
    """Whatever way leads there: a path beside, dots, a symbolic link."""
    text = reference.replace("FOLDERS", str(folders))
    with pytest.raises(ConfigError, match=r"is outside of the provider's param\.allowed\.paths"):
        resolve(limited(folders), {"a": text})


def test_what_is_allowed_is_read(folders, monkeypatch):
    """Files below the folder, and variables that match as a whole."""
    monkeypatch.setenv("CONNECT_USER", "ann")
    monkeypatch.setenv("MY_CONNECT_USER", "bob")
    given = {
        "a": f"${{file:{folders}/allowed/secrets:password}}",
        "b": f"${{dir:{folders}/allowed:secrets}}",
        "c": "${env:CONNECT_USER}",
    }
    found = resolve(limited(folders), given)

    assert found == {"a": "of-the-database", "b": "password=of-the-database\n", "c": "ann"}
    with pytest.raises(ConfigError, match=r"does not match the provider's param\.allowlist"):
        resolve(limited(folders), {"a": "${env:MY_CONNECT_USER}"})


@pytest.mark.parametrize("key", ["../other/secrets", "..", ".", "", "/etc/hostname", "a/b"])
def test_key_of_a_folder_is_the_name_of_a_file_in_it(folders, key):
    """A key names a file in the folder, also where no paths are set."""
    with pytest.raises(ConfigError, match="must be the name of a file in the folder"):
        resolve(WORKER, {"a": f"${{dir:{folders}/allowed:{key}}}"})


@pytest.mark.parametrize(
    ("param", "value", "rule"),
    [
        ("file.param.alowed.paths", "/x", "must be one of allowed.paths"),
        ("dir.param.allowlist.pattern", "x", "must be one of allowed.paths"),
        ("env.param.allowed.paths", "/x", "must be one of allowlist.pattern"),
        ("env.param.allowlist.pattern", "(", "is no regular expression"),
    ],
)
def test_protection_that_would_not_be_there_is_refused(param, value, rule):
    """A setting that is misspelt protects nothing, so that the worker does not start with it."""
    with pytest.raises(ConfigError, match=f"config.providers.{param}.*{rule}"):
        ConfigProviders(WORKER | {f"config.providers.{param}": value})


def test_what_a_connector_plans_is_kept_with_references(tmp_path):
    """Under the same key, under another one, and as a part of another text."""
    (tmp_path / "db").write_text("password=s3cret-of-db\nuser=ann\nempty=\n")
    given = {
        "password": f"${{file:{tmp_path}/db:password}}",
        "user": f"${{file:{tmp_path}/db:user}}",
        "nothing": f"${{file:{tmp_path}/db:empty}}",
        "topic": "t",
    }
    providers = ConfigProviders(WORKER)
    planned = {
        **providers.resolve(given),
        "url": "db://ann:s3cret-of-db@host",
        "login": "ann",
        "manner": "annual",
        "task": "0",
    }
    kept = providers.put_back(given, providers.resolve(given), planned)

    assert kept == {
        **given,
        "url": f"db://ann:{given['password']}@host",
        "login": given["user"],
        "manner": "annual",
        "task": "0",
    }
    assert providers.resolve(kept) == planned


def test_what_code_says_has_references_for_what_it_got(tmp_path):
    """Of all connectors of the worker, the longest first; short texts are everywhere."""
    (tmp_path / "db").write_text("password=s3cret\nlonger=s3cret-of-db\nuser=ann\n")
    providers = ConfigProviders(WORKER)
    text = "ann, s3cret and s3cret-of-db"
    assert providers.hide(text) == text
    given = {key: f"${{file:{tmp_path}/db:{key}}}" for key in ("password", "longer", "user")}
    providers.resolve(given)

    assert providers.hide(text) == f"ann, {given['password']} and {given['longer']}"
    providers.resolve({"a": "${vault:s3cret}", "b": "of-db and"})
    assert providers.hide(text) == f"ann, {given['password']} and {given['longer']}"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_pipe_or_device_is_no_file_of_secrets(tmp_path, make):
    """The worker's loop would wait for it, or its memory be filled."""
    make(tmp_path / "secrets")
    for text in (f"${{file:{tmp_path}/secrets:key}}", f"${{dir:{tmp_path}:secrets}}"):
        with pytest.raises(ConfigError, match="cannot be read: is no regular file"):
            resolve(WORKER, {"a": text})
