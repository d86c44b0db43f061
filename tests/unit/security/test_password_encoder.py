"""Passwords in the registry: encrypted as Kafka encrypts them."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError
from ottla.security.password_encoder import PasswordEncoder

OF_JAVA = {
    "sesäme": "passwordLength:6,iterations:1024,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,"
    "salt:MOLGbJNuxTi5z+rBoZ5ZI+kriOSf+I1DxWEZI38NIVk=,"
    "initializationVector:LWag1B10ckzZmKSHcppjyw==,encryptedPassword:GUewpwalRQLYOfNkv9pzYQ==,"
    "cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128",
    "open sesame 1234": "passwordLength:16,iterations:1024,keyFactoryAlgorithm:PBKDF2WithHmacSHA1,"
    "salt:sMnT+F1S1xSFDH40TIdOZJiR58gQtIyZfuGUKRgzTbM=,"
    "initializationVector:0QC3hBI5614wrD2q1B9aEw==,"
    "encryptedPassword:f1ssO5NwLc9MFWDUviHFRHjpWGSnp07p/2PCaIdsi18=,"
    "cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:256",
    "\U0001f600,:=": "passwordLength:5,iterations:1024,keyFactoryAlgorithm:PBKDF2WithHmacSHA256,"
    "salt:ZM+9/CF55Rdj+4n+JEF7+T6PGzyYeHXUmcgcTyy/4LI=,authenticationTagLength:128,"
    "initializationVector:ZuuPu+7tssUCm0gA,encryptedPassword:ITGUHe66Pk/x7F5WL/tibwQg8lTHe5Q=,"
    "cipherAlgorithm:AES/GCM/NoPadding,keyLength:128",
}
"""Made by Java 17, with the parameters that Kafka's encoder gives its ciphers."""


def encoder(**settings: object) -> PasswordEncoder:
    return PasswordEncoder(BrokerConfig(**{"password_encoder_secret": "SECRET"} | settings))


@pytest.mark.parametrize("password", OF_JAVA)
def test_what_java_has_encrypted_is_read(password):
    """Ciphers and key lengths are those that it was encrypted with, not those of the settings."""
    assert encoder().decode(OF_JAVA[password]) == password


@pytest.mark.parametrize("password", ["", "sesame", "sixteen letters.", "日本\U0001f600,:"])
@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"])
@pytest.mark.parametrize("bits", [128, 256])
def test_passwords_come_back(password, cipher, bits):
    """Two times encrypted they look different, and neither shows the password."""
    one = encoder(
        password_encoder_cipher_algorithm=cipher,
        password_encoder_key_length=bits,
        password_encoder_keyfactory_algorithm="PBKDF2WithHmacSHA256",
        password_encoder_iterations=1024,
    )
    first, second = one.encode(password), one.encode(password)

    assert first != second
    assert encoder().decode(first) == encoder().decode(second) == password
    assert not password or password not in first


def test_the_secret_from_before_is_tried_too():
    """The secret itself can be changed."""
    encoded = encoder().encode("sesame")
    changed = encoder(password_encoder_secret="OTHER", password_encoder_old_secret="SECRET")

    assert changed.decode(encoded) == "sesame"
    with pytest.raises(ConfigError, match=r"cannot be decoded with password\.encoder\.secret"):
        encoder(password_encoder_secret="OTHER").decode(encoded)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("encryptedPassword:GUewpwalRQLYOfNkv9pzYQ==", "encryptedPassword:"),
        ("encryptedPassword:GUewpwalRQLYOfNkv9pzYQ==", "x:y"),
        ("passwordLength:6", "passwordLength:7"),
        ("keyLength:128", "keyLength:99"),
        ("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding"),
        ("PBKDF2WithHmacSHA512", "MD5"),
        ("iterations:1024", "iterations:x"),
    ],
)
def test_what_is_no_encoded_password_is_refused(part, other):
    """Whoever wrote the registry; the value is not shown."""
    (whole, *_) = OF_JAVA.values()
    for text in (whole.replace(part, other), "sesame", ""):
        with pytest.raises(ConfigError, match="cannot be decoded") as caught:
            encoder().decode(text)
        assert not text or text not in caught.value.message
