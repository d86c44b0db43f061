"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40) and
DescribeDelegationToken (41): passwords for a while (KIP-48).

Behaviour: any broker serves them, where `delegation.token.secret.key` is set
(DELEGATION_TOKEN_AUTH_DISABLED otherwise). Only a client that has proved its name, and not by a
token, may ask (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED). The owner, the requester and the renewers of
a token renew it, up to its longest life, and end it; a negative time ends it at once. The answer
comes when the registry has the change: a token is good on this broker at once, on others as soon as
they read its notification.

Version notes: v1 as v0 · v2 flexible · v3 tokens for other owners (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.config_type import LONG_MAX
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    TokenRenewer,
)
from ottla.security.delegation_tokens import (
    DelegationToken,
    check_users,
    may_ask,
    not_created,
    owner_of,
)
from ottla.security.principal import KafkaPrincipal
from ottla.server.api import begin
from ottla.structs import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.extensions.tokens.token_store import TokenStore
    from ottla.network.request_context import RequestContext
    from ottla.runtime import Runtime
    from ottla.runtime.scheduler import Work
    from ottla.security.delegation_tokens import TokenTable
    from ottla.server.api import Answer, Handler

TOKENS_IN_A_SLICE: Final = 200
"""A token may name a hundred renewers."""


class DelegationTokensHandler:
    """Makes, shows, renews and ends the tokens in the registry; without `store` there are none."""

    def __init__(
        self, store: TokenStore | None, runtime: Runtime, max_lifetime_ms: int, expiry_time_ms: int
    ) -> None:
        self.store = store
        self.clock, self.slices = runtime.clock, runtime.slices
        self.max_lifetime_ms = max_lifetime_ms
        self.expiry_time_ms = expiry_time_ms

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.CREATE_DELEGATION_TOKEN: self.handle_create,
            ApiKey.RENEW_DELEGATION_TOKEN: self.handle_renew,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self.handle_expire,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: self.handle_describe,
        }

    async def handle_create(
        self, context: RequestContext, body: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse:
        owner = owner_of(body, context.principal)
        renewers = tuple(
            KafkaPrincipal(each.principal_type, each.principal_name) for each in body.renewers
        )
        try:
            self._check_may_ask(context)
            check_users((owner, *renewers))
            store = self._store()
            store.table.check_room(context.principal)
            token = self._new_token(store, owner, context.principal, renewers, body.max_lifetime_ms)
            await store.create(token)
        except KafkaError as error:
            return not_created(error.error, owner, context.principal)
        return CreateDelegationTokenResponse(
            principal_type=token.owner.type,
            principal_name=token.owner.name,
            token_requester_principal_type=token.requester.type,
            token_requester_principal_name=token.requester.name,
            issue_timestamp_ms=token.issue_ms,
            expiry_timestamp_ms=token.expiry_ms,
            max_timestamp_ms=token.max_ms,
            token_id=token.token_id,
            hmac=token.hmac,
        )

    async def handle_renew(
        self, context: RequestContext, body: RenewDelegationTokenRequest
    ) -> RenewDelegationTokenResponse:
        try:
            store = self._store_for(context)
            token = self._own_token(store, context.principal, body.hmac)
            self._check_not_ended(token)
            period_ms = body.renew_period_ms
            if period_ms < 0:
                period_ms = self.expiry_time_ms
            token = await store.end_at(token.token_id, self.clock.now_ms() + period_ms)
        except KafkaError as error:
            return RenewDelegationTokenResponse(
                error_code=int(error.error), expiry_timestamp_ms=NO_TIMESTAMP
            )
        return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expiry_ms)

    async def handle_expire(
        self, context: RequestContext, body: ExpireDelegationTokenRequest
    ) -> ExpireDelegationTokenResponse:
        try:
            store = self._store_for(context)
            token = self._own_token(store, context.principal, body.hmac)
            now_ms = self.clock.now_ms()
            if body.expiry_time_period_ms < 0:
                await store.remove(token.token_id)
                return ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms)
            self._check_not_ended(token)
            token = await store.end_at(token.token_id, now_ms + body.expiry_time_period_ms)
        except KafkaError as error:
            return ExpireDelegationTokenResponse(
                error_code=int(error.error), expiry_timestamp_ms=NO_TIMESTAMP
            )
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expiry_ms)

    def handle_describe(
        self, context: RequestContext, body: DescribeDelegationTokenRequest
    ) -> Answer:
        """All tokens of the owners; the check of rights leaves those that the client may see."""
        try:
            store = self._store_for(context)
        except KafkaError as error:
            return DescribeDelegationTokenResponse(error_code=int(error.error))
        return begin(self.slices, context, self._describe(store.table, body))

    def _describe(
        self, table: TokenTable, body: DescribeDelegationTokenRequest
    ) -> Work[DescribeDelegationTokenResponse]:
        response, wanted = DescribeDelegationTokenResponse(), None
        if body.owners is not None:
            wanted = {
                KafkaPrincipal(each.principal_type, each.principal_name) for each in body.owners
            }
        for number, token in enumerate(list(table), 1):
            if wanted is None or not wanted.isdisjoint(token.users):
                response.tokens.append(described(token))
            if not number % TOKENS_IN_A_SLICE:
                yield
        return response

    def _store(self) -> TokenStore:
        if self.store is None:
            raise KafkaError.of(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set"
            )
        return self.store

    def _store_for(self, context: RequestContext) -> TokenStore:
        self._check_may_ask(context)
        return self._store()

    def _check_may_ask(self, context: RequestContext) -> None:
        if not may_ask(context.principal):
            raise KafkaError.of(
                ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
                "a client that is anonymous, or has logged in with a token, may not ask",
            )

    def _own_token(
        self, store: TokenStore, principal: KafkaPrincipal, hmac: bytes
    ) -> DelegationToken:
        token = store.table.of_hmac(bytes(hmac))
        if token is None:
            raise KafkaError.of(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "no token has this HMAC")
        if not token.belongs_to(principal):
            raise KafkaError.of(
                ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, f"{principal} may not renew or end it"
            )
        return token

    def _check_not_ended(self, token: DelegationToken) -> None:
        if token.has_ended(self.clock.now_ms()):
            raise KafkaError.of(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"{token.token_id} has ended")

    def _new_token(
        self,
        store: TokenStore,
        owner: KafkaPrincipal,
        requester: KafkaPrincipal,
        renewers: tuple[KafkaPrincipal, ...],
        lifetime_ms: int,
    ) -> DelegationToken:
        now_ms = self.clock.now_ms()
        if not 0 < lifetime_ms < self.max_lifetime_ms:
            lifetime_ms = self.max_lifetime_ms
        token_id = store.table.new_id()
        return DelegationToken(
            token_id,
            owner,
            KafkaPrincipal(*requester),
            renewers,
            issue_ms=now_ms,
            expiry_ms=min(now_ms + min(lifetime_ms, self.expiry_time_ms), LONG_MAX),
            max_ms=min(now_ms + lifetime_ms, LONG_MAX),
            hmac=store.table.hmac_of(token_id),
        )


def described(token: DelegationToken) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token.hmac,
        renewers=[
            TokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )
