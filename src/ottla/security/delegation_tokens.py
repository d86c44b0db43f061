"""Delegation tokens (KIP-48): a password for a while, which a broker makes for a client.

The owner of a token gives it to workers, which then need no password of the owner, and act under
its name. A token is a SCRAM user for logins: its id is the user, its HMAC in base64 the password.
The HMAC is made from the id by a secret that all brokers have, and is stored nowhere.

    issue            expiry (renewed: later)      max
      |--- may log in ---|                         |
                         |--- refused, and removed at the next check
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections import Counter
from secrets import token_bytes
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.security.principal import ANONYMOUS, USER_TYPE, KafkaPrincipal, TokenPrincipal
from ottla.security.scram import HASHES, MIN_ITERATIONS, ScramCredential, TokenLogin
from ottla.structs import NO_TIMESTAMP, Value, encode_uuid, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.runtime import Clock

HASH: Final = "sha512"
MAX_TOKENS: Final = 5_000
"""Of one requester: every broker keeps them until they end, and no right is needed to ask."""
MAX_NAMES: Final = 8_192
"""Letters of the names in a token, each counted as MIN_NAME or more."""
MIN_NAME: Final = 64


class DelegationToken(Value, frozen=True):
    """One token; times are milliseconds since 1970."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    """The requester: the owner, or somebody with CREATE_TOKENS on it (KIP-373)."""
    renewers: tuple[KafkaPrincipal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    """Beyond this it cannot be renewed."""
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """The password of a login with the token, beside its id."""
        return b64encode(self.hmac).decode()

    @property
    def users(self) -> tuple[KafkaPrincipal, ...]:
        """Those who may see, renew and end it without further rights."""
        return (self.owner, self.requester, *self.renewers)

    def belongs_to(self, principal: KafkaPrincipal) -> bool:
        """Whether a principal is one of these."""
        return principal in self.users

    def has_ended(self, now_ms: int) -> bool:
        return now_ms >= min(self.expiry_ms, self.max_ms)


def may_ask(principal: KafkaPrincipal) -> bool:
    """Whether a client has proved its identity, by something else than a token.

    A token must not beget another one, which would outlive it.
    """
    return principal != ANONYMOUS and not isinstance(principal, TokenPrincipal)


def check_users(principals: Sequence[KafkaPrincipal]) -> None:
    """INVALID_PRINCIPAL_TYPE unless all are users; INVALID_REQUEST where their names are many."""
    if sum(max(MIN_NAME, len(each.name)) for each in principals) > MAX_NAMES:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"the names in a token may have {MAX_NAMES} letters in all"
        )
    for each in principals:
        if each.type != USER_TYPE:
            raise KafkaError.of(
                ErrorCode.INVALID_PRINCIPAL_TYPE, f"{each} must be of type {USER_TYPE}"
            )


def owner_of(body: CreateDelegationTokenRequest, requester: KafkaPrincipal) -> KafkaPrincipal:
    """The token's owner: as requested, else the requester."""
    if not body.owner_principal_name:
        return requester
    return KafkaPrincipal(body.owner_principal_type or "", body.owner_principal_name)


def not_created(
    error: ErrorCode, owner: KafkaPrincipal, requester: KafkaPrincipal
) -> CreateDelegationTokenResponse:
    """The answer where no token is made."""
    return CreateDelegationTokenResponse(
        error_code=int(error),
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )


class TokenTable:
    """The tokens of a cluster, as one broker knows them, with the credentials for logins.

    Credentials are made when a token is first used: their hashing takes some milliseconds.
    """

    def __init__(self, secret: bytes, clock: Clock) -> None:
        self._secret = secret
        self._clock = clock
        self._by_id: dict[str, DelegationToken] = {}
        self._requested = Counter[KafkaPrincipal]()
        self._ids_by_hmac: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter(self._by_id.values())

    def new_id(self) -> str:
        """22 characters that no other token has, and nobody guesses."""
        return encode_uuid(UUID(bytes=token_bytes(16), version=4))

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._secret, token_id.encode(), HASH)

    def put(self, token: DelegationToken) -> None:
        """Add a token, or the same one with other times."""
        self._requested[token.requester] += token.token_id not in self._by_id
        self._by_id[token.token_id] = token
        self._ids_by_hmac[_key(token.hmac)] = token.token_id

    def check_room(self, requester: KafkaPrincipal) -> None:
        """POLICY_VIOLATION for who has asked for as many tokens as one may."""
        if self._requested[requester] >= MAX_TOKENS:
            raise KafkaError.of(
                ErrorCode.POLICY_VIOLATION,
                f"{requester} has {MAX_TOKENS} tokens, and gets another when one of them ends",
            )

    def remove(self, token_id: str) -> None:
        token = self._by_id.pop(token_id, None)
        if token is not None:
            del self._ids_by_hmac[_key(token.hmac)]
            self._requested[token.requester] -= 1
            if not self._requested[token.requester]:
                del self._requested[token.requester]
        for mechanism in HASHES:
            self._credentials.pop((mechanism, token_id), None)

    def replace(self, tokens: Iterable[DelegationToken]) -> None:
        """Have these tokens only."""
        wanted = {token.token_id: token for token in tokens}
        for token_id in self._by_id.keys() - wanted.keys():
            self.remove(token_id)
        for token in wanted.values():
            self.put(token)

    def of_hmac(self, hmac_: bytes) -> DelegationToken | None:
        """The token that a client has shown; None where there is none."""
        return self._by_id.get(self._ids_by_hmac.get(_key(hmac_), ""))

    def ended(self) -> list[DelegationToken]:
        """Those that nobody can log in with any longer."""
        now_ms = self._clock.now_ms()
        return [token for token in self if token.has_ended(now_ms)]

    def login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        """The credential for a login with a token; None for one that is missing, or has ended."""
        token = self._by_id.get(token_id)
        if token is None or token.has_ended(self._clock.now_ms()):
            return None
        key = (mechanism, token_id)
        credential = self._credentials.get(key)
        if credential is None:
            credential = ScramCredential.of_password(mechanism, token.password, MIN_ITERATIONS)
            self._credentials[key] = credential
        return TokenLogin(credential, TokenPrincipal(*token.owner), token.expiry_ms)


def _key(hmac_: bytes) -> bytes:
    """The place of an HMAC in the table: a hash, so that the time of a search reveals nothing."""
    return hashlib.sha256(hmac_).digest()
