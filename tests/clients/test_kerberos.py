"""GSSAPI with a real KDC (MIT Kerberos), which is started here on a port of loopback."""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest

import ottla
from ottla.errors import ConfigError, SaslAuthenticationError
from ottla.runtime.free_port import free_port
from ottla.testing import InProcessBroker, InProcessCluster, wait_until

LIMIT_S = 60
REALM = "OTTLA.TEST"
HOST = "localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
RULES = r"RULE:[2:$1.$2](jobs\..*)s/\./-/U,RULE:[2:$1/$2](bad/.*),DEFAULT"

pytestmark = pytest.mark.usefixtures("sockets_left_open")


def program(name: str) -> str:
    """A program of MIT Kerberos, which Debian keeps from the search path of users."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        pytest.skip(f"{name} is missing: apt-get install krb5-kdc krb5-admin-server krb5-user")
    return found


class Kdc:
    """A KDC of a realm of its own, and the keytabs of its principals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port("127.0.0.1")
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
            f"[domain_realm]\n {HOST} = {REALM}\n",
            encoding="utf-8",
        )
        (folder / "kdc.conf").write_text(
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n"
            f"  key_stash_file = {folder}/stash\n  acl_file = {folder}/kadm5.acl\n"
            f"  kdc_listen = 127.0.0.1:{self.port}\n"
            f"  kdc_tcp_listen = 127.0.0.1:{self.port}\n }}\n",
            encoding="utf-8",
        )
        self.environment = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder}/nobody",
            "KRB5RCACHETYPE": "none",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, *words: str) -> None:
        subprocess.run(
            [program(words[0]), *words[1:]], env=self.environment, check=True, capture_output=True
        )

    def start(self) -> None:
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self.process = subprocess.Popen(
            [program("krb5kdc"), "-n", "-r", REALM],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(answers, "the KDC", LIMIT_S)

    def keytab(self, principal: str) -> str:
        """The file with the key of a new principal."""
        path = self.folder / (principal.replace("/", "-") + ".keytab")
        self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return str(path)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(LIMIT_S)


@pytest.fixture(scope="module")
def kdc(tmp_path_factory) -> Iterator[Kdc]:
    pytest.importorskip("gssapi", reason="gssapi is missing: pip install ottla[kerberos]")
    running = Kdc(tmp_path_factory.mktemp("kdc"))
    with pytest.MonkeyPatch.context() as patch:
        for name, text in running.environment.items():
            patch.setenv(name, text)
        running.start()
        yield running
        running.stop()


def entry(keytab: str, principal: str) -> str:
    return (
        f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
        f'principal="{principal}@{REALM}";'
    )


@pytest.fixture(scope="module")
def service(kdc) -> str:
    """The login of the brokers."""
    return entry(kdc.keytab(f"kafka/{HOST}"), f"kafka/{HOST}")


@pytest.fixture(scope="module")
def broker(service) -> Iterator[InProcessBroker]:
    settings = {
        "listeners": f"SASL_PLAINTEXT://{HOST}:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": service,
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
    }
    with InProcessBroker(**settings) as running:
        yield running


def login(broker: InProcessBroker, jaas: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"{HOST}:{broker.broker.end_points[0].port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": jaas,
    }


def principals(broker: InProcessBroker) -> set[str]:
    return {each.principal.name for each in broker.broker.processor.connections}


@pytest.mark.parametrize(
    ("principal", "expected"), [("alice", "alice"), ("jobs/night", "JOBS-NIGHT")]
)
def test_our_clients_log_in(kdc, broker, principal, expected):
    """With a keytab; the rules make the name."""
    settings = login(broker, entry(kdc.keytab(principal), principal))
    values = [b"record %d" % number for number in range(1000)]
    topic = principal.replace("/", "-")
    with ottla.Producer(None, settings) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush(LIMIT_S)
        assert expected in principals(broker)
    with ottla.Consumer(None, settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        found: list[bytes] = []
        wait_until(
            lambda: len(found) == len(values),
            "all records",
            LIMIT_S,
            meanwhile=lambda: found.extend(record.value for record in consumer.poll(500)),
        )
    assert found == values


def test_ticket_cache_is_used(kdc, broker, tmp_path):
    """As `kinit` leaves it, where there is no keytab."""
    keytab, cache = kdc.keytab("dave"), f"FILE:{tmp_path}/cache"
    kdc.run("kinit", "-c", cache, "-k", "-t", keytab, "dave")
    jaas = f'{MODULE} required useTicketCache=true ticketCache="{cache}";'
    with ottla.Admin(None, login(broker, jaas)) as admin:
        admin.list_topics()
        assert "dave" in principals(broker)


def test_kafka_python_logs_in(kdc, broker, monkeypatch, tmp_path):
    """By the ticket cache of its process."""
    keytab, cache = kdc.keytab("erin"), f"FILE:{tmp_path}/cache"
    kdc.run("kinit", "-c", cache, "-k", "-t", keytab, "erin")
    monkeypatch.setenv("KRB5CCNAME", cache)
    producer = kafka.KafkaProducer(
        bootstrap_servers=login(broker, "")["bootstrap.servers"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_name=f"kafka@{HOST}",
    )
    producer.send("erin", b"x").get(LIMIT_S)
    assert "erin" in principals(broker)
    producer.close()


def test_name_that_no_rule_fits_is_refused(kdc, broker, caplog):
    """The reason is in the broker's log, and not told."""
    caplog.set_level(logging.INFO)
    settings = login(broker, entry(kdc.keytab("bad/host"), "bad/host"))
    with pytest.raises(SaslAuthenticationError, match="SASL mechanism GSSAPI"):
        ottla.Admin(None, settings).list_topics()
    assert "which is no short name" in caplog.text


def test_client_without_a_ticket_says_so(kdc, broker):
    """No broker is asked."""
    jaas = f'{MODULE} required useTicketCache=true ticketCache="FILE:/nowhere/cache";'
    with pytest.raises(SaslAuthenticationError, match="no ticket for kafka at localhost"):
        ottla.Admin(None, login(broker, jaas)).list_topics()


def test_keytab_without_the_key_stops_the_start(kdc):
    """The keytab and the principal are named."""
    settings = {
        "listeners": f"SASL_PLAINTEXT://{HOST}:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": entry("/nowhere", "kafka/x"),
    }
    with pytest.raises(ConfigError, match=r"keytab /nowhere cannot be used for kafka/x@"):
        InProcessBroker(**settings).__enter__()


def test_brokers_log_in_to_each_other(service):
    """By the keytab that they also serve clients with; sessions end, and begin again."""
    settings = {
        "listeners": f"SASL_PLAINTEXT://{HOST}:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": service,
        "connections.max.reauth.ms": 2000,
    }
    with InProcessCluster(2, **settings) as cluster:
        servers = ",".join(f"{HOST}:{port}" for port in cluster.ports.values())
        client = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": service,
        }
        with ottla.Producer(None, client, acks="all") as producer:
            producer.send("replicated", b"x").result(LIMIT_S)
        with ottla.Admin(None, client) as admin:
            (partition,) = admin.describe_topics(["replicated"])["replicated"].partitions
    assert partition.leader >= 0
