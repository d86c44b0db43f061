"""SaslHandshake (17), SaslAuthenticate (36), and the users of SCRAM (50, 51).

On a SASL listener the connection's own `SaslAuthenticator` answers the first two. Those that come
here are of a client of another listener, or of one that is authenticated already:
ILLEGAL_SASL_STATE (34).

DescribeUserScramCredentials (50) and AlterUserScramCredentials (51), v0, show and change the
credentials in the registry (KIP-554). A credential holds at the next login, on every broker that
has heard of it. A refused entry refuses that user only; the controller alone makes changes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.protocol.scram_users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.security.scram import (
    HASHES,
    MAX_ITERATIONS,
    MECHANISM_NUMBERS,
    MIN_ITERATIONS,
    ScramCredential,
)
from ottla.server.api import Handler, error_code, error_message
from ottla.structs import ClientEntity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.network.request_context import RequestContext
    from ottla.runtime import Slices
    from ottla.server.dynamic_config import DynamicConfig
    from ottla.server.parts import Parts

SLICE_USERS: Final = 200
MECHANISMS: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}


class SaslHandlers:
    """Refuses both; they are in the table so that ApiVersions names them."""

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.SASL_HANDSHAKE: self.handle_sasl_handshake,
            ApiKey.SASL_AUTHENTICATE: self.handle_sasl_authenticate,
        }

    def handle_sasl_handshake(
        self, context: RequestContext, body: SaslHandshakeRequest
    ) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def handle_sasl_authenticate(
        self, context: RequestContext, body: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate came where no SASL exchange is under way",
        )


class ScramUsersHandler:
    """Shows and changes the users that can log in by SCRAM."""

    def __init__(
        self, dynamic_config: DynamicConfig, is_controller: Callable[[], bool], slices: Slices
    ) -> None:
        self.entities = dynamic_config.entities
        self.is_controller = is_controller
        self.slices = slices

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.handle_describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.handle_alter,
        }

    async def handle_describe(
        self, context: RequestContext, body: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        names = Counter(user.name for user in body.users or ())
        is_all = not names
        if is_all:
            entities = await self.entities.client_entities()
            names.update(each.user for each in entities if each.user)
        results = []
        async for name, count in self.slices.over(names.items(), SLICE_USERS):
            infos = credential_infos(await self.entities.read_client(ClientEntity(user=name)))
            if infos or not is_all:
                is_repeated = count > 1 and not is_all
                results.append(_described(name, infos, is_repeated=is_repeated))
        return DescribeUserScramCredentialsResponse(error_message=None, results=results)

    async def handle_alter(
        self, context: RequestContext, body: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        entries: list[ScramCredentialDeletion | ScramCredentialUpsertion]
        entries = [*body.deletions, *body.upsertions]
        pairs = Counter((each.name, each.mechanism) for each in entries)
        changes: dict[str, dict[str, str | None]] = {}
        errors: dict[str, KafkaError] = {}
        for each in entries:
            changes.setdefault(each.name, {})
            try:
                _check_pair(each.name, each.mechanism, pairs[each.name, each.mechanism])
                mechanism = MECHANISMS[each.mechanism]
                if isinstance(each, ScramCredentialUpsertion):
                    changes[each.name][mechanism] = stored_text(mechanism, each)
                else:
                    changes[each.name][mechanism] = None
            except KafkaError as error:
                errors.setdefault(each.name, error)
        results = []
        for name, of_user in changes.items():
            outcome = errors.get(name)
            if outcome is None:
                outcome = await self._change(name, of_user)
            results.append(
                AlterUserScramCredentialsResult(
                    user=name,
                    error_code=error_code(outcome),
                    error_message=error_message(outcome),
                )
            )
        return AlterUserScramCredentialsResponse(results=results)

    async def _change(self, name: str, changes: Mapping[str, str | None]) -> KafkaError | None:
        if not self.is_controller():
            return KafkaError.of(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")

        def change(before: dict[str, str]) -> dict[str, str]:
            missing = [key for key, text in changes.items() if text is None and key not in before]
            if missing:
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND, f"user {name} has no {missing[0]} credential"
                )
            after = before | dict(changes)
            return {key: text for key, text in after.items() if text is not None}

        try:
            await self.entities.change_client(ClientEntity(user=name), change)
        except KafkaError as error:
            return error
        return None


def new_sasl_handlers(broker: Parts) -> SaslHandlers:
    """The handlers of the steps of a login, where none is under way."""
    return SaslHandlers()


def new_scram_users_handler(broker: Parts) -> ScramUsersHandler:
    """The handlers of the users of SCRAM."""
    return ScramUsersHandler(
        broker.dynamic_config, lambda: broker.controller.is_active, broker.apis.slices
    )


def _check_pair(name: str, mechanism: int, count: int) -> None:
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the name of a user must not be empty")
    if mechanism not in MECHANISMS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {mechanism}"
        )
    if count > 1:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            f"{MECHANISMS[mechanism]} of user {name} is changed more than once",
        )


def _described(
    name: str, infos: list[CredentialInfo], *, is_repeated: bool
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(
        user=name, credential_infos=infos, error_message=None
    )
    if is_repeated:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = f"user {name} is named more than once"
        result.credential_infos = []
    elif not infos:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"user {name} has no SCRAM credentials"
    return result


def stored_text(mechanism: str, upsertion: ScramCredentialUpsertion) -> str:
    """The credential as the registry keeps it; UNACCEPTABLE_CREDENTIAL for too weak a one."""
    if not MIN_ITERATIONS <= upsertion.iterations <= MAX_ITERATIONS:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{upsertion.iterations} iterations: must be {MIN_ITERATIONS} to {MAX_ITERATIONS}",
        )
    if not upsertion.salt or not upsertion.salted_password:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt and salted password must not be empty"
        )
    return ScramCredential.of_salted(
        mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations
    ).format()


def credential_infos(settings: Mapping[str, str]) -> list[CredentialInfo]:
    """The mechanisms that a user has credentials of, from its settings in the registry."""
    infos = []
    for mechanism in HASHES:
        try:
            credential = ScramCredential.parse(settings[mechanism])
        except (KeyError, ValueError):
            continue  # there is none, or none that a login could use
        infos.append(
            CredentialInfo(mechanism=MECHANISM_NUMBERS[mechanism], iterations=credential.iterations)
        )
    return infos
