"""Settings of OAUTHBEARER, for listeners and for clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.config.config_def import LOW, ConfigTable, config_key
from ottla.config.config_type import LONG, Password
from ottla.config.rule import at_least, not_empty
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        doc="Where a token is asked for by the grant client_credentials (https), or the file that "
        "holds one (file:///).",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = config_key(
        default=None,
        doc="The client's name there; clientId in sasl.jaas.config is the same.",
    )
    sasl_oauthbearer_client_credentials_client_secret: Password | None = config_key(
        default=None,
        doc="The client's secret there; clientSecret in sasl.jaas.config is the same.",
    )
    sasl_oauthbearer_scope: str | None = config_key(
        default=None,
        doc="The scope that is asked for; scope in sasl.jaas.config is the same.",
    )


class OAuthBearerListenerConfig(OAuthBearerConfig, group=True):
    """A listener's tokens; `listener.name.<name>.oauthbearer.` may stand before each setting."""

    sasl_oauthbearer_jwks_endpoint_url: str | None = config_key(
        default=None,
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
        importance=LOW,
        doc="A token must be for one of these (aud). Empty: for anybody.",
    )
    sasl_oauthbearer_expected_issuer: str | None = config_key(
        default=None,
        importance=LOW,
        doc="Who must have issued a token (iss). Unset: anybody whose keys are known.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = config_key(
        default=30,
        rule=at_least(0),
        importance=LOW,
        doc="How much the clocks of broker and authority may differ.",
    )
    sasl_oauthbearer_scope_claim_name: str = config_key(
        default="scope",
        rule=not_empty(),
        importance=LOW,
        doc="The claim with the scope of a token.",
    )
    sasl_oauthbearer_sub_claim_name: str = config_key(
        default="sub",
        rule=not_empty(),
        importance=LOW,
        doc="The claim with the name of the client.",
    )


class OAuthBearerSettings(OAuthBearerListenerConfig):
    """The rules for tokens on one listener."""


def oauth_login_options(
    key: str, values: Mapping[str, Any], options: Mapping[str, str]
) -> dict[str, str]:
    """The options of a login: JAAS options, and the values (by attribute).

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
