"""Passwords as the registry keeps them: encrypted, in Kafka's form (KIP-226).

    passwordLength:6,iterations:4096,keyLength:128,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,
    cipherAlgorithm:AES/CBC/PKCS5Padding,salt:...,initializationVector:...,encryptedPassword:...

A key is derived from `password.encoder.secret` and the salt. Passwords written by Kafka's tools are
read here, and the other way round.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC, GCM

    from ottla.config.ssl_config import PasswordEncoderConfig

SECRET: Final = "password.encoder.secret"
SALT_BYTES: Final = 256
BLOCK_BYTES: Final = 16
GCM_IV_BYTES: Final = 12
GCM_TAG_BITS: Final = 128
_KEY_FACTORY: Final = r"PBKDF2WithHmacSHA(1|224|256|384|512)"
_CIPHER: Final = r"AES/(CBC|GCM)/(PKCS5Padding|NoPadding)"


class PasswordEncoder:
    """Encrypts with the secret, and decrypts with that, or else with the secret from before."""

    def __init__(self, config: PasswordEncoderConfig) -> None:
        assert config.password_encoder_secret is not None, "there is a secret to encode with"
        old = config.password_encoder_old_secret
        self._secret = config.password_encoder_secret.value
        self._secrets = [self._secret, *([old.value] if old is not None else [])]
        self._parameters = {
            "keyFactoryAlgorithm": config.password_encoder_keyfactory_algorithm,
            "cipherAlgorithm": config.password_encoder_cipher_algorithm,
            "keyLength": str(config.password_encoder_key_length),
            "iterations": str(config.password_encoder_iterations),
        }
        _require_cryptography()

    def encode(self, password: str) -> str:
        """The form that is stored; another one each time."""
        is_gcm = "/GCM/" in self._parameters["cipherAlgorithm"]
        vector = os.urandom(GCM_IV_BYTES if is_gcm else BLOCK_BYTES)
        salt = os.urandom(SALT_BYTES)
        values = self._parameters | {
            "salt": _text(salt),
            "initializationVector": _text(vector),
            "passwordLength": str(_java_length(password)),
        }
        if is_gcm:
            values["authenticationTagLength"] = str(GCM_TAG_BITS)
        data = password.encode()
        if not is_gcm:
            padding = BLOCK_BYTES - len(data) % BLOCK_BYTES
            data += bytes([padding]) * padding
        cipher = _cipher(self._secret, values)
        encryptor = cipher.encryptor()
        encrypted = encryptor.update(data) + encryptor.finalize()
        if is_gcm:
            encrypted += encryptor.tag  # type: ignore[attr-defined]  # of this mode only
        values["encryptedPassword"] = _text(encrypted)
        return ",".join(f"{key}:{value}" for key, value in values.items())

    def decode(self, encoded: str) -> str:
        """The password.

        Raises:
            ConfigError: it was encoded with another secret, or is not an encoded password.
        """
        for secret in self._secrets:
            try:
                return _decode(secret, encoded)
            except (ValueError, KeyError):
                continue
        raise ConfigError(f"the password cannot be decoded with {SECRET}")


def _decode(secret: str, encoded: str) -> str:
    from cryptography.exceptions import InvalidTag

    values = dict(pair.split(":", 1) for pair in encoded.split(","))
    data = base64.b64decode(values["encryptedPassword"])
    is_gcm = "/GCM/" in values["cipherAlgorithm"]
    tag = b""
    if is_gcm:
        tag, data = data[-GCM_TAG_BITS // 8 :], data[: -GCM_TAG_BITS // 8]
    decryptor = _cipher(secret, values, tag).decryptor()
    try:
        plain = decryptor.update(data) + decryptor.finalize()
    except InvalidTag:
        raise ValueError("another secret") from None
    if not is_gcm:
        padding = plain[-1] if plain else 0
        if not 0 < padding <= BLOCK_BYTES or plain[-padding:] != bytes([padding]) * padding:
            raise ValueError("another secret")
        plain = plain[:-padding]
    password = plain.decode()
    if _java_length(password) != int(values["passwordLength"]):
        raise ValueError("another secret")
    return password


def _cipher(secret: str, values: Mapping[str, str], tag: bytes = b"") -> Cipher[CBC | GCM]:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC, GCM

    factory = re.fullmatch(_KEY_FACTORY, values["keyFactoryAlgorithm"])
    kind = re.fullmatch(_CIPHER, values["cipherAlgorithm"])
    if factory is None or kind is None:
        raise ValueError("an algorithm that is not known")
    from hashlib import pbkdf2_hmac

    key = pbkdf2_hmac(
        f"sha{factory[1]}",
        secret.encode(),
        base64.b64decode(values["salt"]),
        int(values["iterations"]),
        int(values["keyLength"]) // 8,
    )
    vector = base64.b64decode(values["initializationVector"])
    mode = CBC(vector) if kind[1] == "CBC" else GCM(vector, tag or None)
    return Cipher(AES(key), mode)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _java_length(text: str) -> int:
    """The length in UTF-16, as Java counts."""
    return len(text.encode("utf-16-le")) // 2


def _require_cryptography() -> None:
    try:
        import cryptography
    except ImportError:
        raise ConfigError(
            f"{SECRET}: needs the package cryptography, pip install ottla[pkcs12]"
        ) from None
    del cryptography
