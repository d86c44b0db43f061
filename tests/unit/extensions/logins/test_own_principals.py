"""Clients that a class of the operator's names: on each kind of listener, and what refuses them."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from itertools import count, repeat
from threading import Event
from typing import ClassVar

import pytest

import ottla
from ottla.config.broker_config import BrokerConfig
from ottla.config.known_keys import DEFAULT_PRINCIPAL_BUILDER
from ottla.errors import ConfigError, KafkaError, SaslAuthenticationError
from ottla.extensions.logins import own_principals
from ottla.extensions.logins.own_principals import GROUP, checked
from ottla.network.connection import IN_FLIGHT
from ottla.security import AuthenticationContext, KafkaPrincipal, PrincipalBuilder
from ottla.security.principal import TokenPrincipal
from ottla.server.broker import Broker
from ottla.structs import ClientEntity
from ottla.testing import InProcessBroker, mock_runtime, wait_until

ME = __name__
LIMIT_S = 60
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Teams(PrincipalBuilder):
    """A certificate's unit, the first letter of a login, else the listener: each is a team."""

    contexts: ClassVar[list[AuthenticationContext]] = []
    settings: ClassVar = {}
    is_closed = False

    def configure(self, settings):
        Teams.settings = dict(settings)

    def build(self, context):
        Teams.contexts.append(context)
        if context.sasl_name:
            return KafkaPrincipal("Team", f"login-{context.sasl_name}")
        if context.subject:
            return KafkaPrincipal("Team", context.subject.partition(",OU=")[2].partition(",")[0])
        return KafkaPrincipal("Team", f"{context.listener_name}-{context.client_address}")

    def close(self):
        Teams.is_closed = True


class Scripted(PrincipalBuilder):
    """Returns or raises what the test says; on the slow listener not before it may."""

    answers: ClassVar[list] = []
    slow: ClassVar[str] = ""
    may_return: ClassVar[Event] = Event()

    def build(self, context):
        (answer,) = Scripted.answers
        if Scripted.slow == context.listener_name:
            Scripted.may_return.wait(LIMIT_S)
        if isinstance(answer, BaseException):
            raise answer
        return next(answer) if isinstance(answer, map) else answer


class Choosy(Teams):
    """Does not take the broker's settings."""

    def configure(self, settings):
        raise OSError("the directory is away")


class NoBuilder:
    """It has no method `build`."""


@pytest.fixture(autouse=True)
def fresh() -> None:
    Teams.contexts, Teams.settings, Teams.is_closed = [], {}, False
    Scripted.answers, Scripted.slow, Scripted.may_return = [], "", Event()


def settings_of(certificates, builder=Teams, **others) -> dict[str, str]:
    return {
        "listeners": ",".join(f"{each}://127.0.0.1:0" for each in PROTOCOLS),
        "listener.security.protocol.map": ",".join(f"{each}:{each}" for each in PROTOCOLS),
        "advertised.host.name": "localhost",
        "ssl.keystore.location": certificates.server,
        "ssl.truststore.location": certificates.ca,
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": r"RULE:^CN=(.*?),OU=Clients.*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": "PLAIN",
        "delegation.token.secret.key": "of all brokers",
        "connection.failed.authentication.delay.ms": "0",
        "principal.builder.class": f"{ME}:{builder.__name__}",
        **{
            f"listener.name.{each.lower()}.plain.sasl.jaas.config": f'{PLAIN} user_ann="secret";'
            for each in PROTOCOLS[2:]
        },
        **others,
    }


def client(broker, certificates, protocol, **others) -> dict[str, str]:
    """How a client connects to the listener of a protocol, with all that it has to show."""
    port = next(each.port for each in broker.broker.end_points if each.listener_name == protocol)
    found = {"bootstrap_servers": f"localhost:{port}", "security_protocol": protocol}
    if "SSL" in protocol:
        found |= {
            "ssl_truststore_location": certificates.ca,
            "ssl_keystore_location": certificates.alice,
        }
    if "SASL" in protocol:
        found |= {"sasl_mechanism": "PLAIN", "sasl_username": "ann", "sasl_password": "secret"}
    return found | others


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        ("PLAINTEXT", "Team:PLAINTEXT-127.0.0.1"),
        ("SSL", "Team:Clients"),
        ("SASL_PLAINTEXT", "Team:login-ann"),
        ("SASL_SSL", "Team:login-ann"),
    ],
)
def test_rights_quotas_and_audit_go_by_the_built_principal(certificates, protocol, name):
    """On a listener of each protocol: it alone may do what the client asks for."""
    settings = settings_of(
        certificates,
        **{
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": name,
            "ottla.audit.topic": "audit",
        },
    )
    with InProcessBroker(**settings) as broker:
        login = client(broker, certificates, protocol)
        with ottla.Admin(**login) as admin:
            admin.create_topics([ottla.NewTopic("t")])
            entity = ClientEntity(user=name.partition(":")[2])
            admin.alter_client_quotas({entity: {"producer_byte_rate": 1.0}})
        with ottla.Producer(**login) as producer:
            producer.send("t", b"x" * 100_000).result(LIMIT_S)
            wait_until(lambda: is_throttled(broker, name), "a throttled client", LIMIT_S)
        with ottla.Consumer(**login, auto_offset_reset="earliest") as consumer:
            consumer.assign([ottla.TopicPartition("audit", 0)])
            found = []
            wait_until(
                lambda: found,
                "a record of the audit",
                LIMIT_S,
                meanwhile=lambda: found.extend(consumer.poll(200)),
            )
    assert json.loads(found[0].value)["principal"] == name


def is_throttled(broker, name: str) -> bool:
    async def read() -> bool:
        connections = broker.broker.processor.connections
        return any(str(each.principal) == name and each.throttled_until_ms for each in connections)

    return broker.run(read())


def test_builder_gets_what_the_broker_knows(certificates):
    """Certificate, login, listener, address, and who the client would be without a builder."""
    with InProcessBroker(**settings_of(certificates)) as broker:
        for protocol in PROTOCOLS:
            with ottla.Admin(**client(broker, certificates, protocol)) as admin:
                admin.describe_cluster()
    found = {each.listener_name: each for each in Teams.contexts}
    subject = r"CN=alice,OU=Clients,O=Example\, Inc."

    assert found.keys() == set(PROTOCOLS)
    assert {each.client_address for each in found.values()} == {"127.0.0.1"}
    assert {name: each.security_protocol for name, each in found.items()} == dict(
        zip(PROTOCOLS, PROTOCOLS, strict=True)
    )
    assert {name: str(each.principal) for name, each in found.items()} == {
        "PLAINTEXT": "User:ANONYMOUS",
        "SSL": "User:alice",
        "SASL_PLAINTEXT": "User:ann",
        "SASL_SSL": "User:ann",
    }
    assert {name: each.subject for name, each in found.items()} == {
        "PLAINTEXT": "",
        "SSL": subject,
        "SASL_PLAINTEXT": "",
        "SASL_SSL": subject,
    }
    assert {name for name, each in found.items() if each.certificate} == {"SSL", "SASL_SSL"}
    assert {each.sasl_mechanism for each in found.values() if each.sasl_name} == {"PLAIN"}
    assert Teams.settings["broker.id"] == "0"
    assert not [text for text in Teams.settings.values() if "secret" in text]
    assert Teams.is_closed


REFUSALS = [
    (LookupError("nobody of that name"), "LookupError('nobody of that name')"),
    (SystemExit(1), "SystemExit(1)"),
    (StopIteration(), "StopIteration()"),
    (None, "must say a KafkaPrincipal, not 'None'"),
    ("User:alice", "must say a KafkaPrincipal, not 'User:alice'"),
    (("User", "alice"), "must say a KafkaPrincipal"),
    (KafkaPrincipal("User", ""), "printable"),
    (KafkaPrincipal("", "alice"), "printable"),
    (KafkaPrincipal("User", None), "printable"),
    (KafkaPrincipal("User", "a\nUser:admin"), "printable"),
    (KafkaPrincipal("User:x", "alice"), "without a colon"),
]


@pytest.fixture(scope="module")
def scripted(certificates) -> Iterator[InProcessBroker]:
    with InProcessBroker(**settings_of(certificates, Scripted)) as broker:
        yield broker


@pytest.mark.parametrize(
    ("protocol", "answer", "reason"),
    [("SASL_PLAINTEXT", *each) for each in REFUSALS]
    + [(protocol, *each) for protocol in PROTOCOLS for each in REFUSALS[:1]],
)
def test_client_without_a_usable_name_is_refused(
    scripted, certificates, protocol, answer, reason, caplog
):
    """The line names the client's listener, the class and the reason; the broker serves on."""
    Scripted.answers = [answer]
    login = client(scripted, certificates, protocol, request_timeout_ms="400")
    expected = SaslAuthenticationError if "SASL" in protocol else KafkaError
    with pytest.raises(expected), ottla.Admin(**login, default_api_timeout_ms="300") as admin:
        admin.describe_cluster()
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]

    assert any(
        f"refused on listener {protocol}" in line and f"{ME}:Scripted" in line and reason in line
        for line in lines
    )
    Scripted.answers = [KafkaPrincipal("User", "alice")]
    with ottla.Admin(**login | {"request_timeout_ms": "30000"}) as admin:
        assert admin.describe_cluster().controller_id == 0


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_slow_builder_holds_up_nobody_else(scripted, certificates, protocol):
    """A client waits for its name; one that has its own is served, and so is the first then."""
    Scripted.answers, Scripted.slow = [KafkaPrincipal("User", "early")], protocol
    login = client(scripted, certificates, protocol)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(lambda: controller_of(login))
        wait_until(lambda: in_flight(scripted), "a client that waits", LIMIT_S)
        assert controller_of(client(scripted, certificates, "PLAINTEXT")) == 0
        assert not late.done()
        Scripted.may_return.set()
        assert late.result(LIMIT_S) == 0


def controller_of(login: dict[str, str]) -> int:
    with ottla.Admin(**login) as admin:
        return admin.describe_cluster().controller_id


def in_flight(broker) -> int:
    """How many clients wait for an answer, or for their names."""

    async def read() -> int:
        return sum(each.muted & IN_FLIGHT for each in broker.broker.processor.connections)

    return broker.run(read())


def test_builder_of_a_broker_that_is_killed_is_not_closed(monkeypatch):
    """What it would write there, no process would that is killed."""
    monkeypatch.setattr(Teams, "is_closed", False)
    with InProcessBroker(principal_builder_class=f"{ME}:Teams") as broker:
        broker.kill()

        assert not Teams.is_closed


def test_client_that_gets_no_name_in_time_is_refused(certificates, monkeypatch, caplog):
    """Calls that hang keep their places, and no more are begun; the broker stops none the less."""
    monkeypatch.setattr(own_principals, "PATIENCE_MS", 50)
    calls = []
    monkeypatch.setattr(Scripted, "build", lambda self, context: hang(calls))
    with InProcessBroker(**settings_of(certificates, Scripted)) as broker:
        port = broker.port
        for _ in range(own_principals.CALLS + 3):
            with socket.create_connection(("127.0.0.1", port)) as endpoint:
                endpoint.settimeout(LIMIT_S)
                assert endpoint.recv(1) == b""
    lines = [each.getMessage() for each in caplog.records if "has failed" in each.getMessage()]
    Scripted.may_return.set()

    assert len(calls) == own_principals.CALLS
    assert len([line for line in lines if "no answer (4 calls" in line]) >= own_principals.CALLS
    assert all("within 50 ms" in line for line in lines if "no answer" in line)


def hang(calls: list[int]) -> None:
    calls.append(1)
    Scripted.may_return.wait(LIMIT_S)


def test_client_that_leaves_before_it_has_a_name_is_forgotten(scripted, certificates):
    """The answer of its builder comes to nothing."""
    Scripted.answers, Scripted.slow = [KafkaPrincipal("User", "alice")], "PLAINTEXT"
    with socket.create_connection(("127.0.0.1", scripted.port)):
        wait_until(lambda: in_flight(scripted) == 1, "a client that waits", LIMIT_S)
    Scripted.may_return.set()
    wait_until(lambda: in_flight(scripted) == 0, "its end", LIMIT_S)
    Scripted.slow = ""

    assert controller_of(client(scripted, certificates, "PLAINTEXT")) == 0


@pytest.mark.parametrize("is_same", [True, False])
def test_session_that_begins_again_keeps_its_principal(certificates, is_same, caplog):
    """The builder is asked at each login of a connection (KIP-368); another name ends it."""
    caplog.set_level(logging.INFO, "ottla.server.logins")
    reauth = {"connections.max.reauth.ms": "1500"}
    with InProcessBroker(**settings_of(certificates, Scripted, **reauth)) as broker:
        login = client(broker, certificates, "SASL_PLAINTEXT")
        counts = broker.broker.logins.listeners["SASL_PLAINTEXT"].counts
        names = repeat("ann") if is_same else map(str, count())
        Scripted.answers = [map(KafkaPrincipal.user, names)]
        with ottla.Admin(**login) as admin:

            def ask() -> None:
                with contextlib.suppress(SaslAuthenticationError):
                    admin.describe_cluster()

            wait_until(
                lambda: counts.renewed if is_same else counts.renewals_failed,
                "another login",
                LIMIT_S,
                meanwhile=ask,
            )
    is_told = any("Cannot change principals" in each.getMessage() for each in caplog.records)

    assert is_told != is_same
    assert (counts.renewals_failed > 0) != is_same


def test_owner_of_a_token_stays_one_who_may_not_ask_for_tokens(certificates):
    """Under the name that the builder gives it."""
    scram = {"sasl_mechanism": "SCRAM-SHA-256"}
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:boss",
    }
    Scripted.answers = [KafkaPrincipal("User", "boss")]
    with InProcessBroker(**settings_of(certificates, Scripted, **settings)) as broker:
        login = client(broker, certificates, "SASL_PLAINTEXT")
        with ottla.Admin(**login) as admin:
            token = admin.create_delegation_token()
        by_token = {
            "sasl_jaas_config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{token.token_id}" password="{token.password}" tokenauth="true";'
        }
        del login["sasl_username"], login["sasl_password"]
        with ottla.Admin(**login | scram | by_token) as admin:
            admin.create_topics([ottla.NewTopic("t")])
            with pytest.raises(KafkaError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
                admin.create_delegation_token()


def test_class_in_a_file_of_the_brokers_folder(tmp_path, monkeypatch):
    """As the files of keys, it is found from the folder in which the broker is started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_names.py").write_text(
        "from ottla.security import KafkaPrincipal, PrincipalBuilder\n"
        "class Names(PrincipalBuilder):\n"
        "    def build(self, context):\n"
        "        return KafkaPrincipal('User', context.client_address)\n"
    )
    with (
        InProcessBroker(principal_builder_class="my_names.py:Names") as broker,
        ottla.Admin(broker.bootstrap_servers) as admin,
    ):
        admin.describe_cluster()

        async def read() -> set[str]:
            return {str(each.principal) for each in broker.broker.processor.connections}

        assert broker.run(read()) == {"User:127.0.0.1"}


def test_installed_package_is_found_by_its_entry_point(monkeypatch):
    """As `pip install` of a package with one brings it."""
    entry = EntryPoint("teams", f"{ME}:Teams", GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])

    broker = Broker(BrokerConfig(principal_builder_class="teams"), mock_runtime())
    assert isinstance(broker.named("OwnPrincipals").builder, Teams)


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("com.example.Names", "must be module:Class, file.py:Class"),
        ("no_such_module:Names", "cannot be imported"),
        ("no_such_file.py:Names", "there is no such file"),
        (f"{ME}:Missing", "cannot be imported"),
        (f"{ME}:NoBuilder", "must be a subclass of PrincipalBuilder"),
        ("ottla.security:PrincipalBuilder", "cannot be made"),
        (f"{ME}:Choosy", "does not take the settings: OSError"),
    ],
)
def test_broker_does_not_start_with_what_is_no_builder(word, complaint):
    """The setting, the value and the rule are named."""
    config = BrokerConfig(principal_builder_class=word)
    with pytest.raises(ConfigError, match=f"principal.builder.class=.*: {complaint}"):
        Broker(config, mock_runtime())


@pytest.mark.parametrize("word", ["", DEFAULT_PRINCIPAL_BUILDER, f" {DEFAULT_PRINCIPAL_BUILDER} "])
def test_kafkas_own_builder_is_the_default(word):
    """Names are those of certificates and logins, and nothing is asked for them."""
    broker = Broker(BrokerConfig(principal_builder_class=word), mock_runtime())
    assert broker.named("OwnPrincipals") is None


def test_client_cannot_choose_a_builder(scripted, certificates):
    """Code that a broker runs is named by its file, not by who may alter settings."""
    Scripted.answers = [KafkaPrincipal("User", "alice")]
    with ottla.Admin(**client(scripted, certificates, "PLAINTEXT")) as admin:
        change = {"principal.builder.class": f"{ME}:Teams"}
        with pytest.raises(KafkaError, match="INVALID_REQUEST"):
            admin.alter_configs({ottla.ConfigResource.broker(0): change})


def test_checked_names_are_the_same():
    """Text of any script, and spaces, are names."""
    for name in (KafkaPrincipal("User", "Ólafur Þór"), TokenPrincipal("Team", "a:b")):
        assert checked(name) is name
