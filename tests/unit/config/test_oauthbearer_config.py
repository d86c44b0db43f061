"""The settings of OAUTHBEARER: no listener takes tokens that nobody verifies by mistake."""

from __future__ import annotations

import re

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.client_config import AdminConfig
from ottla.errors import ConfigError

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PREFIX = "listener.name.sasl_ssl.oauthbearer."
LISTENER = {"listeners": "SASL_SSL://:9092", "sasl.enabled.mechanisms": "OAUTHBEARER"}
JWKS = {"sasl.oauthbearer.jwks.endpoint.url": "https://host/keys"}
CLIENT = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL = "sasl.oauthbearer.token.endpoint.url"


def jaas(**options: str) -> str:
    pairs = " ".join(f'{name}="{text}"' for name, text in options.items())
    return f"{MODULE} required {pairs};"


def test_what_a_listener_overrides_wins():
    """The prefix is that of the mechanism, or of the listener; the rest holds for all."""
    config = BrokerConfig.parse(
        {
            **LISTENER,
            **JWKS,
            PREFIX + "sasl.oauthbearer.expected.audience": "a,b",
            "listener.name.sasl_ssl.sasl.oauthbearer.sub.claim.name": "email",
            PREFIX + "sasl.server.callback.handler.class": "org.apache.kafka.common.security."
            "oauthbearer.OAuthBearerValidatorCallbackHandler",
        }
    )
    oauth = config.sasl_of("SASL_SSL").oauth

    assert oauth.sasl_oauthbearer_jwks_endpoint_url == "https://host/keys"
    assert oauth.sasl_oauthbearer_expected_audience == ("a", "b")
    assert oauth.sasl_oauthbearer_sub_claim_name == "email"
    assert oauth.sasl_oauthbearer_clock_skew_seconds == 30


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "sasl.oauthbearer.jwks.endpoint.url: must be set for OAUTHBEARER"),
        ({PREFIX + "sasl.jaas.config": jaas()}, "jwks.endpoint.url: must be set for OAUTHBEARER"),
        (
            {PREFIX + "sasl.jaas.config": jaas(clientId="x")},
            "jwks.endpoint.url: must be set for OAUTHBEARER",
        ),
        (
            {PREFIX + "sasl.jaas.config": jaas(unsecuredValidatorName="x")},
            "unsecuredValidatorName must be one of unsecuredValidatorPrincipalClaimName",
        ),
        (
            {PREFIX + "sasl.jaas.config": jaas(unsecuredValidatorAllowableClockSkewMs="x")},
            "unsecuredValidatorAllowableClockSkewMs=x must be a number",
        ),
        (
            JWKS | {PREFIX + "sasl.server.callback.handler.class": "com.example.Mine"},
            "sasl.server.callback.handler.class=com.example.Mine: must not be set",
        ),
        (
            JWKS | {"sasl.oauthbearer.assertion.file": "/x"},
            "sasl.oauthbearer.assertion.file=/x: must not be set",
        ),
        *(
            (
                {"sasl.oauthbearer.jwks.endpoint.url": url},
                f"sasl.oauthbearer.jwks.endpoint.url={url}: must begin with https:// or file:///",
            )
            for url in ("http://host/keys", "ftp://host/keys", "keys", "https://", "file://keys")
        ),
    ],
)
def test_listener_that_would_verify_nothing_is_refused(settings, reason):
    """Before the broker begins anything; tokens without a signature must be asked for."""
    with pytest.raises(ConfigError, match=re.escape(reason)):
        BrokerConfig.parse(LISTENER | settings)


def test_tokens_without_a_signature_are_asked_for_by_an_option():
    """The option is that of test files made for Kafka."""
    entry = {PREFIX + "sasl.jaas.config": jaas(unsecuredLoginStringClaim_sub="admin")}
    config = BrokerConfig.parse(LISTENER | entry)

    assert config.sasl_of("SASL_SSL").oauth.sasl_oauthbearer_jwks_endpoint_url is None


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({URL: "file:///token"}, {"url": "file:///token"}),
        (
            {
                URL: "https://host/token",
                "sasl.oauthbearer.client.credentials.client.id": "me",
                "sasl.oauthbearer.client.credentials.client.secret": "SESAME",
                "sasl.oauthbearer.scope": "read",
            },
            {
                "url": "https://host/token",
                "clientId": "me",
                "clientSecret": "SESAME",
                "scope": "read",
            },
        ),
        (
            {
                URL: "https://host/token",
                "sasl.jaas.config": jaas(clientId="me", clientSecret="SESAME"),
            },
            {"url": "https://host/token", "clientId": "me", "clientSecret": "SESAME"},
        ),
        (
            {"sasl.jaas.config": jaas(unsecuredLoginStringClaim_sub="me")},
            {"unsecuredLoginStringClaim_sub": "me"},
        ),
    ],
)
def test_client_names_where_its_token_comes_from(settings, options):
    """The settings are Kafka's, new and old; no secret of them is shown."""
    login = AdminConfig.parse(CLIENT | settings).sasl_login()

    assert login.options == options
    assert "SESAME" not in repr(login)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "sasl.oauthbearer.token.endpoint.url: must be set for OAUTHBEARER"),
        ({"sasl.jaas.config": jaas(clientId="x")}, "token.endpoint.url: must be set"),
        ({URL: "http://host/token"}, "must begin with https:// or file:///"),
        ({URL: "https://host/token"}, "sasl.jaas.config: must have clientId"),
        (
            {URL: "https://host/token", "sasl.jaas.config": jaas(clientId="x")},
            "sasl.jaas.config: must have clientSecret",
        ),
    ],
)
def test_client_without_a_token_is_refused(settings, reason):
    """Before it connects, and without showing a secret."""
    with pytest.raises(ConfigError, match=re.escape(reason)):
        AdminConfig.parse(CLIENT | settings)


def test_brokers_log_in_to_each_other_with_tokens():
    """The settings of their listener are used, as for any client."""
    among = {
        "zookeeper.connect": "here:2181",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        PREFIX + "sasl.oauthbearer.token.endpoint.url": "https://host/token",
    }
    entry = {PREFIX + "sasl.jaas.config": jaas(clientId="broker", clientSecret="SESAME")}
    login = BrokerConfig.parse(LISTENER | JWKS | among | entry).inter_broker_login()

    assert login.mechanism == "OAUTHBEARER"
    assert login.options == {
        "url": "https://host/token",
        "clientId": "broker",
        "clientSecret": "SESAME",
    }
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config: must be set, for the login"):
        BrokerConfig.parse(LISTENER | JWKS | among)
