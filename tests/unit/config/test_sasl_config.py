"""The settings of SASL: JAAS as data, what single listeners override, and a client's login."""

from __future__ import annotations

import re

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.jaas import parse_jaas, users_of
from ottla.errors import ConfigError

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="b" password="secret-b" user_b="secret-b" user_a="SESAME";'
ENTRY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
LISTENER = {
    "listeners": "SASL_PLAINTEXT://:9092",
    "sasl.enabled.mechanisms": "PLAIN",
    ENTRY: JAAS,
}
CLIENT = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
ZOOKEEPER = {
    "zookeeper.connect": "localhost:2181",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


# JAAS


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a.B required;", {}),
        ("a.B\n  REQUIRED\n  one=two;", {"one": "two"}),
        ('a.B optional one="a b;=" two=\'"\' ;', {"one": "a b;=", "two": '"'}),
        (r'a.B sufficient one="\"\\\n\101";', {"one": '"\\\nA'}),
        ('a.B requisite // why\n one /* is */ = "1" ;', {"one": "1"}),
        ('a.B required user_bo-b$="x";', {"user_bo-b$": "x"}),
        ('a.B required one="";', {"one": ""}),
    ],
)
def test_entry_is_read_as_java_reads_it(text, options):
    """Quotes, escapes and comments as in a login configuration file."""
    entry = parse_jaas("key", text)

    assert (entry.module, entry.options) == ("a.B", options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.B",
        'a.B one="SESAME";',
        'a.B required one="SESAME"',
        'a.B required one="SESAME;',
        "a.B required one SESAME;",
        "a.B required one=;",
        'a.B required one="SESAME"; c.D required;',
        'a.B required one="SESAME" two;',
    ],
)
def test_what_is_no_entry_is_refused_without_showing_it(text):
    """The value may hold passwords also where it is wrong."""
    with pytest.raises(
        ConfigError, match=r"key=\[hidden\]: must have|key=\[hidden\]: must be"
    ) as e:
        parse_jaas("key", text)

    assert "SESAME" not in str(e.value)


def test_entry_does_not_show_its_options():
    """An entry in a log line gives no password away."""
    assert "SESAME" not in repr(parse_jaas("key", JAAS))


def test_users_of_plain_are_its_options():
    """`user_` and the name."""
    assert users_of(parse_jaas("key", JAAS)) == {"b": "secret-b", "a": "SESAME"}


# Listeners


def test_listener_has_the_mechanisms_of_all():
    """Each with its entry and without an end of sessions."""
    config = BrokerConfig.parse(LISTENER)

    settings = config.sasl_of("SASL_PLAINTEXT")

    assert config.sasl_listeners == ("SASL_PLAINTEXT",)
    assert settings.mechanisms == ("PLAIN",)
    assert settings.entries["PLAIN"].module == MODULE
    assert settings.max_reauth_ms == {"PLAIN": 0}


@pytest.mark.parametrize(
    ("settings", "limit_ms"),
    [
        ({"connections.max.reauth.ms": "5"}, 5),
        ({"listener.name.sasl_plaintext.connections.max.reauth.ms": "6"}, 6),
        ({"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "7"}, 7),
        (
            {
                "connections.max.reauth.ms": "5",
                "listener.name.sasl_plaintext.connections.max.reauth.ms": "6",
            },
            6,
        ),
    ],
)
def test_narrowest_prefix_wins(settings, limit_ms):
    """That of the mechanism, of the listener, of all."""
    config = BrokerConfig.parse(LISTENER | settings)

    assert config.sasl_of("SASL_PLAINTEXT").max_reauth_ms["PLAIN"] == limit_ms


def test_changed_settings_keep_the_entries():
    """A dynamic change of another setting does not take the passwords away."""
    config = BrokerConfig.parse(LISTENER).replace(num_partitions=3)

    assert config.sasl_of("SASL_PLAINTEXT").entries["PLAIN"].module == MODULE


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sasl.enabled.mechanisms": None}, "gssapi.sasl.jaas.config: must be set, as GSSAPI has"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms=: must name a mechanism"),
        ({"sasl.enabled.mechanisms": "PLAIN,DIGEST"}, "sasl.enabled.mechanisms=DIGEST: must be"),
        (
            {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "DIGEST"},
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms=DIGEST: must be",
        ),
        ({ENTRY: None}, f"{ENTRY}: must be set"),
        ({ENTRY: "com.sun.security.auth.module.JndiLoginModule required;"}, f"{ENTRY}: must name"),
        ({"listener.name.other.plain.sasl.jaas.config": JAAS}, "no listener OTHER uses SASL"),
        (
            {"listener.name.sasl_plaintext.connections.max.reauth.ms": "-1"},
            "listener.name.sasl_plaintext.connections.max.reauth.ms=-1: must be at least 0",
        ),
        (
            {"connections.max.idle.ms": "100"},
            "connection.failed.authentication.delay.ms=100: must be less than",
        ),
        ({"sasl.jaas.config": JAAS}, "sasl.jaas.config=[hidden]: must not be set; each mechanism"),
    ],
)
def test_listener_without_what_it_needs_stops_the_start(settings, said):
    """The key is named, and no password is shown."""
    whole = {key: value for key, value in (LISTENER | settings).items() if value is not None}

    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        BrokerConfig.parse(whole)

    assert "SESAME" not in caught.value.message


# Brokers among themselves


def test_brokers_log_in_with_the_entry_of_their_listener():
    """The same entry has the users, and this broker's own name and password."""
    login = BrokerConfig.parse(LISTENER | ZOOKEEPER).inter_broker_login()

    assert login.mechanism == "PLAIN"
    assert login.options["username"] == "b"
    assert "secret-b" not in repr(login)


def test_single_broker_needs_no_login_of_its_own():
    """It connects to no other."""
    BrokerConfig.parse(LISTENER)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "GSSAPI"},
            "sasl.mechanism.inter.broker.protocol=GSSAPI: must be one of",
        ),
        ({ENTRY: f'{MODULE} required user_a="SESAME";'}, f"{ENTRY}: must have username"),
        ({ENTRY: f'{MODULE} required username="b";'}, f"{ENTRY}: must have password"),
    ],
)
def test_brokers_that_could_not_log_in_do_not_start(settings, said):
    """Otherwise the cluster would stand still and only its logs say why."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        BrokerConfig.parse(LISTENER | ZOOKEEPER | settings)


# Clients


@pytest.mark.parametrize("table", [ProducerConfig, ConsumerConfig, AdminConfig])
@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.username": "a", "sasl.password": "SESAME"},
        {"sasl.jaas.config": f'{MODULE} required username="a" password="SESAME";'},
    ],
    ids=["as librdkafka has it", "as Java has it"],
)
def test_client_takes_a_login_in_both_forms(table, settings):
    """They come to the same."""
    login = table.parse(CLIENT | settings).sasl_login()

    assert login.mechanism == "PLAIN"
    assert dict(login.options) == {"username": "a", "password": "SESAME"}


def test_client_without_sasl_has_no_login():
    """A plain connection logs in nowhere."""
    assert AdminConfig.parse({}).sasl_login() is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "sasl.username: must be set for sasl.mechanism=PLAIN"),
        ({"sasl.username": "a"}, "sasl.password: must be set for sasl.mechanism=PLAIN"),
        ({"sasl.mechanism": "DIGEST"}, "sasl.mechanism=DIGEST: must be one of PLAIN"),
        ({"sasl.jaas.config": JAAS, "sasl.username": "a"}, "cannot be set together"),
        ({"sasl.jaas.config": f'{MODULE} required username="a";'}, "must have password"),
        ({"sasl.jaas.config": "a.B required;"}, "must name the login module of PLAIN"),
        ({"sasl.login.class": "com.example.Login"}, "sasl.login.class=com.example.Login: must not"),
    ],
)
def test_client_that_could_not_log_in_is_refused(settings, said):
    """Before it connects anywhere."""
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        AdminConfig.parse(CLIENT | settings)

    assert "SESAME" not in caught.value.message


# Delegation tokens


@pytest.mark.parametrize("name", ["delegation.token.secret.key", "delegation.token.master.key"])
def test_secret_of_delegation_tokens_has_two_names(name):
    """Kafka's of today and that of 2.3; it is never shown."""
    config = BrokerConfig.parse({name: "SESAME"})

    assert config.delegation_token_secret == b"SESAME"
    assert "SESAME" not in repr(config)
    assert BrokerConfig().delegation_token_secret == b""


def test_two_secrets_of_delegation_tokens_are_refused():
    """Unless they are the same; neither is shown."""
    names = ("delegation.token.secret.key", "delegation.token.master.key")
    BrokerConfig.parse(dict.fromkeys(names, "SESAME"))
    with pytest.raises(ConfigError, match="must not be set to something else") as caught:
        BrokerConfig.parse(dict(zip(names, ("SESAME", "OTHER"), strict=True)))

    assert "OTHER" not in caught.value.message


OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
SOURCE = "sasl.oauthbearer.token.source"


def test_token_may_come_from_a_callable():
    """A callable may be given itself, or by an import path."""
    for source in (len, "builtins.len"):
        login = AdminConfig.parse(OAUTH | {SOURCE: source}).sasl_login()
        assert login.held == {"source": len}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({SOURCE: 5}, "must be callable"),
        ({SOURCE: len, "sasl.oauthbearer.scope": "x"}, "together with sasl.oauthbearer.scope"),
    ],
)
def test_source_of_tokens_is_the_only_one(settings, said):
    """What would not be used is refused."""
    with pytest.raises(ConfigError, match=said):
        AdminConfig.parse(OAUTH | settings).sasl_login()
