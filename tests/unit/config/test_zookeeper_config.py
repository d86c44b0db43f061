"""The connect string, and which settings belong together."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_type import Password
from ottla.config.zookeeper_config import parse_connect
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("localhost:2181", ("localhost:2181",), ""),
        ("zk", ("zk:2181",), ""),
        ("a:1,b:2, c:3/kafka", ("a:1", "b:2", "c:3"), "/kafka"),
        ("a/kafka/one/", ("a:2181",), "/kafka/one"),
        ("a:1/", ("a:1",), ""),
        ("[::1]:2181/x", ("[::1]:2181",), "/x"),
    ],
)
def test_connect_string_has_servers_and_a_chroot(text, servers, chroot):
    """The string is that of Kafka's users; 2181 is the port where there is none."""
    assert parse_connect("zookeeper.connect", text) == (servers, chroot)


@pytest.mark.parametrize(
    "text", [":2181", "a:b", "a:0", "a:65536", "a,,b", "a//x", "a/x//y", "a/../x", "http://a:1"]
)
def test_connect_string_of_another_form_is_refused(text):
    """Key and value are named."""
    with pytest.raises(ConfigError, match=r"zookeeper\.connect="):
        BrokerConfig.parse({"zookeeper.connect": text})


def test_empty_connect_string_is_none():
    """The broker keeps its registry itself then."""
    assert BrokerConfig.parse({"zookeeper.connect": ""}).zookeeper_connect is None


TLS = {"zookeeper.ssl.client.enable": "true"}
JKS_STORE = {"zookeeper.ssl.truststore.location": "x", "zookeeper.ssl.truststore.type": "JKS"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"zookeeper.set.acl": "true"}, "must come with zookeeper.sasl.username"),
        ({"zookeeper.digest.username": "u"}, "must be set together"),
        ({"zookeeper.sasl.username": "u"}, "must be set together"),
        ({"zookeeper.ssl.truststore.location": "ca.pem"}, "nothing would be encrypted"),
        ({"zookeeper.ssl.protocol": "TLSv1.3"}, "nothing would be encrypted"),
        (TLS | {"zookeeper.ssl.keystore.password": "p"}, "must come with zookeeper.ssl.keystore"),
        (
            TLS
            | {"zookeeper.ssl.truststore.location": "x", "zookeeper.ssl.truststore.type": "JKS"},
            "must be PEM or PKCS12",
        ),
        (TLS | {"zookeeper.ssl.protocol": "TLSv1.1"}, "TLSv1.1"),
        ({"zookeeper.digest.password": "p"}, "must be set together"),
        (
            {"zookeeper.digest.username": "a:b", "zookeeper.digest.password": "p"},
            "must be a name without a colon",
        ),
    ],
)
def test_settings_that_need_each_other_are_checked(settings, reason):
    """Nobody believes himself protected who is not."""
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.parse(settings)


def test_password_is_not_shown():
    """The password is hidden in the text of the settings, and on its own."""
    settings = {"zookeeper.digest.username": "u", "zookeeper.digest.password": "hush"}
    config = BrokerConfig.parse(settings)

    assert config.zookeeper_digest_password == Password("hush")
    assert "hush" not in repr(config)


def test_tls_of_zookeeper_is_that_of_any_client():
    """Under names of its own; the one password is that of the file, or of the key in a PEM file."""
    given = TLS | {
        "zookeeper.ssl.keystore.location": "broker.pem",
        "zookeeper.ssl.keystore.password": "SESAME",
        "zookeeper.ssl.truststore.location": "ca.p12",
        "zookeeper.ssl.truststore.password": "TRUST",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
        "zookeeper.set.acl": "true",
    }
    config = BrokerConfig.parse(given)
    ssl = config.zookeeper_ssl

    assert (ssl.ssl_keystore_location, ssl.ssl_keystore_type) == ("broker.pem", "PEM")
    assert ssl.ssl_key_password == Password("SESAME")
    assert ssl.ssl_keystore_password is None
    assert (ssl.ssl_truststore_location, ssl.ssl_truststore_type) == ("ca.p12", "PKCS12")
    assert ssl.ssl_truststore_password == Password("TRUST")
    assert ssl.ssl_endpoint_identification_algorithm == ""
    assert ssl.ssl_enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert "SESAME" not in repr(config)
    assert BrokerConfig().zookeeper_ssl is None


@pytest.mark.parametrize(
    ("name", "text"),
    [("zookeeper.ssl.protocol", "TLSv1.3"), ("zookeeper.ssl.enabled.protocols", "TLSv1.3")],
)
def test_one_version_of_tls_may_be_named(name, text):
    """Either of Kafka's settings may name it."""
    assert BrokerConfig.parse(TLS | {name: text}).zookeeper_ssl.ssl_enabled_protocols == (text,)
