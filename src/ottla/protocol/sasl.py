"""SASL: which mechanism (17), the tokens of its exchange (36), and who can log in.

Delegation tokens (38 to 41), and the users of SCRAM (50, 51).
"""

from __future__ import annotations

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Bytes, Int8, Int16, Int32, Int64, String, field


class SaslHandshakeRequest(
    Request,
    api_key=17,
):
    """Choose a mechanism.

    v0 tokens follow as bare frames · v1 in SaslAuthenticate (KIP-152).
    """

    mechanism: str = field(String)


class SaslHandshakeResponse(
    Response,
    api_key=17,
):
    """Whether the listener has the mechanism, and all that it has."""

    error_code: int = field(Int16)
    mechanisms: list[str] = field(Array(String))


class SaslAuthenticateRequest(Request, api_key=36, flexible="2+"):
    """A token of the client. v1 the session may have an end (KIP-368) · v2 flexible."""

    auth_bytes: bytes = field(Bytes)

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(auth_bytes=<{len(self.auth_bytes)} bytes>)"


class SaslAuthenticateResponse(Response, api_key=36, flexible="2+"):
    """A token of the broker, or why it refuses the client.

    `session_lifetime_ms` is 0 for a session without end; else the client has to authenticate again
    within that time.
    """

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    auth_bytes: bytes = field(Bytes)
    session_lifetime_ms: int = field(Int64, versions="1+", ignorable=True)


# CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40),
# DescribeDelegationToken (41): passwords for a while (KIP-48). The HMAC of a token is its password,
# and not shown.


class TokenRenewer(Struct):
    """A principal that may renew and end a token, beside its owner."""

    principal_type: str = field(String)
    principal_name: str = field(String)


class CreateDelegationTokenRequest(Request, api_key=38, flexible="2+"):
    """Make a token. v2 flexible · v3 for another owner than the one who asks (KIP-373)."""

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


# DescribeUserScramCredentials (50), AlterUserScramCredentials (51): users of SCRAM (KIP-554).


class UserName(Struct):
    """A user who is asked for."""

    name: str = field(String)


class DescribeUserScramCredentialsRequest(Request, api_key=50, flexible="0+"):
    """Which mechanisms users have credentials of; null or none named asks for all users."""

    users: list[UserName] | None = field(Array(UserName), nullable="0+")


class CredentialInfo(Struct):
    """A mechanism of a user, and how often its password is hashed."""

    mechanism: int = field(Int8)
    iterations: int = field(Int32)


class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    credential_infos: list[CredentialInfo] = field(Array(CredentialInfo))


class DescribeUserScramCredentialsResponse(Response, api_key=50, flexible="0+"):
    """The users that have credentials; the credentials themselves are told to nobody."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field(
        Array(DescribeUserScramCredentialsResult)
    )


class ScramCredentialDeletion(Struct):
    """A credential to remove."""

    name: str = field(String)
    mechanism: int = field(Int8)


class ScramCredentialUpsertion(Struct):
    """A credential to make or to replace: the password comes salted and hashed."""

    name: str = field(String)
    mechanism: int = field(Int8)
    iterations: int = field(Int32)
    salt: bytes = field(Bytes)
    salted_password: bytes = field(Bytes)

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism})"


class AlterUserScramCredentialsRequest(Request, api_key=51, flexible="0+"):
    """Remove, make and replace credentials."""

    deletions: list[ScramCredentialDeletion] = field(Array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(Array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Struct):
    """Whether the credentials of one user were changed."""

    user: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class AlterUserScramCredentialsResponse(Response, api_key=51, flexible="0+"):
    """A result for each user."""

    throttle_time_ms: int = field(Int32)
    results: list[AlterUserScramCredentialsResult] = field(Array(AlterUserScramCredentialsResult))
