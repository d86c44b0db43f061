"""GSSAPI (RFC 4752): Kerberos identifies a client; no password comes near the broker.

    client                                      broker
    tokens of GSSAPI                      <->   until both sides know each other
    an empty message                      ->
                                          <-    the layers that the broker offers: none
    the layer, and a name to act for      ->    wrapped by the context that was agreed on

A broker knows clients by the key of its service in a keytab, without asking the KDC. Names of
Kerberos (`alice/admin@EXAMPLE.COM`) become short ones by `sasl.kerberos.principal.to.local.rules`.
The name to act for does not count, as with Kafka. A client asks the KDC in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ottla.config.sasl_client_config import SaslLogin
from ottla.errors import ConfigError, SaslAuthenticationError
from ottla.runtime import Runtime
from ottla.security.principal import KafkaPrincipal
from ottla.security.sasl import SaslClient, SaslError, SaslServer
from ottla.security.short_names import ShortNames

DEFAULT: Final = "DEFAULT"
NO_LAYER: Final = 1
"""Authentication only: later frames are neither signed nor encrypted by GSSAPI."""
OFFER: Final = bytes((NO_LAYER, 0, 0, 0))
"""The layers as bits, and the largest message of a layer, which is 0 without one."""
TRUE: Final = "true"


def _explained(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class GssapiServer(SaslServer):
    """One exchange of a client; `context` is one of the package `gssapi` that accepts."""

    def __init__(self, new_context: Callable[[], Any], names: ShortNames) -> None:
        self._context = new_context()
        self._names = names
        self._is_offered = False

    def evaluate(self, token: bytes) -> bytes:
        if self.is_complete:
            raise SaslError("a token after the last")
        try:
            return self._evaluate(token)
        except SaslError:
            raise
        except Exception as error:  # GSSError, and errors of the library for tokens that are none
            raise SaslError(f"GSSAPI: {_explained(error)}") from None

    def _evaluate(self, token: bytes) -> bytes:
        context = self._context
        if not context.complete:
            answer = bytes(context.step(token) or b"")
            if answer or not context.complete:
                return answer
        elif self._is_offered:
            self._finish(bytes(context.unwrap(token).message))
            return b""
        elif token:
            raise SaslError("a client whose context is complete sends nothing before the offer")
        self._is_offered = True
        return bytes(context.wrap(OFFER, False).message)

    def _finish(self, choice: bytes) -> None:
        if len(choice) < len(OFFER):
            raise SaslError("the client's choice of a layer is too short")
        if choice[0] != NO_LAYER:
            raise SaslError(f"the client has chosen the layer {choice[0]}, which was not offered")
        self.principal = KafkaPrincipal.user(self._names.of(str(self._context.initiator_name)))
        self.is_complete = True


class GssapiClient(SaslClient):
    """The client's side; `first_token` was made with the ticket for the service."""

    def __init__(self, context: Any, first_token: bytes) -> None:
        self._context = context
        self._first_token = first_token

    def first(self) -> bytes:
        return self._first_token

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self.is_complete:
            return None
        try:
            if not self._context.complete:
                return bytes(self._context.step(challenge) or b"")
            offer = bytes(self._context.unwrap(challenge).message)
        except Exception as error:
            raise SaslAuthenticationError(f"GSSAPI: {_explained(error)}") from None
        if len(offer) != len(OFFER) or not offer[0] & NO_LAYER:
            raise SaslAuthenticationError("the broker wants a layer of GSSAPI, and none is there")
        self.is_complete = True
        return bytes(self._context.wrap(OFFER, False).message)


def _package(key: str) -> Any:
    try:
        import gssapi
    except ImportError as error:
        raise ConfigError(
            f"{key}=GSSAPI: needs `pip install ottla[kerberos]`, and the libraries of MIT Kerberos "
            f"({error})"
        ) from None
    return gssapi


def new_server(
    key: str, options: Mapping[str, str], rules: str, service: str | None
) -> Callable[[], GssapiServer]:
    """The function that begins the exchange of each client of a listener.

    Raises:
        ConfigError: the keytab, the principal or a rule cannot be used; `key` is the jaas.config.
    """
    gssapi = _package("sasl.enabled.mechanisms")
    for name in ("keyTab", "principal"):
        if not options.get(name):
            raise ConfigError(f"{key}: must have {name}, for GSSAPI")
    principal = options["principal"]
    if service is not None and not principal.startswith(f"{service}/"):
        raise ConfigError(
            f"sasl.kerberos.service.name={service}: must be the first part of the principal of "
            f"{key}, {principal}"
        )
    try:
        kerberos = gssapi.MechType.kerberos
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal).canonicalize(kerberos)
        credentials = gssapi.Credentials(
            name=name, usage="accept", mechs=[kerberos], store={"keytab": options["keyTab"]}
        )
    except gssapi.exceptions.GSSError as error:
        raise ConfigError(
            f"{key}: the keytab {options['keyTab']} cannot be used for {principal}: "
            f"{_explained(error)}"
        ) from None
    names = ShortNames(rules, str(name).rpartition("@")[2])
    new_context = partial(gssapi.SecurityContext, creds=credentials, usage="accept")
    return partial(GssapiServer, new_context, names)


async def gssapi_client(login: SaslLogin, runtime: Runtime, host: str) -> GssapiClient:
    """An exchange with a broker; the ticket for it is asked for in the background.

    Raises:
        SaslAuthenticationError: there is no ticket to be had.
    """
    return await runtime.background.run(partial(_begin, login.options, host))


def _begin(options: Mapping[str, str], host: str) -> GssapiClient:
    gssapi = _package("sasl.mechanism")
    kerberos, flags = gssapi.MechType.kerberos, gssapi.RequirementFlag
    store: dict[str, str] = {}
    if options.get("useKeyTab", "").lower() == TRUE or "keyTab" in options:
        principal = options.get("principal", "")
        store = {"client_keytab": options["keyTab"], "ccache": f"MEMORY:ottla-{principal}"}
    elif "ticketCache" in options:
        store = {"ccache": options["ticketCache"]}
    try:
        name = None
        if options.get("principal"):
            name = gssapi.Name(options["principal"], gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(
            name=name, usage="initiate", mechs=[kerberos], store=store or None
        )
        service = f"{options['serviceName']}@{host}"
        context = gssapi.SecurityContext(
            name=gssapi.Name(service, gssapi.NameType.hostbased_service),
            creds=credentials,
            mech=kerberos,
            flags=flags.mutual_authentication | flags.integrity,
            usage="initiate",
        )
        return GssapiClient(context, bytes(context.step() or b""))
    except gssapi.exceptions.GSSError as error:
        what = f"no ticket for {options['serviceName']} at {host}"
        raise SaslAuthenticationError(f"{what}: {_explained(error)}") from None
