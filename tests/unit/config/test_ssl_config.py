"""Keys and certificates as settings: what goes together, and what single listeners override."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.client_config import ProducerConfig
from ottla.config.ssl_config import ssl_settings
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ssl.keystore.type": "JKS"}, r"ssl\.keystore\.type=JKS: .* set ssl\.keystore\.type=PEM"),
        ({"ssl.truststore.type": "JKS"}, r"set ssl\.truststore\.type=PEM"),
        ({"ssl.keystore.type": "BCFKS"}, r"ssl\.keystore\.type=BCFKS: must be one of PEM"),
        ({"ssl.keystore.key": "k"}, r"ssl\.keystore\.certificate\.chain: must be set"),
        ({"ssl.keystore.certificate.chain": "c"}, r"ssl\.keystore\.key: must be set"),
        ({"ssl.keystore.password": "p"}, r"ssl\.keystore\.password: .* ssl\.key\.password"),
        ({"ssl.truststore.password": "p"}, r"ssl\.truststore\.password: cannot be set"),
        (
            {"ssl.truststore.location": "/f", "ssl.truststore.certificates": "c"},
            r"ssl\.truststore\.certificates: cannot be set together .*location=/f",
        ),
        (
            {"ssl.truststore.type": "PKCS12", "ssl.truststore.certificates": "c"},
            r"needs ssl\.truststore\.type=PEM, not PKCS12",
        ),
        ({"ssl.enabled.protocols": "TLSv1.1"}, r"ssl\.enabled\.protocols=TLSv1\.1: must be"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, r"algorithm=ldap: must be one of"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, reason):
    """The error names the key and the way out, for clients and brokers."""
    for table in (BrokerConfig, ProducerConfig):
        with pytest.raises(ConfigError, match=reason):
            table.parse(settings)


def test_secrets_are_not_shown():
    """Passwords are hidden, and settings that may hold a key."""
    secret = "SESAME"
    shown = repr(
        ProducerConfig.parse(
            ssl_keystore_certificate_chain=secret,
            ssl_keystore_key=secret,
            ssl_key_password=secret,
            ssl_truststore_certificates=secret,
        )
    )

    assert secret not in shown


def test_settings_of_tls_are_taken_out_of_a_table():
    """The settings are taken as they were given, checked or not."""
    config = ProducerConfig.parse(ssl_truststore_location="/ca", ssl_key_password="p", acks="1")

    settings = ssl_settings(config)

    assert settings.ssl_truststore_location == "/ca"
    assert settings.ssl_key_password.value == "p"
    assert not settings.is_given("ssl.keystore.location")


def test_listener_overrides_what_holds_for_all():
    """`listener.name.<name>.ssl.*`, also after settings have changed while the broker runs."""
    config = BrokerConfig.parse(
        {
            "ssl.keystore.location": "/all",
            "ssl.client.auth": "requested",
            "listener.name.internal.ssl.keystore.location": "/internal",
            "listener.name.sasl_ssl.ssl.client.auth": "required",
        }
    ).replace(log_retention_hours=1)

    assert config.ssl_of("INTERNAL").ssl_keystore_location == "/internal"
    assert config.ssl_of("INTERNAL").ssl_client_auth == "requested"
    assert config.ssl_of("SASL_SSL").ssl_client_auth == "required"
    assert config.ssl_of("SSL").ssl_keystore_location == "/all"


def test_bad_override_of_a_listener_names_the_whole_key():
    """The key in the error is that of the line in the file."""
    key = "listener.name.internal.ssl.client.auth"
    with pytest.raises(ConfigError, match=f"{key}=maybe: must be one of none"):
        BrokerConfig.parse({key: "maybe"})


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "PLAINTEXT"),
        ({"security.inter.broker.protocol": "SSL"}, "SSL"),
        ({"inter.broker.listener.name": "ssl"}, "SSL"),
    ],
)
def test_brokers_choose_their_listener_by_name_or_protocol(settings, name):
    """PLAINTEXT where nothing is said."""
    listeners = {"listeners": "PLAINTEXT://:9092,SSL://:9093"}

    assert BrokerConfig.parse(listeners | settings).inter_broker_listener_name == name


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.inter.broker.protocol": "SSL"}, "one of the advertised listeners, PLAINTEXT"),
        ({"security.inter.broker.protocol": "ssl"}, "must be one of PLAINTEXT, SSL"),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "A"},
            r"cannot be set together with inter\.broker\.listener\.name=A",
        ),
    ],
)
def test_brokers_need_a_listener_of_the_protocol_they_speak(settings, reason):
    """The error names the listeners that there are."""
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.parse(settings)
