"""The contexts of OpenSSL for ssl.* settings; ConfigError where keys or certificates do not fit.

Files are read again when they have changed: a client looks before it connects, a broker every few
seconds. Unusable files change nothing: connections are made with the stores that were read before.

Keys that are given as text reach OpenSSL, which reads files only, through a file in memory, so that
they are never on a disk. Where a system has no such files, it is one that only this user can read,
and that goes once OpenSSL has read it.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.config.ssl_config import (
    HTTPS,
    TLS_1_2,
    TLS_1_3,
    ListenerSslSettings,
    SslSettings,
    ssl_settings,
)
from ottla.errors import ConfigError
from ottla.network.listener_security import LAYERS
from ottla.network.tls_stores import certificate_of, load_key, load_trusted
from ottla.network.tls_transport import TlsTransport
from ottla.network.transport import TlsSide
from ottla.runtime import Background
from ottla.security.principal import ANONYMOUS, KafkaPrincipal
from ottla.security.ssl_principal_mapper import SslPrincipalMapper
from ottla.structs import Value

if TYPE_CHECKING:
    from ottla.config.client_config import ClientConfig
    from ottla.security.certificate import Certificate

CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
TLS_1_3_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
logger = logging.getLogger(__name__)


S = TypeVar("S", bound=SslSettings)
Fingerprint = tuple[tuple[int, ...] | None, ...]
EXPIRY_WARNING_DAYS: Final = (30, 7, 1)
_DAY_MS: Final = 24 * 3600 * 1000


class TlsStores(Value, frozen=True):
    """The content of a key store and a trust store at one time."""

    context: ssl.SSLContext
    """The context of connections that are accepted, or made by a client."""

    certificate: Certificate | None
    """The own one; None where there is no key store."""

    outgoing: ssl.SSLContext | None = None
    """The context of a broker's connections to others, on the listener of the brokers."""

    trial: ssl.SSLContext | None = None
    """The same without a check of the host, for a handshake of the broker with itself."""


class StoreReading(Value, Generic[S], frozen=True):
    """The outcome of reading changed files: stores, or why they cannot be used."""

    settings: S
    seen: Fingerprint
    stores: TlsStores | None
    error: str = ""


class FollowedTls(Generic[S]):
    """One side of TLS, which follows its files.

    Invariant: `stores` were read whole and fit together; unusable files change nothing.

    Those that were refused are read again at each look, whether or not they change: a certificate
    begins to hold, permissions are given, a process has a descriptor again.
    """

    def __init__(self, what: str, settings: S, read: Callable[[S], TlsStores]) -> None:
        self.what = what
        """Its name in log lines."""

        self.settings = settings
        self.rejected_count = 0
        """How often changed files could not be used."""

        self._read = read
        self._wanted = settings
        self._refusal = ""
        self._seen = fingerprint(settings)
        self.stores = read(settings)

    @property
    def context(self) -> ssl.SSLContext:
        """The context of connections that are made from now on."""
        return self.stores.context

    def read_changed(self) -> StoreReading[S] | None:
        """Read the files if they have changed or were refused; for a thread of the background."""
        settings, seen = self._wanted, fingerprint(self._wanted)
        if seen == self._seen and not self._refusal:
            return None
        try:
            stores = self._read(settings)
            if fingerprint(settings) != seen:  # key and certificate may be of different files
                return None
            self.check(settings, stores)  # here: signatures with long keys take long
        except ConfigError as error:
            return StoreReading(settings, seen, None, error.message)
        return StoreReading(settings, seen, stores)

    def take(self, reading: StoreReading[S]) -> None:
        """Use new stores, or log why they cannot be used, once for each change of the files."""
        is_known = reading.seen == self._seen
        if reading.settings is not self._wanted or (is_known and not self._refusal):
            return
        if not (error := reading.error):
            self._use(reading)
        elif not is_known or error != self._refusal:
            self.refuse(reading.settings, reading.seen, error)
            logger.error("%s: changed files are not used, the old ones stay: %s", self.what, error)

    def refuse(self, settings: S, seen: Fingerprint, reason: str) -> None:
        """Keep the stores in use, and look at these again later."""
        self.rejected_count += 1
        self._wanted, self._seen, self._refusal = settings, seen, reason

    def check(self, settings: S, stores: TlsStores) -> None:
        """ConfigError where these stores may not take the place of those in use."""

    def _use(self, reading: StoreReading[S]) -> None:
        assert reading.stores is not None
        self.settings = self._wanted = reading.settings
        self.stores, self._seen, self._refusal = reading.stores, reading.seen, ""
        own = self.stores.certificate
        about = f": {own.subject}, until {_day(own.not_after_ms)}" if own is not None else ""
        logger.info("%s: new connections have the changed certificates%s", self.what, about)


class ClientTls(FollowedTls[SslSettings]):
    """TLS of a client: each connection is made with the content of the files then."""

    def __init__(self, settings: SslSettings, what: str = "client") -> None:
        super().__init__(what, settings, client_stores)

    async def current(self, background: Background) -> ssl.SSLContext:
        """The context for a connection that is made now."""
        if self._seen:
            reading = await background.run(self.read_changed)
            if reading is not None:
                self.take(reading)
        return self.context

    def current_thread(self) -> ssl.SSLContext:
        """The same, for the one thread that makes connections and may wait for files."""
        reading = self.read_changed() if self._seen else None
        if reading is not None:
            self.take(reading)
        return self.context


class ListenerTls(FollowedTls[ListenerSslSettings]):
    """TLS of one listener: the stores of handshakes, and how clients are named after them.

    With `serves_brokers` the broker also connects to others with it: it shows the certificate of
    that listener, and trusts the listener's authorities. With `has_login` clients are named by
    SASL.
    """

    def __init__(
        self,
        settings: ListenerSslSettings,
        what: str = "listener SSL",
        *,
        serves_brokers: bool = False,
        has_login: bool = False,
    ) -> None:
        self._mapper = SslPrincipalMapper(settings.ssl_principal_mapping_rules)
        self._has_login = has_login
        self._warned = 0
        super().__init__(what, settings, brokers_stores if serves_brokers else listener_stores)

    def transport(self, endpoint: socket.socket, side: TlsSide) -> TlsTransport:
        """The socket of a client that has just come; its handshake is with the files by now."""
        return TlsTransport(endpoint, self.context, side)

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """The principal of a client that has shown this certificate, in DER, or none.

        Raises:
            NoMatchingRuleError: no mapping rule matches the name in it.
            ValueError: it cannot be read.
        """
        if certificate is None or self._has_login:
            return ANONYMOUS
        from ottla.security.certificate import Certificate

        return KafkaPrincipal.user(self._mapper.name_of(Certificate.parse(certificate).subject))

    async def current(self, _: Background) -> ssl.SSLContext:
        """The context for a connection to another broker that is made now."""
        assert self.stores.outgoing is not None, "brokers do not connect by this listener"
        return self.stores.outgoing

    def try_settings(
        self, settings: ListenerSslSettings, keeps_rules: bool = True
    ) -> StoreReading[ListenerSslSettings]:
        """Read the files that other settings name; ConfigError where it may not be used."""
        seen = fingerprint(settings)
        stores = self._read(settings)
        if keeps_rules:
            self.check(settings, stores)
        return StoreReading(settings, seen, stores)

    def follow(self, settings: ListenerSslSettings, keeps_rules: bool) -> None:
        """Use the files of changed settings; or keep the stores in use, where that cannot be."""
        try:
            self._use(self.try_settings(settings, keeps_rules))
        except ConfigError as error:
            self.refuse(settings, fingerprint(settings), error.message)
            logger.error("%s: settings have no effect yet: %s", self.what, error.message)

    def check(self, settings: ListenerSslSettings, stores: TlsStores) -> None:
        """A certificate keeps its name and its hosts, and brokers must trust each other (KIP-226).

        `ssl.allow.dn.changes` and `ssl.allow.san.changes` lift the first two. Once the stores in
        use do not trust themselves, as they have expired, no broker can connect with them: only the
        new ones must.
        """
        before, after = self.stores.certificate, stores.certificate
        if before is not None and after is not None:
            if before.subject != after.subject and not settings.ssl_allow_dn_changes:
                raise ConfigError(
                    f"the certificate is of {after.subject}, and that in use of {before.subject}; "
                    "ssl.allow.dn.changes=true permits it"
                )
            lost = before.alternative_names - after.alternative_names
            if lost and not settings.ssl_allow_san_changes:
                raise ConfigError(
                    f"the certificate of {after.subject} lacks {len(lost)} of the names that the "
                    "one in use has (subjectAltName); ssl.allow.san.changes=true permits it"
                )
        if has_trust_store(self.settings) != has_trust_store(settings):
            raise ConfigError("a trust store cannot be added or removed while the broker runs")
        if stores.trial is None:
            return
        in_use = stores if distrust(self.stores, self.stores) else self.stores
        if reason := distrust(in_use, stores) or distrust(stores, in_use):
            raise ConfigError(
                f"the certificates in use and the changed ones do not trust each other ({reason}), "
                "as those of brokers must; the trust store must hold the old authority and the "
                "new one first"
                if in_use is not stores
                else f"the changed certificates do not trust themselves ({reason})"
            )

    def days_left(self, now_ms: int) -> float:
        """How long the certificate holds, in days; negative once it has expired."""
        own = self.stores.certificate
        assert own is not None, "a listener has a certificate"
        return (own.not_after_ms - now_ms) / _DAY_MS

    def warn_of_expiry(self, now_ms: int) -> None:
        """Log that the certificate ends within 30, 7 or 1 days, and that it has; each once."""
        own = self.stores.certificate
        if own is None:
            return
        end, left_days = _day(own.not_after_ms), self.days_left(now_ms)
        passed = sum(left_days <= days for days in (*EXPIRY_WARNING_DAYS, 0))
        if passed > self._warned and left_days <= 0:
            logger.error("%s: the certificate of %s has expired, %s", self.what, own.subject, end)
        elif passed > self._warned:
            logger.warning(
                "%s: the certificate of %s expires in %.1f days, %s",
                self.what,
                own.subject,
                left_days,
                end,
            )
        self._warned = passed


def fingerprint(settings: SslSettings) -> Fingerprint:
    """The identity of the files, by which changes are known; empty without files."""
    locations = (settings.ssl_keystore_location, settings.ssl_truststore_location)
    return tuple(_identity(path) for path in locations if path is not None)


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        stat = os.stat(path)
    except (OSError, ValueError):  # a name may hold a NUL
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def client_stores(settings: SslSettings) -> TlsStores:
    """Read the stores of a client."""
    return TlsStores(client_context(settings), certificate_of(settings))


def listener_stores(settings: ListenerSslSettings) -> TlsStores:
    """Read the stores of a listener that only clients use."""
    return TlsStores(server_context(settings), certificate_of(settings))


def brokers_stores(settings: ListenerSslSettings) -> TlsStores:
    """Read the stores of the listener by which brokers connect to each other."""
    outgoing, trial = client_context(settings), client_context(settings)
    trial.check_hostname = False
    return TlsStores(server_context(settings), certificate_of(settings), outgoing, trial)


def has_trust_store(settings: SslSettings) -> bool:
    """Whether settings say whom to trust, so that the system's authorities do not count."""
    named = settings.ssl_truststore_location, settings.ssl_truststore_certificates
    return named != (None, None)


def distrust(server: TlsStores, client: TlsStores) -> str:
    """The reason why the two sides do not trust each other; empty where they do, or have no TLS."""
    if server.trial is None or client.trial is None:
        return ""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.context.wrap_bio(to_server, to_client, server_side=True),
        client.trial.wrap_bio(to_client, to_server),
    ]
    try:
        # Enough messages for any handshake; the sides that are done have nothing to say.
        for side in sides * 4:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    except ssl.SSLError as error:
        return getattr(error, "verify_message", "") or error.reason
    return ""


def _day(moment_ms: int) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def server_context(settings: ListenerSslSettings) -> ssl.SSLContext:
    """A listener's context, with a key, and a trust store where it asks for certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # One that closes its side without a goodbye still reads its answers, as without TLS.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # OpenSSL 3 has it
    _restrict(context, settings)
    if not load_key(context, settings):
        raise ConfigError(
            "ssl.keystore.location: must be set for a listener of the protocol SSL, or "
            "ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    context.verify_mode = CLIENT_AUTH[settings.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        load_trusted(context, settings, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: SslSettings) -> ssl.SSLContext:
    """A client's context: the peer must be trusted; a key is for brokers that ask for one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings)
    context.check_hostname = settings.ssl_endpoint_identification_algorithm.lower() == HTTPS
    load_key(context, settings)
    load_trusted(context, settings, ssl.Purpose.SERVER_AUTH)
    return context


def client_tls(config: ClientConfig) -> ClientTls | None:
    """The TLS that a client connects with; None where security.protocol is without SSL."""
    return ClientTls(ssl_settings(config)) if LAYERS[config.security_protocol].tls else None


def _restrict(context: ssl.SSLContext, settings: SslSettings) -> None:
    """Versions and cipher suites; renegotiation would let one side keep the other busy."""
    context.options |= ssl.OP_NO_RENEGOTIATION
    versions = [VERSIONS[name] for name in settings.ssl_enabled_protocols]
    suites = settings.ssl_cipher_suites
    if suites:
        if not TLS_1_3_SUITES.intersection(suites):
            versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_3]
        elif set(suites) <= TLS_1_3_SUITES:
            versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_2]
        _choose_suites(context, suites, versions)
    if not versions:
        raise ConfigError(
            f"ssl.cipher.suites={','.join(suites)}: must have one for a version of "
            f"ssl.enabled.protocols, {','.join(settings.ssl_enabled_protocols)}"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _choose_suites(
    context: ssl.SSLContext, suites: tuple[str, ...], versions: list[ssl.TLSVersion]
) -> None:
    missing = TLS_1_3_SUITES.difference(suites)
    if ssl.TLSVersion.TLSv1_3 in versions and missing:
        raise ConfigError(
            f"ssl.cipher.suites={','.join(suites)}: must name all suites of TLSv1.3 or none, as "
            f"Python cannot choose among them; {', '.join(sorted(missing))} is missing"
        )
    older = [suite for suite in suites if suite not in TLS_1_3_SUITES]
    for suite in older:
        try:
            context.set_ciphers(openssl_name(suite))
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites={suite}: must be a suite that OpenSSL offers"
            ) from None
    if older:
        context.set_ciphers(":".join(map(openssl_name, older)))


def openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256 there."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, rest = suite.removeprefix("TLS_").partition("_WITH_")
    rest = re.sub(r"AES_(\d+)", r"AES\1", rest).replace("_CBC", "")
    rest = rest.replace("POLY1305_SHA256", "POLY1305")
    prefix = "" if exchange == "RSA" else f"{exchange}-"
    return (prefix + rest).replace("_", "-")
