"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40),
DescribeDelegationToken (41): passwords for a limited time (KIP-48).

The HMAC of a token is its password, and is not shown.
"""

from __future__ import annotations

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Bytes, Int16, Int32, Int64, String, field


class TokenRenewer(Struct):
    """A principal that may renew and end a token, beside its owner."""

    principal_type: str = field(String)
    principal_name: str = field(String)


class CreateDelegationTokenRequest(Request, api_key=38, flexible="2+"):
    """Make a token. v2 flexible · v3 for another owner than the requester (KIP-373)."""

    owner_principal_type: str | None = field(String, versions="3+", nullable="3+")
    owner_principal_name: str | None = field(String, versions="3+", nullable="3+")
    renewers: list[TokenRenewer] = field(Array(TokenRenewer))
    max_lifetime_ms: int = field(Int64)


class CreateDelegationTokenResponse(Response, api_key=38, flexible="2+"):
    """The token, or why there is none."""

    error_code: int = field(Int16)
    principal_type: str = field(String)
    principal_name: str = field(String)
    token_requester_principal_type: str = field(String, versions="3+", ignorable=True)
    token_requester_principal_name: str = field(String, versions="3+", ignorable=True)
    issue_timestamp_ms: int = field(Int64)
    expiry_timestamp_ms: int = field(Int64)
    max_timestamp_ms: int = field(Int64)
    token_id: str = field(String)
    hmac: bytes = field(Bytes)
    throttle_time_ms: int = field(Int32)

    def __repr__(self) -> str:
        return (
            f"CreateDelegationTokenResponse(error_code={self.error_code}, "
            f"token_id={self.token_id!r})"
        )


class RenewDelegationTokenRequest(Request, api_key=39, flexible="2+"):
    """Have a token end later; below 0 for the broker's own period."""

    hmac: bytes = field(Bytes)
    renew_period_ms: int = field(Int64)

    def __repr__(self) -> str:
        return f"RenewDelegationTokenRequest(renew_period_ms={self.renew_period_ms})"


class RenewDelegationTokenResponse(Response, api_key=39, flexible="2+"):
    """When the token ends now."""

    error_code: int = field(Int16)
    expiry_timestamp_ms: int = field(Int64)
    throttle_time_ms: int = field(Int32)


class ExpireDelegationTokenRequest(Request, api_key=40, flexible="2+"):
    """Have a token end within a time; below 0 at once, and it is gone."""

    hmac: bytes = field(Bytes)
    expiry_time_period_ms: int = field(Int64)

    def __repr__(self) -> str:
        return f"ExpireDelegationTokenRequest(expiry_time_period_ms={self.expiry_time_period_ms})"


class ExpireDelegationTokenResponse(Response, api_key=40, flexible="2+"):
    """When the token ends now."""

    error_code: int = field(Int16)
    expiry_timestamp_ms: int = field(Int64)
    throttle_time_ms: int = field(Int32)


class TokenOwner(Struct):
    """A principal whose tokens are asked for: those that it owns, or may renew."""

    principal_type: str = field(String)
    principal_name: str = field(String)


class DescribeDelegationTokenRequest(Request, api_key=41, flexible="2+"):
    """Which tokens there are; null asks for all that one may see, and an empty list for none."""

    owners: list[TokenOwner] | None = field(Array(TokenOwner), nullable="0+")


class DescribedDelegationToken(Struct):
    """One token."""

    principal_type: str = field(String)
    principal_name: str = field(String)
    token_requester_principal_type: str = field(String, versions="3+", ignorable=True)
    token_requester_principal_name: str = field(String, versions="3+", ignorable=True)
    issue_timestamp: int = field(Int64)
    expiry_timestamp: int = field(Int64)
    max_timestamp: int = field(Int64)
    token_id: str = field(String)
    hmac: bytes = field(Bytes)
    renewers: list[TokenRenewer] = field(Array(TokenRenewer))

    def __repr__(self) -> str:
        return f"DescribedDelegationToken(token_id={self.token_id!r})"


class DescribeDelegationTokenResponse(Response, api_key=41, flexible="2+"):
    """The tokens that the client may see."""

    error_code: int = field(Int16)
    tokens: list[DescribedDelegationToken] = field(Array(DescribedDelegationToken))
    throttle_time_ms: int = field(Int32)
