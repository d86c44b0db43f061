"""The users of SCRAM (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ottla.clients.network_client import check_code, response_error
from ottla.protocol.scram_users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from ottla.security.scram import MECHANISM_NUMBERS, MIN_ITERATIONS, new_salt, salted_password
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clients.admin.admin_client import AdminClient
    from ottla.errors import KafkaError
    from ottla.runtime.timing import Deadline


class UserScramCredential(NamedTuple):
    """A credential to make or to replace; with `password` None, one to remove."""

    user: str
    mechanism: str
    password: str | None
    iterations: int = MIN_ITERATIONS

    def __repr__(self) -> str:
        return f"UserScramCredential({self.user!r}, {self.mechanism!r})"


class ScramUserAdmin:
    """Requests about users; changes go to the controller. A password never leaves this process."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe(self, users: Sequence[str] | None) -> dict[str, dict[str, int] | KafkaError]:
        named = None if users is None else [UserName(name=name) for name in users]
        request = DescribeUserScramCredentialsRequest(users=named)

        async def attempt(deadline: Deadline) -> DescribeUserScramCredentialsResponse:
            answer = await self._admin.any_broker(request, deadline)
            return cast("DescribeUserScramCredentialsResponse", answer)

        answer = await self._admin.until_done(attempt)
        check_code(answer.error_code, "users", answer.error_message)
        names = {number: name for name, number in MECHANISM_NUMBERS.items()}
        return {
            each.user: response_error(each.error_code, f"user {each.user}", each.error_message)
            or {names[info.mechanism]: info.iterations for info in each.credential_infos}
            for each in answer.results
        }

    async def alter(
        self, credentials: Sequence[UserScramCredential]
    ) -> dict[str, KafkaError | None]:
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=each.user, mechanism=MECHANISM_NUMBERS[each.mechanism])
                for each in credentials
                if each.password is None
            ],
            upsertions=[_salted(each, each.password) for each in credentials if each.password],
        )
        users = dict.fromkeys(each.user for each in credentials)

        async def attempt(pending: list[str], deadline: Deadline) -> dict[str, KafkaError | None]:
            answer = await self._admin.controller(request, deadline)
            results = cast("AlterUserScramCredentialsResponse", answer).results
            return {
                each.user: response_error(each.error_code, f"user {each.user}", each.error_message)
                for each in results
            }

        return await self._admin.for_each(users, attempt)


def _salted(credential: UserScramCredential, password: str) -> ScramCredentialUpsertion:
    salt = new_salt()
    salted = salted_password(credential.mechanism, password, salt, credential.iterations)
    return ScramCredentialUpsertion(
        name=credential.user,
        mechanism=MECHANISM_NUMBERS[credential.mechanism],
        iterations=credential.iterations,
        salt=salt,
        salted_password=salted,
    )
