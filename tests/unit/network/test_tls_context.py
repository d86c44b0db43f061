"""What OpenSSL is told, and how keys and certificates that do not fit are refused."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificates
from tls_world import agree

from ottla.config.ssl_config import ListenerSslSettings, SslSettings
from ottla.errors import ConfigError
from ottla.network.tls_context import (
    FollowedTls,
    client_context,
    client_stores,
    openssl_name,
    server_context,
)

SUITES_OF_1_3 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
SUITE_OF_1_2 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
PASSWORD = "SESAME"


def listener(certificates, **settings):
    given = {"ssl_keystore_location": certificates.server} | settings
    return server_context(ListenerSslSettings.parse(**given))


def parts_of(path: str):
    """The private key and the certificates of a PEM file."""
    data = Path(path).read_bytes()
    return serialization.load_pem_private_key(data, None), load_pem_x509_certificates(data)


def trusting(certificates, **settings) -> ssl.SSLContext:
    return client_context(
        SslSettings.parse(**{"ssl_truststore_location": certificates.ca} | settings)
    )


@pytest.mark.parametrize("has_files_in_memory", [True, False])
def test_inline_pem_does_as_well_as_files(
    certificates, has_files_in_memory, monkeypatch, tmp_path: Path
) -> None:
    """On one line, as a properties file gives it; nothing of it is left on a disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not has_files_in_memory:
        monkeypatch.delattr(os, "memfd_create")
    text = Path(certificates.server).read_text()
    begin = text.index("-----BEGIN CERTIFICATE")
    server = server_context(
        ListenerSslSettings.parse(
            ssl_keystore_key=text[:begin].replace("\n", " "),
            ssl_keystore_certificate_chain=text[begin:].replace("\n", " "),
        )
    )
    trusted = Path(certificates.ca).read_text().replace("\n", " ")
    client = client_context(SslSettings.parse(ssl_truststore_certificates=trusted))

    assert agree(server, client)[0].version() == "TLSv1.3"
    assert not list(tmp_path.iterdir())


def test_encrypted_key_is_opened_with_its_password(certificates, tmp_path: Path) -> None:
    """Without it, or with another, the error says what is missing, and nobody is asked for it."""
    key, chain = parts_of(certificates.server)
    path = tmp_path / "encrypted.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
        + b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    )

    server = listener(certificates, ssl_keystore_location=str(path), ssl_key_password=PASSWORD)
    assert agree(server, trusting(certificates))[0].version() == "TLSv1.3"
    with pytest.raises(ConfigError, match=r"encrypted\.pem: .* ssl\.key\.password, is missing"):
        listener(certificates, ssl_keystore_location=str(path))
    with pytest.raises(ConfigError, match=r"encrypted\.pem: must hold a private key"):
        listener(certificates, ssl_keystore_location=str(path), ssl_key_password="wrong")


def test_key_without_a_password_is_read_whatever_the_password_is(certificates) -> None:
    """So a new file can take the place of one with a password while the broker runs."""
    server = listener(certificates, ssl_key_password=PASSWORD)

    assert agree(server, trusting(certificates))[0].version() == "TLSv1.3"


def test_pkcs12_stores_are_read(certificates, tmp_path: Path) -> None:
    """One with a key, and one with those who are trusted; a wrong password is told."""
    key, (certificate, *chain) = parts_of(certificates.server)
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    keys, trusted = tmp_path / "keys.p12", tmp_path / "trusted.p12"
    keys.write_bytes(
        pkcs12.serialize_key_and_certificates(b"server", key, certificate, chain, encryption)
    )
    cas = load_pem_x509_certificates(Path(certificates.ca).read_bytes())
    trusted.write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(each, b"ca") for each in cas], encryption
        )
    )
    settings = {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": str(keys)}

    server = listener(certificates, **settings, ssl_keystore_password=PASSWORD)
    client = client_context(
        SslSettings.parse(
            ssl_truststore_type="PKCS12",
            ssl_truststore_location=str(trusted),
            ssl_truststore_password=PASSWORD,
        )
    )
    assert agree(server, client)[0].version() == "TLSv1.3"
    with pytest.raises(ConfigError, match=r"keys\.p12: cannot be opened with ssl\.keystore\.pass"):
        listener(certificates, **settings, ssl_keystore_password="wrong")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", "is a Java key store"),
        (b"\x30\x82\x0a\x00", r"must be a PEM file; of PKCS#12, set ssl\.keystore\.type=PKCS12"),
        (b"-----BEGIN RUBBISH-----\n", "must hold a private key and its certificate"),
    ],
)
def test_file_that_holds_something_else_is_refused(certificates, tmp_path, content, reason) -> None:
    """With the key, the file and the way out."""
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"ssl\.keystore\.location={path}: {reason}"):
        listener(certificates, ssl_keystore_location=str(path))


def test_missing_files_and_foreign_keys_are_told(certificates, tmp_path: Path) -> None:
    """Each with the setting that names it."""
    _, chain = parts_of(certificates.server)
    other, _ = parts_of(certificates.other)
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(
        other.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + chain[0].public_bytes(serialization.Encoding.PEM)
    )
    with pytest.raises(ConfigError, match="private key is not that of the certificate"):
        listener(certificates, ssl_keystore_location=str(mixed))
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location=/no/such: No such file"):
        listener(certificates, ssl_keystore_location="/no/such")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location=/no/such: No such file"):
        trusting(certificates, ssl_truststore_location="/no/such")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.certificates: must hold"):
        client_context(SslSettings.parse(ssl_truststore_certificates="nothing"))
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location: must be set"):
        server_context(ListenerSslSettings())


@pytest.mark.parametrize(
    ("settings", "version", "cipher"),
    [
        ({}, "TLSv1.3", None),
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1.2", None),
        ({"ssl_cipher_suites": SUITES_OF_1_3}, "TLSv1.3", None),
        (
            {"ssl_cipher_suites": SUITE_OF_1_2},
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
        ({"ssl_cipher_suites": f"{SUITES_OF_1_3},{SUITE_OF_1_2}"}, "TLSv1.3", None),
    ],
)
def test_only_what_is_enabled_is_negotiated(certificates, settings, version, cipher) -> None:
    """A version without one of the named suites is not used, so that nothing else slips in."""
    client, _ = agree(listener(certificates, **settings), trusting(certificates))

    assert client.version() == version
    assert cipher in (None, client.cipher()[0])


@pytest.mark.parametrize(
    ("suites", "reason"),
    [
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256 is miss"),
        ("TLS_RSA_WITH_ROT13", "must be a suite that OpenSSL offers"),
    ],
)
def test_suites_that_cannot_be_had_are_refused(certificates, suites, reason) -> None:
    """Rather than to negotiate others."""
    with pytest.raises(ConfigError, match=f"ssl.cipher.suites={suites}.*{reason}"):
        listener(certificates, ssl_cipher_suites=suites)


def test_suite_of_a_version_that_is_not_enabled_is_refused(certificates) -> None:
    """Nothing could be negotiated."""
    with pytest.raises(
        ConfigError, match=r"one for a version of ssl\.enabled\.protocols, TLSv1\.3"
    ):
        listener(certificates, ssl_cipher_suites=SUITE_OF_1_2, ssl_enabled_protocols="TLSv1.3")


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_suites_are_translated(suite: str, name: str) -> None:
    """Kafka has those of IANA; OpenSSL, in names of its own, has the same suites."""
    assert openssl_name(suite) == name
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)


def test_host_of_the_certificate_is_checked_unless_told_not_to(certificates) -> None:
    """The algorithm https, which Kafka has by default; empty for none."""
    server = listener(certificates, ssl_keystore_location=certificates.elsewhere)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        agree(server, trusting(certificates))

    unchecked = trusting(certificates, ssl_endpoint_identification_algorithm="")
    assert agree(server, unchecked)[0].version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("client_auth", "key", "is_accepted"),
    [
        ("none", None, True),
        ("requested", None, True),
        ("requested", "client", True),
        ("requested", "other", False),
        ("required", "client", True),
        ("required", None, False),
        ("required", "other", False),
    ],
)
def test_clients_are_asked_for_certificates(certificates, client_auth, key, is_accepted) -> None:
    """One that is shown must be trusted; required means that one must be shown."""
    server = listener(
        certificates, ssl_client_auth=client_auth, ssl_truststore_location=certificates.ca
    )
    own = {} if key is None else {"ssl_keystore_location": getattr(certificates, key)}
    client = trusting(certificates, **own)
    if is_accepted:
        assert agree(server, client)[1].version() == "TLSv1.3"
    else:
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
            agree(server, client)


@pytest.mark.parametrize("key", ["ssl.keystore.location", "ssl.truststore.location"])
@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "a\0b"])
def test_store_is_a_file_that_is_there_at_once(tmp_path, key, kind, name):
    """Settings that change while a broker runs are tried on its loop, which serves all clients."""
    os.mkfifo(tmp_path / "pipe")
    location = str(tmp_path / name)
    settings = {key: location, key.replace("location", "type"): kind}

    with pytest.raises(ConfigError) as caught:
        FollowedTls("test", SslSettings.parse(settings), client_stores)

    assert caught.value.message.startswith(f"{key}={location}: ")
