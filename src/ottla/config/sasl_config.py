"""SASL: which mechanisms a listener has, whose passwords it knows, and a client's own login.

`listener.name.<name>.<mechanism>.sasl.jaas.config`, name and mechanism in lower case, holds what
one mechanism of one listener needs, in the form that Java's login modules have (JAAS). OAUTHBEARER
has settings besides: which tokens a listener takes, and where a client gets its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Self

from ottla.config.config_def import LOW, ConfigTable, config_key, dotted
from ottla.config.config_type import (
    CLASS,
    INT,
    INT_MAX,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    Password,
    at_least,
    between,
    not_empty,
)
from ottla.config.known_keys import shown
from ottla.config.network_config import NetworkConfig, is_sasl
from ottla.config.ssl_config import ListenerSslConfig
from ottla.config.zookeeper_config import ZooKeeperConfig
from ottla.errors import ConfigError
from ottla.structs import Value, field

OAUTHBEARER: Final = "OAUTHBEARER"
OAUTH_PREFIX: Final = "sasl.oauthbearer."
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"

UNSECURED: Final = "unsecured"
"""How the options of a JAAS entry begin that are for tokens without a signature."""

_VALIDATOR_OPTIONS: Final = {
    "unsecuredValidatorPrincipalClaimName": "sub",
    "unsecuredValidatorScopeClaimName": "scope",
    "unsecuredValidatorRequiredScope": "",
    "unsecuredValidatorAllowableClockSkewMs": "0",
}


def checked_url(key: str, url: str) -> str:
    """The URL; ConfigError for one that would be read in the clear, or not at all."""
    begins = url.partition("://")[0] in ("https", "file") and not url.endswith("://")
    if not begins or (url.startswith("file://") and not url.startswith("file:///")):
        raise ConfigError(f"{key}={url}: must begin with https:// or file:///")
    return url


class OAuthBearerConfig(ConfigTable, group=True):
    """Where a side that logs in gets its token; JAAS options may say the same."""

    sasl_oauthbearer_token_endpoint_url: str | None = config_key(
        default=None,
        type=STRING,
        doc="Where a token is asked for by the grant client_credentials (https), or the file that "
        "holds one (file:///).",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = config_key(
        default=None,
        type=STRING,
        doc="The client's name there; clientId in sasl.jaas.config is the same.",
    )
    sasl_oauthbearer_client_credentials_client_secret: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="The client's secret there; clientSecret in sasl.jaas.config is the same.",
    )
    sasl_oauthbearer_scope: str | None = config_key(
        default=None,
        type=STRING,
        doc="The scope that is asked for; scope in sasl.jaas.config is the same.",
    )


class OAuthBearerListenerConfig(OAuthBearerConfig, group=True):
    """Which tokens a listener takes; `listener.name.<name>.oauthbearer.` may stand before each."""

    sasl_oauthbearer_jwks_endpoint_url: str | None = config_key(
        default=None,
        type=STRING,
        doc="Where the keys are that tokens are signed with (JSON Web Key Set): https, or file:///."
        " Needs `pip install ottla[oauth]`.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = config_key(
        default=3600000,
        type=LONG,
        rule=at_least(1000),
        importance=LOW,
        doc="How often the keys are read again.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = config_key(
        default=(),
        type=LIST,
        importance=LOW,
        doc="A token must be for one of these (aud). Empty: for anybody.",
    )
    sasl_oauthbearer_expected_issuer: str | None = config_key(
        default=None,
        type=STRING,
        importance=LOW,
        doc="Who must have issued a token (iss). Unset: anybody whose keys are known.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = config_key(
        default=30,
        type=INT,
        rule=at_least(0),
        importance=LOW,
        doc="How much the clocks of broker and authority may differ.",
    )
    sasl_oauthbearer_scope_claim_name: str = config_key(
        default="scope",
        type=STRING,
        rule=not_empty(),
        importance=LOW,
        doc="The claim with the scope of a token.",
    )
    sasl_oauthbearer_sub_claim_name: str = config_key(
        default="sub",
        type=STRING,
        rule=not_empty(),
        importance=LOW,
        doc="The claim with the name of the client.",
    )


class OAuthBearerSettings(OAuthBearerListenerConfig):
    """What holds for tokens on one listener."""


def oauth_login_options(
    key: str, values: Mapping[str, Any], options: Mapping[str, str]
) -> dict[str, str]:
    """What a side logs in with: JAAS options, and what the values (by attribute) say.

    Raises:
        ConfigError: they name no source of a token, or half of one. `key` is that of the options.
    """
    secret = values["sasl_oauthbearer_client_credentials_client_secret"]
    merged = {
        "clientId": values["sasl_oauthbearer_client_credentials_client_id"],
        "clientSecret": secret and secret.value,
        "scope": values["sasl_oauthbearer_scope"],
        "url": values["sasl_oauthbearer_token_endpoint_url"],
        **options,
    }
    found = {name: text for name, text in merged.items() if text}
    url = found.get("url")
    if url is None:
        if not any(name.startswith(UNSECURED) for name in options):
            raise ConfigError(
                f"{TOKEN_URL}: must be set for OAUTHBEARER; for tests, {key} may have "
                'unsecuredLoginStringClaim_sub="<name>"'
            )
        return found
    checked_url(TOKEN_URL, url)
    for name in ("clientId", "clientSecret") if url.startswith("https:") else ():
        if name not in found:
            raise ConfigError(f"{key}: must have {name}, as {TOKEN_URL} is set")
    return found


def check_tokens_are_verified(
    key: str, values: Mapping[str, Any], options: Mapping[str, str]
) -> None:
    """ConfigError for a listener that has no keys, unless it asks for unsecured tokens."""
    url = values["sasl_oauthbearer_jwks_endpoint_url"]
    if url is not None:
        checked_url(JWKS_URL, url)
        return
    asked = [name for name in options if name.startswith(UNSECURED)]
    if not asked:
        raise ConfigError(
            f"{JWKS_URL}: must be set for OAUTHBEARER, as tokens are verified by the keys there; "
            f"for tests, {key} may have unsecuredValidatorPrincipalClaimName, and tokens without "
            "a signature are taken"
        )
    for name in asked:
        if name.startswith("unsecuredValidator") and name not in _VALIDATOR_OPTIONS:
            raise ConfigError(f"{key}: {name} must be one of {', '.join(_VALIDATOR_OPTIONS)}")
    skew = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise ConfigError(f"{key}: unsecuredValidatorAllowableClockSkewMs={skew} must be a number")


def unsecured_option(options: Mapping[str, str], name: str) -> str:
    """An option for tokens without a signature, or its default."""
    return options.get(name, _VALIDATOR_OPTIONS[name])


PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
GSSAPI: Final = "GSSAPI"

LOGIN_MODULES: Final[Mapping[str, str]] = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
"""The mechanisms, and the class that Kafka's files name for each."""

NEEDS_ENTRY: Final = {PLAIN: "its users", GSSAPI: "its keytab and its principal"}
"""The mechanisms of a listener that cannot be without a `sasl.jaas.config`, and what it holds."""

NEEDS_OF_LOGIN: Final[Mapping[str, tuple[str, ...]]] = {
    PLAIN: ("username", "password"),
    SCRAM_SHA_256: ("username", "password"),
    SCRAM_SHA_512: ("username", "password"),
    OAUTHBEARER: (),
    GSSAPI: (),
}
"""The options without which a mechanism cannot log in."""

CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


# JAAS: `<module class> required key="value" ...;`


class JaasEntry(Value, frozen=True):
    """One login module and its options, which are secrets, or may be."""

    module: str
    options: Mapping[str, str] = field(repr=False)


_TOKEN: Final = (
    r"(?s)\s+|//[^\n]*|/\*.*?\*/"
    r"|(?P<quoted>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<word>[\w.$+-]+)|(?P<sign>[=;])|(?P<other>.)"
)
_ESCAPE: Final = r"(?s)\\([0-7]{1,3}|.)"
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def parse_jaas(key: str, text: str) -> JaasEntry:
    """Read the value of a `sasl.jaas.config`; it is data, and no class is ever loaded.

    Raises:
        ConfigError: it is not one module with its options. The value is not shown.
    """
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[1].lower() not in CONTROL_FLAGS or tokens[-1] != ";":
        raise _not_jaas(key, 'must be <login module> required <name>="<value>" ... ;')
    module, _, *rest = tokens[:-1]
    if ";" in rest:
        raise _not_jaas(key, "must have exactly one login module")
    if len(rest) % 3 or any(sign != "=" for sign in rest[1::3]):
        raise _not_jaas(key, 'must have its options as <name>="<value>"')
    return JaasEntry(
        module,
        {_unquoted(name): _unquoted(rest[3 * index + 2]) for index, name in enumerate(rest[::3])},
    )


def _tokens(text: str) -> Iterator[str]:
    for match in re.finditer(_TOKEN, text):
        if match.lastgroup is not None:
            yield match[0]


def _unquoted(token: str) -> str:
    if token[0] not in "\"'":
        return token
    return re.sub(_ESCAPE, _unescaped, token[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    letter = match[1]
    return chr(int(letter, 8)) if letter[0] in "01234567" else _ESCAPED.get(letter, letter)


def _not_jaas(key: str, rule: str) -> ConfigError:
    return ConfigError(f"{key}=[hidden]: {rule}")


def require_module(key: str, entry: JaasEntry, mechanism: str) -> None:
    """ConfigError unless the entry is for the mechanism."""
    expected = LOGIN_MODULES[mechanism]
    if entry.module != expected:
        raise ConfigError(
            f"{key}: must name the login module of {mechanism}, {expected}, not {entry.module}"
        )


USER_OPTION: Final = "user_"


def users_of(entry: JaasEntry) -> dict[str, str]:
    """The passwords by name: `user_<name>="<password>"` of PLAIN's entry."""
    return {
        name.removeprefix(USER_OPTION): password
        for name, password in entry.options.items()
        if name.startswith(USER_OPTION)
    }


# Delegation tokens


class DelegationTokenConfig(ConfigTable, group=True):
    """Passwords for a while, which brokers make for their clients (KIP-48)."""

    delegation_token_secret_key: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="The secret that makes the passwords of delegation tokens, the same on all brokers. "
        "Unset, there are no tokens. A change ends all tokens.",
    )
    delegation_token_master_key: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="What Kafka calls delegation.token.secret.key before 2.8.",
    )
    delegation_token_max_lifetime_ms: int = config_key(
        default=7 * 24 * 3600 * 1000,
        type=LONG,
        rule=at_least(1),
        doc="How long a token lives at most, however often it is renewed.",
    )
    delegation_token_expiry_time_ms: int = config_key(
        default=24 * 3600 * 1000,
        type=LONG,
        rule=at_least(1),
        doc="How long a token is good before it has to be renewed.",
    )
    delegation_token_expiry_check_interval_ms: int = config_key(
        default=3600 * 1000,
        type=LONG,
        rule=at_least(1),
        importance=LOW,
        doc="How often tokens that have ended are removed; nobody can log in with one before that.",
    )

    @property
    def delegation_token_secret(self) -> bytes:
        """The secret; empty where there are no tokens."""
        key = self.delegation_token_secret_key or self.delegation_token_master_key
        return b"" if key is None else key.value.encode()

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        new, old = values["delegation_token_secret_key"], values["delegation_token_master_key"]
        if new is not None and old is not None and new != old:
            raise ConfigError(
                "delegation.token.master.key=[hidden]: must not be set to something else than "
                "delegation.token.secret.key"
            )


# A listener


class SaslSettings(Value, frozen=True):
    """What holds on one listener."""

    mechanisms: tuple[str, ...]
    entries: Mapping[str, JaasEntry]
    """By mechanism; not all need one."""
    max_reauth_ms: Mapping[str, int]
    """By mechanism: how long a session may last, 0 without limit."""
    oauth: OAuthBearerSettings | None
    """Which tokens OAUTHBEARER takes, where it is among the mechanisms."""
    kerberos_service: str | None = None
    """The first part of this broker's own principal, where that is said."""
    kerberos_rules: str = "DEFAULT"


_OF_LISTENER: Final = (
    r"listener\.name\.(?P<listener>.+?)\."
    r"(?:(?P<mechanism>plain|scram-sha-256|scram-sha-512|gssapi|oauthbearer)\.)?"
    r"(?P<key>sasl\.enabled\.mechanisms|sasl\.jaas\.config|connections\.max\.reauth\.ms"
    + "".join("|" + re.escape(name) for name in OAuthBearerListenerConfig.keys)
    + ")"
)


class ListenerSaslConfig(
    DelegationTokenConfig,
    OAuthBearerListenerConfig,
    NetworkConfig,
    ZooKeeperConfig,
    ListenerSslConfig,
    group=True,
):
    """SASL of all listeners, and what single ones, or their mechanisms, override."""

    sasl_enabled_mechanisms: tuple[str, ...] = config_key(
        default=(GSSAPI,),
        type=LIST,
        doc="The mechanisms of SASL listeners, of " + ", ".join(LOGIN_MODULES) + ". GSSAPI "
        "needs `pip install ottla[kerberos]`.",
    )
    sasl_mechanism_inter_broker_protocol: str = config_key(
        default=GSSAPI,
        type=STRING,
        doc="The mechanism by which brokers log in to each other, where their listener is a SASL "
        "one. It must be among the listener's; its login is in the listener's sasl.jaas.config.",
    )
    sasl_kerberos_service_name: str | None = config_key(
        default=None,
        type=STRING,
        doc="The first part of the principals of brokers, kafka of kafka/host@REALM; for the "
        "logins of brokers to each other by GSSAPI.",
    )
    sasl_kerberos_principal_to_local_rules: str = config_key(
        default="DEFAULT",
        type=STRING,
        doc="How a name of Kerberos becomes that of a principal. Rules with commas between, of "
        "which the first counts that fits: RULE:[n:form], then the regex in parentheses, then "
        "s/from/to/ with g, /L or /U behind it where wanted; or DEFAULT, the first part of a name "
        "of the broker's own realm. The regexes are Python's.",
    )
    sasl_server_max_receive_size: int = config_key(
        default=524288,
        type=INT,
        rule=at_least(1),
        doc="The largest request of a client that is not authenticated yet.",
    )
    connections_max_reauth_ms: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(0),
        doc="How long the session of a client lasts that was authenticated by SASL: it must "
        "authenticate again within that time, or is closed (KIP-368). 0 is no limit.",
    )
    connection_failed_authentication_delay_ms: int = config_key(
        default=100,
        type=INT,
        rule=between(0, INT_MAX),
        importance=LOW,
        doc="How long a client that could not be authenticated waits for its answer and its end.",
    )

    __slots__ = ("_sasl_overrides",)
    _sasl_overrides: Mapping[str, Any]

    @classmethod
    def parse(cls, settings: Mapping[str, Any] | None = None, **keywords: Any) -> Self:
        given = dotted(settings, keywords)
        overrides = {
            name: given.pop(name) for name in list(given) if re.fullmatch(_OF_LISTENER, name)
        }
        config = super().parse(given)
        object.__setattr__(config, "_sasl_overrides", overrides)
        config._check_sasl()
        return config

    def replace(self, **changes: Any) -> Self:
        changed = super().replace(**changes)
        object.__setattr__(changed, "_sasl_overrides", self._sasl_overrides)
        return changed

    def with_listener_settings(self, overrides: Mapping[str, Any]) -> Self:
        of_sasl = {name: overrides[name] for name in overrides if re.fullmatch(_OF_LISTENER, name)}
        others = {name: overrides[name] for name in overrides.keys() - of_sasl.keys()}
        changed = super().with_listener_settings(others)
        object.__setattr__(changed, "_sasl_overrides", {**self._sasl_overrides, **of_sasl})
        changed._check_sasl()
        return changed

    def _freeze(self, values: dict[str, Any], given: frozenset[str]) -> None:
        super()._freeze(values, given)
        object.__setattr__(self, "_sasl_overrides", {})

    @property
    def sasl_listeners(self) -> tuple[str, ...]:
        """The names of the listeners whose clients must log in."""
        return tuple(
            each.listener_name for each in self.listeners if is_sasl(each.security_protocol)
        )

    def sasl_of(self, listener_name: str) -> SaslSettings:
        """The mechanisms of a listener and what they need; ConfigError where that is missing."""
        key, mechanisms = self._override(
            listener_name, "", "sasl.enabled.mechanisms", self.sasl_enabled_mechanisms
        )
        if not mechanisms:
            raise ConfigError(f"{key}=: must name a mechanism, of {', '.join(LOGIN_MODULES)}")
        entries = {}
        for mechanism in mechanisms:
            if mechanism not in LOGIN_MODULES:
                text = "" if key in self._sasl_overrides or self.is_given(key) else " (the default)"
                raise ConfigError(
                    f"{key}={mechanism}{text}: must be one or more of {', '.join(LOGIN_MODULES)}"
                )
            entry = self._entry(listener_name, mechanism)
            if entry is not None:
                entries[mechanism] = entry
        key = "connections.max.reauth.ms"
        reauth = {
            each: self._override(listener_name, each, key, self.connections_max_reauth_ms)[1]
            for each in mechanisms
        }
        oauth = self._oauth_of(listener_name) if OAUTHBEARER in mechanisms else None
        return SaslSettings(
            tuple(mechanisms),
            entries,
            reauth,
            None if oauth is None else OAuthBearerSettings(**oauth),
            self.sasl_kerberos_service_name,
            self.sasl_kerberos_principal_to_local_rules,
        )

    def _oauth_of(self, listener_name: str) -> dict[str, Any]:
        """What holds for tokens on a listener, by attribute; ConfigError where it is not enough."""
        given = {
            row.attribute: self._override(
                listener_name, OAUTHBEARER, name, getattr(self, row.attribute)
            )[1]
            for name, row in OAuthBearerListenerConfig.keys.items()
        }
        entry = self._entry(listener_name, OAUTHBEARER)
        key = _prefix(listener_name, OAUTHBEARER) + "sasl.jaas.config"
        check_tokens_are_verified(key, given, entry.options if entry else {})
        return given

    def inter_broker_login(self) -> SaslLogin | None:
        """How this broker logs in to others; None where their listener asks for no login."""
        listener = self.inter_broker_listener_name
        if listener not in self.sasl_listeners:
            return None
        key, mechanism = (
            "sasl.mechanism.inter.broker.protocol",
            self.sasl_mechanism_inter_broker_protocol,
        )
        enabled = self.sasl_of(listener).mechanisms
        if mechanism not in enabled:
            raise ConfigError(
                f"{key}={mechanism}: must be one of listener {listener}, {', '.join(enabled)}"
            )
        entry = self._entry(listener, mechanism)
        where = _prefix(listener, mechanism) + "sasl.jaas.config"
        if entry is None:
            raise ConfigError(f"{where}: must be set, for the login of this broker to others")
        if mechanism == OAUTHBEARER:
            given = self._oauth_of(listener)
            return SaslLogin(mechanism, oauth_login_options(where, given, entry.options))
        if mechanism == GSSAPI:
            options = kerberos_options(where, entry.options, self.sasl_kerberos_service_name)
            return SaslLogin(mechanism, options)
        return _login(where, mechanism, entry.options)

    def _entry(self, listener_name: str, mechanism: str) -> JaasEntry | None:
        key = _prefix(listener_name, mechanism) + "sasl.jaas.config"
        value = self._sasl_overrides.get(key)
        if value is None:
            if mechanism in NEEDS_ENTRY:
                held = NEEDS_ENTRY[mechanism]
                raise ConfigError(f"{key}: must be set, as {mechanism} has {held} there")
            return None
        entry = parse_jaas(key, PASSWORD.parse(key, value).value)
        require_module(key, entry, mechanism)
        return entry

    def _override(
        self, listener_name: str, mechanism: str, name: str, of_all: Any
    ) -> tuple[str, Any]:
        """A setting of a mechanism, or else of its listener, or of all; after its whole key."""
        row = type(self).keys[name]
        for prefix in (_prefix(listener_name, mechanism), _prefix(listener_name, "")):
            if prefix + name in self._sasl_overrides:
                try:
                    return prefix + name, row.parse(self._sasl_overrides[prefix + name])
                except ConfigError as error:
                    raise ConfigError(prefix + error.message) from None
        return name, of_all

    def _check_sasl(self) -> None:
        """What asks for a login must lead to one."""
        listeners = self.sasl_listeners
        for name in listeners:
            self.sasl_of(name)
        delay, idle = self.connection_failed_authentication_delay_ms, self.connections_max_idle_ms
        if listeners and 0 <= idle <= delay:
            raise ConfigError(
                f"connection.failed.authentication.delay.ms={delay}: must be less than "
                f"connections.max.idle.ms ({idle})"
            )
        asked = {name: self.text_of(name) for name in _OF_ALL if self.is_given(name)}
        for name, value in asked.items():
            if not listeners and value != type(self).keys[name].format(
                type(self).keys[name].default
            ):
                raise ConfigError(f"{name}={value}: must not be set; no listener {_NO_LISTENER}")
        for name, value in self._sasl_overrides.items():
            match = re.fullmatch(_OF_LISTENER, name)
            assert match is not None, "it was found by this pattern"
            if match["listener"].upper() not in listeners and str(value or "") not in _NOTHING:
                raise ConfigError(
                    f"{name}={shown(name, value)}: must not be set; "
                    f"no listener {match['listener'].upper()} {_NO_LISTENER}"
                )
        if self.zookeeper_connect is not None:
            self.inter_broker_login()


_OF_ALL: Final = (
    "sasl.enabled.mechanisms",
    "sasl.mechanism.inter.broker.protocol",
    "connections.max.reauth.ms",
)
_NOTHING: Final = ("", "0", GSSAPI)
_NO_LISTENER: Final = (
    "uses SASL (SASL_PLAINTEXT or SASL_SSL), so that clients would be served without credentials"
)


def sasl_key_of(name: str) -> str | None:
    """The key in the name of a listener's SASL setting; None for another setting."""
    match = re.fullmatch(_OF_LISTENER, name)
    return None if match is None else match["key"]


def _prefix(listener_name: str, mechanism: str) -> str:
    prefix = f"listener.name.{listener_name.lower()}."
    return f"{prefix}{mechanism.lower()}." if mechanism else prefix


# A client


class SaslLogin(Value, frozen=True):
    """A mechanism, and what it logs in with: the options of its login module."""

    mechanism: str
    options: Mapping[str, str] = field(repr=False)
    held: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """What a mechanism keeps from one login to the next, such as a token."""


def _login(key: str, mechanism: str, options: Mapping[str, str]) -> SaslLogin:
    for name in NEEDS_OF_LOGIN[mechanism]:
        if not options.get(name):
            raise ConfigError(f"{key}: must have {name}, for {mechanism}")
    return SaslLogin(mechanism, options)


class SaslClientConfig(OAuthBearerConfig, group=True):
    """The login of a client."""

    sasl_mechanism: str = config_key(
        default=GSSAPI,
        type=STRING,
        doc="How the client logs in, of " + ", ".join(LOGIN_MODULES) + ", where security.protocol "
        "is SASL_PLAINTEXT or SASL_SSL.",
    )
    sasl_jaas_config: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="The login in the form of Java's login modules: "
        '<login module> required username="<name>" password="<password>"; and nothing else.',
    )
    sasl_kerberos_service_name: str | None = config_key(
        default=None,
        type=STRING,
        doc="The first part of the brokers' principals, kafka of kafka/host@REALM, for GSSAPI.",
    )
    sasl_oauthbearer_token_source: Any = config_key(
        default=None,
        type=CLASS,
        doc="Gives tokens for OAUTHBEARER, in the place of a URL: a callable without arguments "
        "that returns one as text, or the import path of it. It may take its time: it is called "
        "in a thread, once for each token. Ottla's own setting.",
    )
    sasl_username: str | None = config_key(
        default=None,
        type=STRING,
        doc="The name to log in with, as librdkafka has it: in the place of sasl.jaas.config.",
    )
    sasl_password: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="The password, beside sasl.username.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        if is_sasl(values["security_protocol"]):
            _client_login(values)
            return
        for row in SaslClientConfig.keys.values():
            value = values[row.attribute]
            if value not in (None, "", row.default):
                raise ConfigError(
                    f"{row.name}={shown(row.name, value)}: must not be set with security.protocol="
                    f"{values['security_protocol']}, which would not use it; "
                    "SASL_SSL and SASL_PLAINTEXT do"
                )

    def sasl_login(self) -> SaslLogin | None:
        """The login; None where the protocol has none."""
        values = {row.attribute: getattr(self, row.attribute) for row in type(self).keys.values()}
        return _client_login(values) if is_sasl(values["security_protocol"]) else None


def kerberos_options(
    key: str, options: Mapping[str, str], service: str | None
) -> Mapping[str, str]:
    """The options of a login by Kerberos, with the service that it is for.

    Raises:
        ConfigError: the service is not named, or a keytab is asked for that is not.
    """
    service = service or options.get("serviceName")
    if not service:
        raise ConfigError(f"sasl.kerberos.service.name: must be set, or serviceName in {key}")
    if options.get("useKeyTab", "").lower() == "true":
        for name in ("keyTab", "principal"):
            if not options.get(name):
                raise ConfigError(f"{key}: must have {name}, with useKeyTab=true")
    return {**options, "serviceName": service}


def _oauth_login(values: Mapping[str, Any]) -> SaslLogin:
    options: Mapping[str, str] = {}
    if values["sasl_jaas_config"] is not None:
        entry = parse_jaas("sasl.jaas.config", values["sasl_jaas_config"].value)
        require_module("sasl.jaas.config", entry, OAUTHBEARER)
        options = entry.options
    source = values["sasl_oauthbearer_token_source"]
    if source is None:
        return SaslLogin(OAUTHBEARER, oauth_login_options("sasl.jaas.config", values, options))
    if not callable(source):
        raise ConfigError(f"sasl.oauthbearer.token.source={source}: must be callable")
    others = [
        name for name in OAuthBearerConfig.keys if values[OAuthBearerConfig.keys[name].attribute]
    ]
    if others or any(name.startswith("unsecured") for name in options):
        raise ConfigError(
            f"sasl.oauthbearer.token.source: must not be set together with "
            f"{', '.join(others) or 'unsecured tokens in sasl.jaas.config'}"
        )
    return SaslLogin(OAUTHBEARER, options, {"source": source})


def _kerberos_login(values: Mapping[str, Any]) -> SaslLogin:
    options: Mapping[str, str] = {}
    if values["sasl_jaas_config"] is not None:
        entry = parse_jaas("sasl.jaas.config", values["sasl_jaas_config"].value)
        require_module("sasl.jaas.config", entry, GSSAPI)
        options = entry.options
    for name in ("sasl_username", "sasl_password"):
        if values[name] is not None:
            raise ConfigError(
                f"{name.replace('_', '.')}: must not be set with sasl.mechanism=GSSAPI, which "
                "would not use it"
            )
    service = values["sasl_kerberos_service_name"]
    return SaslLogin(GSSAPI, kerberos_options("sasl.jaas.config", options, service))


def _client_login(values: Mapping[str, Any]) -> SaslLogin:
    mechanism, jaas = values["sasl_mechanism"], values["sasl_jaas_config"]
    if mechanism not in LOGIN_MODULES:
        raise ConfigError(
            f"sasl.mechanism={mechanism}: must be one of {', '.join(LOGIN_MODULES)} with "
            f"security.protocol={values['security_protocol']}"
        )
    username, password = values["sasl_username"], values["sasl_password"]
    if mechanism == OAUTHBEARER:
        return _oauth_login(values)
    if mechanism == GSSAPI:
        return _kerberos_login(values)
    if jaas is not None:
        if username is not None or password is not None:
            raise ConfigError("sasl.username: cannot be set together with sasl.jaas.config")
        entry = parse_jaas("sasl.jaas.config", jaas.value)
        require_module("sasl.jaas.config", entry, mechanism)
        return _login("sasl.jaas.config", mechanism, entry.options)
    options = {"username": username, "password": password and password.value}
    for name in NEEDS_OF_LOGIN[mechanism]:
        if not options.get(name):
            raise ConfigError(
                f"sasl.{name}: must be set for sasl.mechanism={mechanism}, or sasl.jaas.config"
            )
    return SaslLogin(mechanism, {name: text for name, text in options.items() if text})
