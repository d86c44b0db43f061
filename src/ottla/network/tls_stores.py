"""The key stores and trust stores of TLS, in each of the formats that Kafka takes."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla.config.config_type import Password
from ottla.config.ssl_config import PKCS12, SslSettings
from ottla.errors import ConfigError
from ottla.runtime.regular_file import read_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    from ottla.security.certificate import Certificate


_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_PEM_BEGIN: Final = b"-----BEGIN "
_PEM: Final = r"(?s)-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----"


def load_key(context: ssl.SSLContext, settings: SslSettings) -> bool:
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


def certificate_of(settings: SslSettings) -> Certificate | None:
    """The certificate of the key store, without its chain; None where there is no key store."""
    from ottla.security.certificate import Certificate

    location, chain = settings.ssl_keystore_location, settings.ssl_keystore_certificate_chain
    if chain is not None:
        what, text = "ssl.keystore.certificate.chain", _lines(chain)
    elif location is None:
        return None
    else:
        what = f"ssl.keystore.location={location}"
        if settings.ssl_keystore_type == PKCS12:
            password = settings.ssl_keystore_password
            text = _key_of(what, _open_pkcs12(what, "ssl.keystore", location, password))
        else:
            text = _lines(Password(_read(what, location).decode("latin-1")))
    pem = next((match[0] for match in re.finditer(_PEM, text) if match[1] == "CERTIFICATE"), "")
    try:
        return Certificate.parse(ssl.PEM_cert_to_DER_cert(pem))
    except ValueError as error:
        raise ConfigError(f"{what}: {error}") from None


def load_trusted(context: ssl.SSLContext, settings: SslSettings, purpose: ssl.Purpose) -> None:
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


def _require_pem(what: str, type_key: str, location: str) -> None:
    data = _read(what, location)
    if data.startswith(_JKS_MAGIC):
        raise ConfigError(f"{what}: is a Java key store, which cannot be read; give a PEM file")
    if _PEM_BEGIN not in data:
        raise ConfigError(f"{what}: must be a PEM file; of PKCS#12, set {type_key}=PKCS12")


def _read(what: str, location: str) -> bytes:
    try:
        return read_regular(location)
    except (OSError, ValueError) as error:  # a name may hold a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{what}: {reason}") from None


def _lines(pem: Password) -> str:
    """PEM as OpenSSL wants it: a properties file may have made one long line of it."""

    def block(match: re.Match[str]) -> str:
        body = "".join(match[2].split())
        rows = [body[start : start + 64] for start in range(0, len(body), 64)]
        return "\n".join([f"-----BEGIN {match[1]}-----", *rows, f"-----END {match[1]}-----", ""])

    return "".join(block(match) for match in re.finditer(_PEM, pem.value))


@contextmanager
def _private_file(text: str) -> Iterator[str]:
    if not hasattr(os, "memfd_create"):
        from tempfile import NamedTemporaryFile

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
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

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
