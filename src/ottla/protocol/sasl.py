"""SASL: which mechanism (17), the tokens of its exchange (36), and the users of SCRAM (50, 51)."""

from __future__ import annotations

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Bytes, Int8, Int16, Int32, Int64, String, field


class SaslHandshakeRequest(Request, api_key=17, versions="0-1"):
    """Choose a mechanism.

    v0 tokens follow as bare frames · v1 in SaslAuthenticate (KIP-152).
    """

    mechanism: str = field(String)


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    """Whether the listener has the mechanism, and all that it has."""

    error_code: int = field(Int16)
    mechanisms: list[str] = field(Array(String))


class SaslAuthenticateRequest(Request, api_key=36, versions="0-2", flexible="2+"):
    """A token of the client. v1 the session may have an end (KIP-368) · v2 flexible."""

    auth_bytes: bytes = field(Bytes)

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(auth_bytes=<{len(self.auth_bytes)} bytes>)"


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    """A token of the broker, or why it refuses the client.

    `session_lifetime_ms` is 0 for a session without end; else the client has to authenticate again
    within that time.
    """

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    auth_bytes: bytes = field(Bytes)
    session_lifetime_ms: int = field(Int64, versions="1+", ignorable=True)


# DescribeUserScramCredentials (50), AlterUserScramCredentials (51): users of SCRAM (KIP-554).


class UserName(Struct):
    """A user who is asked for."""

    name: str = field(String)


class DescribeUserScramCredentialsRequest(Request, api_key=50, versions="0", flexible="0+"):
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


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
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


class AlterUserScramCredentialsRequest(Request, api_key=51, versions="0", flexible="0+"):
    """Remove, make and replace credentials."""

    deletions: list[ScramCredentialDeletion] = field(Array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(Array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Struct):
    """Whether the credentials of one user were changed."""

    user: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    """A result for each user."""

    throttle_time_ms: int = field(Int32)
    results: list[AlterUserScramCredentialsResult] = field(Array(AlterUserScramCredentialsResult))
