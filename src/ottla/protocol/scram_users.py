"""DescribeUserScramCredentials (50), AlterUserScramCredentials (51): users of SCRAM (KIP-554)."""

from __future__ import annotations

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Bytes, Int8, Int16, Int32, String, field


class UserName(Struct):
    """A user that the request asks for."""

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
    """The users that have credentials; the credentials themselves are never returned."""

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
