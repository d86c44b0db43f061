"""From ssl.* settings to contexts of OpenSSL; ConfigError where keys or certificates do not fit.

Files are read once, when a broker or a client starts. Keys that are given as text reach OpenSSL,
which reads files only, through a file in memory, so that they are never on a disk. Where a system
has no such files, it is one that only this user can read, and that goes once OpenSSL has read it.

Wing: attaches to `transport`, for TLS listeners; the core works without it.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final

from ottla.config.client_config import ClientConfig
from ottla.config.config_type import Password
from ottla.config.listener_config import ListenerSslSettings
from ottla.config.ssl_config import HTTPS, PKCS12, TLS_1_2, TLS_1_3, SslSettings, ssl_settings
from ottla.errors import ConfigError
from ottla.security.certificate import Certificate
from ottla.security.principal import ANONYMOUS, KafkaPrincipal, SslPrincipalMapper

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
TLS_1_3_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_PEM_BEGIN: Final = b"-----BEGIN "
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class ListenerTls:
    """TLS of one listener: what handshakes are done with, and how clients are named after them."""

    def __init__(self, settings: ListenerSslSettings) -> None:
        self._mapper = SslPrincipalMapper(settings.ssl_principal_mapping_rules)
        self.context = server_context(settings)

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """The principal of a client that has shown this certificate, in DER, or none.

        Raises:
            NoMatchingRuleError: no mapping rule matches the name in it.
            ValueError: it cannot be read.
        """
        if certificate is None:
            return ANONYMOUS
        return KafkaPrincipal.user(self._mapper.name_of(Certificate.parse(certificate).subject))


def server_context(settings: ListenerSslSettings) -> ssl.SSLContext:
    """For a listener: it needs a key; a trust store only where it asks for certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, settings)
    if not _load_key(context, settings):
        raise ConfigError(
            "ssl.keystore.location: must be set for a listener of the protocol SSL, or "
            "ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    context.verify_mode = CLIENT_AUTH[settings.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trusted(context, settings, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: SslSettings) -> ssl.SSLContext:
    """For a client: the peer must be trusted; a key is for brokers that ask for one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings)
    context.check_hostname = settings.ssl_endpoint_identification_algorithm.lower() == HTTPS
    _load_key(context, settings)
    _load_trusted(context, settings, ssl.Purpose.SERVER_AUTH)
    return context


def client_tls(config: ClientConfig) -> ssl.SSLContext | None:
    """What a client connects with; None where security.protocol is PLAINTEXT."""
    return client_context(ssl_settings(config)) if config.security_protocol == "SSL" else None


def _restrict(context: ssl.SSLContext, settings: SslSettings) -> None:
    """Versions and cipher suites; renegotiation would let one side keep the other busy."""
    context.options |= ssl.OP_NO_RENEGOTIATION
    versions = [VERSIONS[name] for name in settings.ssl_enabled_protocols]
    suites = settings.ssl_cipher_suites
    if suites:
        if not TLS_1_3_SUITES.intersection(suites):
            versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_3]
        elif set(suites) <= TLS_1_3_SUITES:
            versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_2]
        _choose_suites(context, suites, versions)
    if not versions:
        raise ConfigError(
            f"ssl.cipher.suites={','.join(suites)}: must have one for a version of "
            f"ssl.enabled.protocols, {','.join(settings.ssl_enabled_protocols)}"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _choose_suites(
    context: ssl.SSLContext, suites: tuple[str, ...], versions: list[ssl.TLSVersion]
) -> None:
    missing = TLS_1_3_SUITES.difference(suites)
    if ssl.TLSVersion.TLSv1_3 in versions and missing:
        raise ConfigError(
            f"ssl.cipher.suites={','.join(suites)}: must name all suites of TLSv1.3 or none, as "
            f"Python cannot choose among them; {', '.join(sorted(missing))} is missing"
        )
    older = [suite for suite in suites if suite not in TLS_1_3_SUITES]
    for suite in older:
        try:
            context.set_ciphers(openssl_name(suite))
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites={suite}: must be a suite that OpenSSL offers"
            ) from None
    if older:
        context.set_ciphers(":".join(map(openssl_name, older)))


def openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256 there."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, rest = suite.removeprefix("TLS_").partition("_WITH_")
    rest = re.sub(r"AES_(\d+)", r"AES\1", rest).replace("_CBC", "")
    rest = rest.replace("POLY1305_SHA256", "POLY1305")
    prefix = "" if exchange == "RSA" else f"{exchange}-"
    return (prefix + rest).replace("_", "-")


# The key store


def _load_key(context: ssl.SSLContext, settings: SslSettings) -> bool:
    """Whether there is one."""
    location, password = settings.ssl_keystore_location, settings.ssl_key_password
    if settings.ssl_keystore_key is not None and settings.ssl_keystore_certificate_chain:
        pem = (
            f"{_lines(settings.ssl_keystore_key)}{_lines(settings.ssl_keystore_certificate_chain)}"
        )
        with _private_file(pem) as path:
            _load_chain(context, path, password, "ssl.keystore.key")
        return True
    if location is None:
        return False
    key = f"ssl.keystore.location={location}"
    if settings.ssl_keystore_type == PKCS12:
        store = _open_pkcs12(key, "ssl.keystore", location, settings.ssl_keystore_password)
        with _private_file(_key_of(key, store)) as path:
            _load_chain(context, path, None, key)
        return True
    _require_pem(key, "ssl.keystore.type", location)
    _load_chain(context, location, password, key)
    return True


def _load_chain(context: ssl.SSLContext, path: str, password: Password | None, what: str) -> None:
    secret = password.value if password is not None else ""
    try:
        # A function, also where there is no password: OpenSSL would ask the terminal for one.
        context.load_cert_chain(path, password=lambda: secret)
    except ssl.SSLError as error:
        reason = error.reason or error
        if "KEY_VALUES_MISMATCH" in str(reason):
            raise ConfigError(f"{what}: the private key is not that of the certificate") from None
        hint = "the password of the key, ssl.key.password, is missing" if not secret else ""
        raise ConfigError(
            f"{what}: must hold a private key and its certificate ({reason})"
            f"{' or ' * bool(hint)}{hint}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{what}: {error.strerror or error}") from None


# The trust store


def _load_trusted(context: ssl.SSLContext, settings: SslSettings, purpose: ssl.Purpose) -> None:
    location = settings.ssl_truststore_location
    if settings.ssl_truststore_certificates is not None:
        text = _lines(settings.ssl_truststore_certificates)
        _load(lambda: context.load_verify_locations(cadata=text), "ssl.truststore.certificates")
    elif location is None:
        context.load_default_certs(purpose)
    elif settings.ssl_truststore_type == PKCS12:
        key = f"ssl.truststore.location={location}"
        store = _open_pkcs12(key, "ssl.truststore", location, settings.ssl_truststore_password)
        text = _trusted_by(key, store)
        _load(lambda: context.load_verify_locations(cadata=text), key)
    else:
        key = f"ssl.truststore.location={location}"
        _require_pem(key, "ssl.truststore.type", location)
        _load(lambda: context.load_verify_locations(cafile=location), key)


def _load(load: Callable[[], object], what: str) -> None:
    try:
        load()
    except ssl.SSLError as error:
        raise ConfigError(f"{what}: must hold certificates ({error.reason or error})") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what}: must hold certificates ({error})") from None


# Formats


def _require_pem(what: str, type_key: str, location: str) -> None:
    data = _read(what, location)
    if data.startswith(_JKS_MAGIC):
        raise ConfigError(f"{what}: is a Java key store, which cannot be read; give a PEM file")
    if _PEM_BEGIN not in data:
        raise ConfigError(f"{what}: must be a PEM file; of PKCS#12, set {type_key}=PKCS12")


def _read(what: str, location: str) -> bytes:
    try:
        with open(location, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{what}: {error.strerror}") from None


def _lines(pem: Password) -> str:
    """PEM as OpenSSL wants it: a properties file may have made one long line of it."""

    def block(match: re.Match[str]) -> str:
        body = "".join(match[2].split())
        rows = [body[start : start + 64] for start in range(0, len(body), 64)]
        return "\n".join([f"-----BEGIN {match[1]}-----", *rows, f"-----END {match[1]}-----", ""])

    return "".join(block(match) for match in _PEM.finditer(pem.value))


@contextmanager
def _private_file(text: str) -> Iterator[str]:
    if not hasattr(os, "memfd_create"):
        with NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name
        return
    fd = os.memfd_create("pem")
    try:
        os.write(fd, text.encode())
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _open_pkcs12(
    what: str, store: str, location: str, password: Password | None
) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            f"{store}.type=PKCS12: needs the package cryptography, pip install ottla[pkcs12]; "
            "PEM needs nothing"
        ) from None
    secret = password.value.encode() if password is not None else None
    try:
        return pkcs12.load_pkcs12(_read(what, location), secret)
    except ValueError as error:
        raise ConfigError(f"{what}: cannot be opened with {store}.password ({error})") from None


def _key_of(what: str, store: PKCS12KeyAndCertificates) -> str:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    if store.key is None or store.cert is None:
        raise ConfigError(f"{what}: must hold a private key and its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [store.cert, *store.additional_certs]
    return (key + b"".join(_certificate(each) for each in chain)).decode()


def _trusted_by(what: str, store: PKCS12KeyAndCertificates) -> str:
    if not store.additional_certs:
        raise ConfigError(f"{what}: must hold certificates")
    return b"".join(map(_certificate, store.additional_certs)).decode()


def _certificate(entry: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    data: bytes = entry.certificate.public_bytes(Encoding.PEM)
    return data
