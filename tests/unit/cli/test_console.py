"""`ottla console`: its options, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from ottla.cli.command import load_command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.console import is_loopback, listen_address, settings_of, tls_files
from ottla.cli.options import option_parser
from ottla.errors import ConfigError


def parsed(*words: str):
    return option_parser(load_command("console")).parse_args(words)


def test_settings_are_those_of_the_options():
    """Loopback and a token unless said otherwise."""
    settings = settings_of(parsed("-b", "kafka", "--mask", "a.*:value.b", "--read-only"))

    assert (settings.bootstrap_servers, settings.host, settings.port) == (
        "kafka:9092",
        "127.0.0.1",
        8090,
    )
    assert settings.has_token
    assert settings.read_only
    assert settings.masks[0].path == ("b",)
    assert not settings_of(parsed("--no-token")).has_token


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--listen", "8090"], "HOST:PORT"),
        (["--listen", "localhost:x"], "HOST:PORT"),
        (["--listen", "localhost:70000"], "HOST:PORT"),
        (["--listen", "0.0.0.0:8090"], "read along"),
        (["--listen", "0.0.0.0:8090", "--insecure", "--no-token"], "this machine alone"),
    ],
)
def test_what_does_not_fit_is_refused(words, text):
    """Before anything listens."""
    with pytest.raises(UsageError, match=text):
        settings_of(parsed(*words))


def test_other_addresses_need_protection():
    """A certificate, or a network that is trusted."""
    assert settings_of(parsed("--listen", "0.0.0.0:1", "--insecure")).host == "0.0.0.0"
    assert settings_of(parsed("--listen", "[::]:1", "--certificate", "c.pem")).host == "::"
    assert listen_address("[::1]:0") == ("::1", 0)
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("example.org")


def test_login_is_that_of_the_cluster(tmp_path):
    """By the option, or where the file for clients has a mechanism and no user; without a token."""
    settings = settings_of(parsed("--login", "SCRAM-SHA-512"))
    assert (settings.has_login, settings.has_token) == (True, False)
    assert settings.client["security.protocol"] == "SASL_PLAINTEXT"
    assert settings.client["sasl.mechanism"] == "SCRAM-SHA-512"
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
    assert settings_of(parsed("--command-config", str(file))).has_login
    other = settings_of(parsed("--command-config", str(file), "--login", "SCRAM-SHA-256"))
    assert other.client == {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}
    with file.open("a") as more:
        more.write("sasl.username=a\nsasl.password=b\n")
    assert not settings_of(parsed("--command-config", str(file))).has_login
    with pytest.raises(UsageError, match="password must not be set"):
        settings_of(parsed("--command-config", str(file), "--login", "PLAIN"))
    with pytest.raises(UsageError, match="--connect: a worker of Connect has no ACLs"):
        settings_of(parsed("--connect", "http://w:8083", "--login", "PLAIN"))


def test_worker_of_connect_is_a_url_of_http():
    """Without the option there is none."""
    assert settings_of(parsed()).connect == ""
    assert settings_of(parsed("--connect", "http://w:8083")).connect == "http://w:8083"
    with pytest.raises(UsageError, match="--connect takes a URL, as http://localhost:8083"):
        parsed("--connect", "w:8083")
    registry = settings_of(parsed("--schema-registry", "http://r:8081")).schema_registry
    assert registry == "http://r:8081"
    with pytest.raises(UsageError, match="--schema-registry takes a URL, as http://localhost:8081"):
        parsed("--schema-registry", "file:///etc/passwd")


@pytest.mark.parametrize("option", ["--connect", "--schema-registry", "--metrics", "--webhook"])
@pytest.mark.parametrize(
    "url", ["http://", "http:///x", "http://h:99999/", "http://h:0/", "http://a b/", "http://h/\n"]
)
def test_address_to_which_no_request_can_go_is_refused(option, url):
    """At the start, for each of them, and not at each request."""
    with pytest.raises(UsageError, match=f"{option} takes a URL, as http"):
        settings_of(parsed(option, url))


def test_alerts_and_addresses_are_checked():
    """An address may have a password, which no error shows."""
    settings = settings_of(
        parsed("--alert", "behind=60", "--alert", "disk=off", "--webhook", "https://h/T0K3N")
    )
    assert settings.alerts == {"behind": 60, "disk": -1}
    assert settings.webhook == "https://h/T0K3N"
    assert settings_of(parsed("--metrics", "http://a:b@h:1/metrics")).metrics
    for words in (
        *[("--alert", each) for each in ("x=1", "behind", "behind=0", "behind=-1", "disk=1.5")],
        *[("--alert", each) for each in ("partitions=1", "disk=" + "9" * 5_000, "disk=²")],
        *[("--webhook", each) for each in ("ftp://h", "h", "http://", "http://h:x/", "")],
        *[("--metrics", each) for each in ("file:///etc/passwd", "http://a:T0K3N@")],
    ):
        with pytest.raises(UsageError, match=f"{words[0]} ") as refused:
            settings_of(parsed(*words))
        assert "T0K3N" not in str(refused.value)


@pytest.mark.parametrize("words", [("--metrics", "http://h/"), ("--webhook", "http://h/")])
def test_addresses_are_for_a_console_of_one_user(words):
    """Metrics and alerts have no ACLs; a report is shown whole."""
    with pytest.raises(UsageError, match=f"{words[0]}: .*not with --login"):
        settings_of(parsed(*words, "--login", "PLAIN"))
    for others in (("--login", "PLAIN"), ("--hide-records",), ("--mask", "a:value.b")):
        with pytest.raises(UsageError, match="--report: it is shown whole"):
            settings_of(parsed("--report", "report.html", *others))


def test_protobuf_needs_its_file():
    """Before anything listens."""
    with pytest.raises(ConfigError, match=r"--protobuf orders:nowhere:M: .*No such file"):
        settings_of(parsed("--protobuf", "orders:nowhere:M"))


@pytest.fixture(scope="module")
def pem(tmp_path_factory) -> Path:
    """A folder with a certificate, its key, both, that key with a password, and another key."""
    folder = tmp_path_factory.mktemp("pem")
    issued, other = (trustme.CA().issue_cert("localhost") for _ in range(2))
    certificate, key = issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()
    locked = load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame")
    )
    files = {"cert": certificate, "key": key, "both": key + certificate, "locked": locked}
    for name, data in {**files, "other": other.private_key_pem.bytes(), "text": b"no"}.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize(("certificate", "key"), [("both", ""), ("cert", "key")])
def test_certificate_is_served_with_its_key(pem, certificate, key):
    """Which is in the same file, or in its own."""
    words = ["--private-key", str(pem / key)] if key else []
    found = tls_files(parsed("--certificate", str(pem / certificate), *words))

    assert found == (str(pem / certificate), str(pem / (key or "both")))


@pytest.mark.parametrize(
    ("certificate", "key", "text"),
    [
        ("missing", "", "--certificate .*missing: No such file"),
        ("missing", "key", "--certificate .*missing: No such file"),
        ("cert", "missing", "--private-key .*missing: No such file"),
        ("", "key", "without --certificate it protects nothing"),
        (".", "", "--certificate .*: Is a directory"),
        ("text", "", "must be a certificate in PEM"),
        ("cert", "", "in the same file"),
        ("cert", "other", "--private-key .*other .KEY_VALUES_MISMATCH"),
        ("cert", "locked", "without a password in --private-key"),
    ],
)
def test_files_that_cannot_serve_are_named_before_anything_listens(pem, certificate, key, text):
    """A key without its certificate would be a console without TLS."""
    named = {"--certificate": certificate, "--private-key": key}
    words = [each for option, name in named.items() if name for each in (option, str(pem / name))]
    with pytest.raises(CommandError, match=text):
        tls_files(parsed(*words))
