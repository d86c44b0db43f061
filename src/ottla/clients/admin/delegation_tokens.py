"""Delegation tokens (KIP-48), as `Admin` makes, renews, ends and lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from ottla.clients.network_client import check_code
from ottla.protocol.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    TokenOwner,
    TokenRenewer,
)
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.principal import KafkaPrincipal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clients.admin.admin_client import AdminClient
    from ottla.protocol.message import Request
    from ottla.runtime.timing import Deadline


FIRST_VERSION_WITH_OWNER: Final = 3


class DelegationTokenAdmin:
    """Requests about tokens, on a connection that has logged in; any broker answers them."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def create(
        self,
        owner: KafkaPrincipal | None,
        renewers: Sequence[KafkaPrincipal],
        max_lifetime_ms: int,
    ) -> DelegationToken:
        request = CreateDelegationTokenRequest(
            renewers=[TokenRenewer(**_named(each)) for each in renewers],
            max_lifetime_ms=max_lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = owner
        made = await self._ask(request, low=0 if owner is None else FIRST_VERSION_WITH_OWNER)
        made_for = KafkaPrincipal(made.principal_type, made.principal_name)
        return DelegationToken(
            made.token_id,
            made_for,
            _requester(made) or made_for,
            tuple(renewers),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
            bytes(made.hmac),
        )

    async def renew(self, hmac: bytes, period_ms: int) -> int:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return int((await self._ask(request)).expiry_timestamp_ms)

    async def expire(self, hmac: bytes, period_ms: int) -> int:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return int((await self._ask(request)).expiry_timestamp_ms)

    async def describe(self, owners: Sequence[KafkaPrincipal] | None) -> list[DelegationToken]:
        request = DescribeDelegationTokenRequest(owners=None)
        if owners is not None:
            request.owners = [TokenOwner(**_named(each)) for each in owners]
        answer = cast("DescribeDelegationTokenResponse", await self._ask(request))
        return [_token(each) for each in answer.tokens]

    async def _ask(self, request: Request, low: int = 0) -> Any:
        async def attempt(deadline: Deadline) -> Any:
            answer = await self._admin.any_broker(request, deadline, low=low)
            check_code(answer.error_code, "the delegation token")
            return answer

        return await self._admin.until_done(attempt)


def _named(principal: KafkaPrincipal) -> dict[str, str]:
    return {"principal_type": principal.type, "principal_name": principal.name}


def _requester(token: Any) -> KafkaPrincipal | None:
    """The requester of a token; brokers before 3.3 do not name it."""
    name = token.token_requester_principal_name
    return KafkaPrincipal(token.token_requester_principal_type, name) if name else None


def _token(told: Any) -> DelegationToken:
    owner = KafkaPrincipal(told.principal_type, told.principal_name)
    return DelegationToken(
        told.token_id,
        owner,
        _requester(told) or owner,
        tuple(KafkaPrincipal(each.principal_type, each.principal_name) for each in told.renewers),
        told.issue_timestamp,
        told.expiry_timestamp,
        told.max_timestamp,
        bytes(told.hmac),
    )
