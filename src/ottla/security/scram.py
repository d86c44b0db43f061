"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): a password that is proved, not sent.

A broker keeps of a password only the keys that check a proof. It makes a new nonce for each
exchange, and the last message must carry the whole of it (CVE-2024-56128). The exchange with an
unknown user goes as far as that with a known one, with a salt made from the name, and fails in the
same words.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from secrets import token_bytes, token_urlsafe
from typing import Final, Self

from ottla.config.jaas import SCRAM_SHA_256, SCRAM_SHA_512
from ottla.errors import SaslAuthenticationError
from ottla.security.principal import KafkaPrincipal
from ottla.security.sasl import SaslClient, SaslError, SaslServer
from ottla.structs import NamedTuple

HASHES: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
MECHANISM_NUMBERS: Final = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""As requests name them (KIP-554)."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""The iterations that a tool may ask for (KIP-554); a login takes the stored ones."""
MAX_CLIENT_ITERATIONS: Final = 1_000_000
"""A broker that asks for more would keep its client busy for a second and longer."""
MAX_MESSAGE_BYTES: Final = 8 * 1024
SALT_BYTES: Final = 24
NONCE_BYTES: Final = 24

_NAME: Final = r"(?:[^=,\0]|=2C|=3D)+"
_CLIENT_FIRST: Final = (
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[!-+\--~]+)(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_CLIENT_FINAL: Final = (
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]+=[^,\0]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SERVER_FIRST: Final = (
    r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>\d{1,9})(?:,.*)?"
)
_CREDENTIAL_KEYS: Final = ("salt", "stored_key", "server_key", "iterations")


class ScramCredential(NamedTuple):
    """The credential kept of a password; nobody can log in with it, but guesses can be checked."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the form that Kafka stores: `salt=..,stored_key=..,server_key=..,iterations=..`.

        Raises:
            ValueError: it is something else. The text is not shown.
        """
        values = dict(part.partition("=")[::2] for part in text.split(","))
        if len(text.split(",")) != len(_CREDENTIAL_KEYS) or set(values) != set(_CREDENTIAL_KEYS):
            raise ValueError("a SCRAM credential has salt, stored_key, server_key and iterations")
        try:
            salt, stored, server = (
                b64decode(values[key], validate=True) for key in _CREDENTIAL_KEYS[:3]
            )
        except Base64Error:
            raise ValueError("a key of a SCRAM credential is not base64") from None
        if not values["iterations"].isdecimal() or not (salt and stored and server):
            raise ValueError("a SCRAM credential has an empty key, or no number of iterations")
        return cls(salt, stored, server, int(values["iterations"]))

    def format(self) -> str:
        """The form that Kafka stores."""
        keys = (b64encode(key).decode() for key in self[:3])
        texts = (*keys, str(self.iterations))
        return ",".join(f"{key}={text}" for key, text in zip(_CREDENTIAL_KEYS, texts, strict=True))

    @classmethod
    def of_salted(
        cls, mechanism: str, salted_password: bytes, salt: bytes, iterations: int
    ) -> Self:
        """The credential of a password that was salted already, as AlterUserScramCredentials has
        it."""
        client_key = _hmac(mechanism, salted_password, b"Client Key")
        server_key = _hmac(mechanism, salted_password, b"Server Key")
        return cls(salt, _hash(mechanism, client_key), server_key, iterations)

    @classmethod
    def of_password(
        cls,
        mechanism: str,
        password: str,
        iterations: int = MIN_ITERATIONS,
        salt: bytes | None = None,
    ) -> Self:
        """The credential of a password; takes some milliseconds."""
        salt = new_salt() if salt is None else salt
        salted = salted_password(mechanism, password, salt, iterations)
        return cls.of_salted(mechanism, salted, salt, iterations)


class TokenLogin(NamedTuple):
    """The credential of a delegation token, and the principal that the client gets by it."""

    credential: ScramCredential
    owner: KafkaPrincipal
    expires_ms: int
    """When the token ends, and the session with it."""


FindToken = Callable[[str, str], TokenLogin | None]
"""The login of a token by mechanism and id; None where it cannot be used."""


def no_tokens(mechanism: str, token_id: str) -> TokenLogin | None:
    """Behave as where delegation tokens are off."""
    return None


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2: the only step that takes time."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def _hash(mechanism: str, data: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], data).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


def new_salt() -> bytes:
    return token_bytes(SALT_BYTES)


def new_nonce() -> str:
    return token_urlsafe(NONCE_BYTES)


_SALT_KEY: Final = token_bytes(32)
"""Makes the salts of users that are not there, where there are no users at all."""
DECOY_MODELS: Final = 16


class UserCredentials:
    """The SCRAM credentials of one mechanism, read from the users' settings as they are now.

    `settings` has those of a user, `names` all users that have any, and `change_count` tells when
    these have changed.
    """

    def __init__(
        self,
        mechanism: str,
        settings: Callable[[str], Mapping[str, str]],
        names: Callable[[], Iterable[str]] = tuple,
        change_count: Callable[[], int] | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._settings = settings
        self._names = names
        self._change_count = change_count
        self._models: list[ScramCredential] = []
        self._models_of: int | None = None

    def of(self, name: str) -> ScramCredential | None:
        """The credential of a user; None where it has none."""
        text = self._settings(name).get(self._mechanism)
        if text is None:
            return None
        try:
            return ScramCredential.parse(text)
        except ValueError as error:
            raise SaslError(f"{self._mechanism} of user {name!r}: {error}") from None

    def decoy_of(self, name: str) -> ScramCredential:
        """The credential shown for an unknown user before its proof: one like those of known users.

        It is made with a key that all brokers of the cluster share and keep over a restart, the
        credential of the first of the users: a client cannot tell which names exist.
        """
        known = self._known_models()
        if not known:
            salt = _hmac(self._mechanism, _SALT_KEY, name.encode())[:SALT_BYTES]
            return ScramCredential(salt, b"", b"", MIN_ITERATIONS)
        key = known[0].stored_key + known[0].server_key
        digest = _hmac(self._mechanism, key, name.encode())
        like = known[digest[-1] % len(known)]
        return ScramCredential(digest[: len(like.salt)], b"", b"", like.iterations)

    def _known_models(self) -> list[ScramCredential]:
        """The credentials of the first users.

        They are looked for once after each change: a look at all users takes time, by which names
        that are not there could be told, and many connections could hold the broker.
        """
        count = None if self._change_count is None else self._change_count()
        if count is None or count != self._models_of:
            users = (each for each in self._names() if self._mechanism in self._settings(each))
            found = map(self._model, nsmallest(DECOY_MODELS, users))
            self._models, self._models_of = list(filter(None, found)), count
        return self._models

    def _model(self, name: str) -> ScramCredential | None:
        try:
            return self.of(name)
        except SaslError:
            return None


class ScramServer(SaslServer):
    """One exchange: the name and a nonce, then the proof; `users` have the keys that check it.

    A client says by the extension `tokenauth=true` that the name is the id of a delegation token.
    Some clients (librdkafka, kafka-python) cannot say so: a name that no user has may be one, too.
    """

    max_token_bytes = MAX_MESSAGE_BYTES

    def __init__(
        self,
        mechanism: str,
        users: UserCredentials,
        nonce: Callable[[], str] = new_nonce,
        find_token: FindToken = no_tokens,
    ) -> None:
        self._mechanism = mechanism
        self._users = users
        self._new_nonce = nonce
        self._find_token = find_token
        self._is_token = False
        self._nonce = ""
        self._name = ""
        self._header = ""
        self._begun = ""  # the first messages of both sides
        self._credential: ScramCredential | None = None

    def evaluate(self, token: bytes) -> bytes:
        if self.is_complete:
            raise SaslError("a token after the last")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise SaslError("a message of SCRAM is not UTF-8") from None
        return (self._check(text) if self._nonce else self._begin(text)).encode()

    def _begin(self, text: str) -> str:
        match = re.fullmatch(_CLIENT_FIRST, text)
        if match is None:
            raise SaslError("the first message of SCRAM is malformed")
        self._name = _decode_name(match["name"])
        if match["authzid"] not in (None, match["name"]):
            raise SaslError("Client requested an authorization id that is different from username")
        extensions = dict(part.split("=", 1) for part in match["extensions"].split(",")[1:])
        self._credential = self._find(self._name, extensions)
        self._header = match["header"]
        self._nonce = match["nonce"] + self._new_nonce()
        shown = self._credential or self._users.decoy_of(self._name)
        answer = f"r={self._nonce},s={b64encode(shown.salt).decode()},i={shown.iterations}"
        self._begun = f"{match['bare']},{answer}"
        return answer

    def _find(self, name: str, extensions: dict[str, str]) -> ScramCredential | None:
        """The credential that the proof is checked with; None refuses every proof."""
        if extensions.get("tokenauth", "").lower() != "true":
            credential = self._users.of(name)
            if credential is not None:
                return credential
        login = self._find_token(self._mechanism, name)
        self._is_token = login is not None
        return None if login is None else login.credential

    def _check(self, text: str) -> str:
        match = re.fullmatch(_CLIENT_FINAL, text)
        if match is None:
            raise SaslError("the last message of SCRAM is malformed")
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            raise SaslError("the nonce is not that of this exchange")
        # Kafka's clients say `n,,` also where they have named an authorization id.
        if _base64(match["binding"]) not in (self._header.encode(), b"n,,"):
            raise SaslError("the channel binding is not that of the first message")
        credential = self._credential
        if credential is None:
            raise SaslError(
                f"there is no {self._mechanism} credential of user {self._name!r}, nor a token"
            )
        message = f"{self._begun},{match['bare']}".encode()
        signature = _hmac(self._mechanism, credential.stored_key, message)
        proof = _base64(match["proof"])
        if len(proof) != len(signature):
            raise SaslError("the proof has another length than the hash")
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(_hash(self._mechanism, client_key), credential.stored_key):
            raise SaslError(f"wrong password for user {self._name!r}")
        self._name_principal()
        self.is_complete = True
        verifier = _hmac(self._mechanism, credential.server_key, message)
        return f"v={b64encode(verifier).decode()}"

    def _name_principal(self) -> None:
        if not self._is_token:
            self.principal = KafkaPrincipal.user(self._name)
            return
        login = self._find_token(self._mechanism, self._name)
        if login is None:
            raise SaslError(f"the token {self._name!r} has ended")
        self.principal, self.expires_ms = login.owner, login.expires_ms


class ScramClient(SaslClient):
    """The client's side; it also has the broker prove that it knows the password's keys."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        extensions: str = "",
        nonce: Callable[[], str] = new_nonce,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce()
        self._bare = f"n={_encode_name(username)},r={self._nonce}{extensions}"
        self._verifier = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise SaslAuthenticationError("the broker's message is not UTF-8") from None
        if self._verifier:
            self._check(text)
            return None
        return self._prove(text).encode()

    def _prove(self, text: str) -> str:
        match = re.fullmatch(_SERVER_FIRST, text)
        if match is None:
            raise SaslAuthenticationError("the broker's first message of SCRAM is malformed")
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise SaslAuthenticationError("the broker has not added to the nonce of the client")
        iterations = int(match["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_CLIENT_ITERATIONS:
            raise SaslAuthenticationError(
                f"the broker asks for {iterations} iterations; {MIN_ITERATIONS} to "
                f"{MAX_CLIENT_ITERATIONS} are accepted"
            )
        salt = _base64(match["salt"], SaslAuthenticationError)
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        bare = f"c=biws,r={match['nonce']}"
        message = f"{self._bare},{text},{bare}".encode()
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        signature = _hmac(self._mechanism, _hash(self._mechanism, client_key), message)
        server_key = _hmac(self._mechanism, salted, b"Server Key")
        self._verifier = _hmac(self._mechanism, server_key, message)
        return f"{bare},p={b64encode(_xor(client_key, signature)).decode()}"

    def _check(self, text: str) -> None:
        proof = text.removeprefix("v=").partition(",")[0]
        expected = b64encode(self._verifier)
        if not text.startswith("v=") or not hmac.compare_digest(proof.encode(), expected):
            raise SaslAuthenticationError("the broker does not know the password of the user")
        self.is_complete = True


def _base64(text: str, error: type[Exception] = SaslError) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise error("a value of a SCRAM message is not base64") from None


def _encode_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _decode_name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")
