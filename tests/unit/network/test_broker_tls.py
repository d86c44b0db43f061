"""Certificates that change while they are in use."""

from __future__ import annotations

import errno
import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from tls_world import agree

from ottla.config.broker_config import BrokerConfig
from ottla.config.ssl_config import SslSettings
from ottla.errors import ConfigError
from ottla.network import tls_context
from ottla.network.broker_tls import LOOK_MS, BrokerTls
from ottla.network.tls_context import ClientTls, client_context
from ottla.security.principal import ANONYMOUS
from ottla.security.ssl_principal_mapper import NoMatchingRuleError
from ottla.testing import mock_runtime, wait_until

BROKER = {
    "common_name": "broker",
    "organization_name": "Example",
    "organization_unit_name": "Brokers",
}
NAME = "CN=broker,OU=Brokers,O=Example"
DAY_MS = 24 * 3600 * 1000


class Operator:
    """Somebody who changes the files of a broker that listens by SSL, on virtual time."""

    def __init__(
        self, folder: Path, dates: dict[str, datetime] | None = None, **settings: str
    ) -> None:
        self.store, self.trust = folder / "broker.pem", folder / "trusted.pem"
        self.ca = trustme.CA()
        self.trusted = [self.ca]
        self.issue(dates=dates)
        self.trust_them(self.ca)
        self.config = BrokerConfig.parse(
            {
                "listeners": "SSL://:9093",
                "ssl.keystore.location": str(self.store),
                "ssl.truststore.location": str(self.trust),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.runtime = mock_runtime()
        self.tls = BrokerTls(self.config)
        self.listener = self.tls.listeners["SSL"]

    def pem(
        self,
        *hosts: str,
        ca: trustme.CA | None = None,
        dates: dict[str, datetime] | None = None,
        **names: str,
    ) -> bytes:
        names = BROKER | names
        issued = (ca or self.ca).issue_cert(*hosts or ("localhost",), **names, **(dates or {}))
        return issued.private_key_and_cert_chain_pem.bytes()

    def issue(self, *hosts: str, **wanted: Any) -> None:
        """Put a new certificate in the place of the old one, as a tool does: by a rename."""
        new = self.store.with_suffix(".new")
        new.write_bytes(self.pem(*hosts, **wanted))
        new.rename(self.store)

    def trust_them(self, *authorities: trustme.CA) -> None:
        new = self.trust.with_suffix(".new")
        new.write_bytes(b"".join(each.cert_pem.bytes() for each in authorities))
        new.rename(self.trust)

    def shown(self, ca: trustme.CA | None = None) -> str:
        """The serial number of the certificate that a new connection sees."""
        trusted = (ca or self.ca).cert_pem.bytes().decode()
        client = client_context(SslSettings.parse(ssl_truststore_certificates=trusted))
        seen, _ = agree(self.listener.context, client)
        return seen.getpeercert()["serialNumber"]

    def wait(self) -> None:
        """Until the broker has looked."""
        self.runtime.scheduler.advance(LOOK_MS + 1)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Whose broker runs."""
    somebody = Operator(tmp_path)
    somebody.tls.start(somebody.runtime)
    return somebody


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_new_certificate_is_shown_without_a_command(operator, caplog):
    """A few seconds after its file has changed; the log says until when it holds."""
    caplog.set_level(logging.INFO)
    before = operator.shown()
    operator.issue()
    assert operator.shown() == before
    operator.wait()

    assert operator.shown() != before
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(f"listener SSL: new connections have the changed certificates: {NAME}, ")


def test_files_that_did_not_change_are_not_read(operator, monkeypatch):
    """Looking costs the broker a few system calls, however long it runs."""
    monkeypatch.setattr(operator.listener, "_read", None)
    for _ in range(10):
        operator.wait()

    assert operator.listener.rejected_count == 0


def test_a_link_to_another_folder_is_a_change(tmp_path: Path):
    """Kubernetes puts a new link in the place of the old one; no file is written to."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    operator = Operator(tmp_path / "first")
    os.symlink("first", tmp_path / "data")
    operator.config = operator.config.replace(
        ssl_keystore_location=str(tmp_path / "data" / "broker.pem")
    )
    operator.tls = BrokerTls(operator.config)
    operator.listener = operator.tls.listeners["SSL"]
    operator.tls.start(operator.runtime)
    before = operator.shown()
    (tmp_path / "second" / "broker.pem").write_bytes(operator.pem())
    os.symlink("second", tmp_path / "new")
    os.rename(tmp_path / "new", tmp_path / "data")
    operator.wait()

    assert operator.shown() != before


@pytest.mark.parametrize("broken", ["cut", "mixed", "gone", "empty"])
def test_a_file_that_is_half_written_changes_nothing(operator, caplog, broken):
    """It is logged once, however long it stays, and the whole file is used when it is there."""
    before, whole, other = operator.shown(), operator.pem(), operator.pem()
    _, mark, certificates = whole.partition(b"-----BEGIN CERTIFICATE-----")
    if broken == "gone":
        operator.store.unlink()
    else:
        content = {
            "cut": whole[: len(whole) // 2],
            "mixed": other.partition(mark)[0] + mark + certificates,
            "empty": b"",
        }
        operator.store.write_bytes(content[broken])
    for _ in range(3):
        operator.wait()
    assert operator.shown() == before
    assert operator.listener.rejected_count == 1
    (line,) = errors(caplog)
    assert line.startswith("listener SSL: changed files are not used, the old ones stay: ssl.keyst")

    operator.store.write_bytes(whole)
    operator.wait()
    assert operator.shown() != before
    assert operator.listener.rejected_count == 1


def test_a_certificate_keeps_its_subject(operator, caplog):
    """As in Kafka, since its name may have rights; a setting of the listener lifts that."""
    before = operator.shown()
    operator.issue(common_name="other")
    operator.wait()
    assert operator.shown() == before
    assert (
        "the certificate is of CN=other,OU=Brokers,O=Example, and that in use of"
        in errors(caplog)[0]
    )

    lifted = operator.config.with_listener_settings(
        {"listener.name.ssl.ssl.allow.dn.changes": "true"}
    )
    operator.tls.check(lifted)
    operator.tls.update(lifted)
    assert operator.shown() != before


def test_a_certificate_keeps_its_hosts(operator, caplog):
    """It may have more of them, and none of them is lost: clients ask for those."""
    operator.issue("localhost", "more.example.org")
    operator.wait()
    with_more = operator.shown()
    operator.issue("localhost")
    operator.wait()

    assert operator.shown() == with_more
    assert "lacks 1 of the names that the one in use has (subjectAltName)" in errors(caplog)[0]


def test_settings_that_may_not_be_used_are_refused(operator, tmp_path):
    """Before they are stored, with the reason."""
    (tmp_path / "other.pem").write_bytes(operator.pem(common_name="other"))
    changed = {"listener.name.ssl.ssl.keystore.location": str(tmp_path / "other.pem")}
    with pytest.raises(ConfigError, match=r"ssl\.allow\.dn\.changes=true permits it"):
        operator.tls.check(operator.config.with_listener_settings(changed))
    alone = BrokerConfig.parse(
        {"listeners": "SSL://:9093", "ssl.keystore.location": str(operator.store)}
    )
    with pytest.raises(ConfigError, match="trust store cannot be added or removed"):
        operator.tls.check(alone)


def test_a_password_is_changed_after_its_file(operator, caplog):
    """The new file cannot be used before; the old certificate is shown until it can."""
    before = operator.shown()
    pem = operator.pem()
    key = load_pem_private_key(pem, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame")
    )
    operator.store.write_bytes(key + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    operator.wait()
    assert operator.shown() == before
    assert "the password of the key, ssl.key.password, is missing" in errors(caplog)[0]

    changed = operator.config.with_listener_settings(
        {"listener.name.ssl.ssl.key.password": "sesame"}
    )
    operator.tls.check(changed)
    operator.tls.update(changed)
    assert operator.shown() != before
    assert "sesame" not in caplog.text


def test_settings_from_before_the_start_may_name_another_certificate(operator, tmp_path):
    """What a properties file says is not in use yet when the overrides are read."""
    before = operator.shown()
    (tmp_path / "other.pem").write_bytes(operator.pem(common_name="other"))
    changed = {"listener.name.ssl.ssl.keystore.location": str(tmp_path / "other.pem")}
    operator.tls.update(operator.config.with_listener_settings(changed), keeps_rules=False)

    assert operator.shown() != before


def test_brokers_keep_trusting_each_other(tmp_path, caplog):
    """An authority is changed in three steps: trust both, show the new one, forget the old one."""
    operator = Operator(
        tmp_path, zookeeper_connect="here:2181", security_inter_broker_protocol="SSL"
    )
    operator.tls.start(operator.runtime)
    old, new = operator.ca, trustme.CA()
    operator.issue(ca=new)
    operator.wait()
    assert "do not trust each other" in errors(caplog)[0]
    operator.shown(old)

    operator.issue(ca=old)
    operator.trust_them(old, new)
    operator.wait()
    operator.issue(ca=new)
    operator.wait()
    operator.trust_them(new)
    operator.wait()
    operator.shown(new)
    assert len(operator.listener.stores.outgoing.get_ca_certs()) == 1
    assert operator.listener.rejected_count == 1


def test_certificates_are_tried_beside_the_loop(tmp_path, monkeypatch):
    """Signatures with long keys take 30 ms, and certificates that are refused are tried again."""
    operator = Operator(
        tmp_path, zookeeper_connect="here:2181", security_inter_broker_protocol="SSL"
    )
    operator.issue(ca=trustme.CA())
    refused = operator.listener.read_changed()
    operator.issue()
    good = operator.listener.read_changed()
    monkeypatch.setattr(tls_context, "distrust", None)
    operator.listener.take(refused)
    assert operator.listener.rejected_count == 1
    operator.listener.take(good)

    assert operator.listener.stores is good.stores


HOUR = timedelta(hours=1)


def dated(before: timedelta, after: timedelta) -> dict[str, datetime]:
    """When a certificate begins and ceases to hold."""
    now = datetime.now(UTC)
    return {"not_before": now + before, "not_after": now + after}


@pytest.mark.parametrize("is_authority_new", [False, True])
@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_certificates_that_have_expired_are_replaced(
    tmp_path, caplog, client_auth, is_authority_new
):
    """No broker can connect with them any more, so that they are no measure of the new ones."""
    operator = Operator(
        tmp_path,
        dated(-2 * HOUR, -HOUR),
        zookeeper_connect="here:2181",
        security_inter_broker_protocol="SSL",
        ssl_client_auth=client_auth,
    )
    operator.tls.start(operator.runtime)
    operator.issue(ca=trustme.CA())
    operator.wait()
    assert "the changed certificates do not trust themselves" in errors(caplog)[-1]
    authority = trustme.CA() if is_authority_new else operator.ca
    operator.trust_them(authority)
    operator.issue(ca=authority)
    operator.wait()

    agree(operator.listener.context, operator.listener.stores.outgoing)
    assert operator.listener.rejected_count == 1


@pytest.mark.parametrize("listens_for", ["brokers", "clients"])
@pytest.mark.parametrize("refused", ["no descriptor", "no permission", "clock"])
def test_files_that_were_refused_are_looked_at_again(
    tmp_path, caplog, monkeypatch, refused, listens_for
):
    """What is in the way may pass without a change of the files; it is logged once."""
    brokers = {"zookeeper_connect": "here:2181", "security_inter_broker_protocol": "SSL"}
    operator = Operator(tmp_path, **(brokers if listens_for == "brokers" else {}))
    operator.tls.start(operator.runtime)
    before, read = operator.shown(), operator.listener._read
    reasons = {
        "no descriptor": OSError(errno.EMFILE, "Too many open files"),
        "no permission": OSError(errno.EACCES, "Permission denied"),
        "clock": ssl.SSLError("certificate is not yet valid"),
    }

    def refuse(settings):
        raise ConfigError(str(reasons[refused]))

    monkeypatch.setattr(operator.listener, "_read", refuse)
    operator.issue()
    for _ in range(3):
        operator.wait()
    assert operator.shown() == before
    assert operator.listener.rejected_count == len(errors(caplog)) == 1

    monkeypatch.setattr(operator.listener, "_read", read)
    operator.wait()
    assert operator.shown() != before
    assert operator.listener.rejected_count == 1


def test_settings_that_had_no_effect_have_it_once_the_files_are_there(operator, tmp_path, caplog):
    """One of many brokers may lack them when the setting is changed for all."""
    before = operator.shown()
    changed = operator.config.with_listener_settings(
        {"listener.name.ssl.ssl.keystore.location": str(tmp_path / "next.pem")}
    )
    operator.tls.update(changed)
    operator.wait()
    assert "settings have no effect yet" in errors(caplog)[0]
    assert operator.shown() == before
    (tmp_path / "next.pem").write_bytes(operator.pem())
    operator.wait()

    assert operator.shown() != before
    assert operator.listener.rejected_count == len(errors(caplog)) == 1


def test_settings_that_had_no_effect_may_be_taken_back(operator, tmp_path):
    """Then files that come to be in their place are not looked at."""
    before = operator.shown()
    operator.tls.update(
        operator.config.with_listener_settings(
            {"listener.name.ssl.ssl.keystore.location": str(tmp_path / "next.pem")}
        )
    )
    operator.tls.update(operator.config)
    (tmp_path / "next.pem").write_bytes(operator.pem())
    operator.wait()

    assert operator.shown() == before


def test_a_certificate_that_does_not_hold_yet_is_shown_once_it_does(tmp_path, monkeypatch):
    """The clock of the broker may be behind that of the authority."""
    operator = Operator(
        tmp_path, zookeeper_connect="here:2181", security_inter_broker_protocol="SSL"
    )
    operator.tls.start(operator.runtime)
    before = operator.shown()
    soon = datetime.now(UTC) + timedelta(seconds=2)
    operator.issue(dates={"not_before": soon, "not_after": soon + HOUR})
    operator.wait()
    assert operator.shown() == before

    def is_shown() -> bool:
        operator.wait()
        return operator.shown() != before

    wait_until(is_shown, "the certificate holds")


def test_the_end_of_a_certificate_is_told_ahead(operator, caplog):
    """With 30, 7 and 1 days left, and when it has come; each once, until there is a new one."""
    caplog.set_level(logging.WARNING)
    end_ms = operator.listener.stores.certificate.not_after_ms
    for left in (31, 30, 29, 7, 6, 1, 0.5, 0, -1):
        operator.listener.warn_of_expiry(int(end_ms - left * DAY_MS))
    said = [
        each.getMessage().partition(f"the certificate of {NAME} ")[2] for each in caplog.records
    ]

    assert [each.partition(",")[0] for each in said] == [
        "expires in 30.0 days",
        "expires in 7.0 days",
        "expires in 1.0 days",
        "has expired",
    ]
    operator.listener.warn_of_expiry(end_ms - 31 * DAY_MS)
    operator.listener.warn_of_expiry(end_ms - 30 * DAY_MS)
    assert len(caplog.records) == 5


def test_a_client_connects_with_what_its_files_hold_then(operator, caplog):
    """It looks before each connection, and keeps what it has where a file cannot be used."""
    settings = SslSettings.parse(ssl_truststore_location=str(operator.trust))
    client = ClientTls(settings)

    def current():
        return operator.runtime.scheduler.run(client.current(operator.runtime.background))

    first = current()
    assert current() is first
    other = trustme.CA()
    operator.trust_them(operator.ca, other)
    assert len(current().get_ca_certs()) == 2
    operator.trust.write_text("nothing")
    assert len(current().get_ca_certs()) == 2
    assert len(current().get_ca_certs()) == 2
    assert client.rejected_count == len(errors(caplog)) == 1


def test_a_client_without_files_looks_at_none(certificates):
    """PEM text in settings does not change."""
    text = Path(certificates.ca).read_text()
    client = ClientTls(SslSettings.parse(ssl_truststore_certificates=text))
    runtime = mock_runtime()
    client.read_changed = None

    assert runtime.scheduler.run(client.current(runtime.background)) is client.context


@pytest.mark.parametrize(
    ("protocol", "is_named"), [("SSL", True), ("SASL_SSL", False)], ids=["SSL", "SASL_SSL"]
)
def test_rules_for_names_do_not_hold_where_clients_log_in(tmp_path, protocol, is_named):
    """A client of SASL_SSL was closed although its login was good: no rule matched its name."""
    operator = Operator(tmp_path)
    config = BrokerConfig.parse(
        {
            "listeners": f"{protocol}://:9093",
            "ssl.keystore.location": str(operator.store),
            "ssl.truststore.location": str(operator.trust),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:CN=nobody/nobody/",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256" if protocol == "SASL_SSL" else "GSSAPI",
        }
    )
    listener = BrokerTls(config).listeners[protocol]
    pem = operator.pem().decode()
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :].split("\n\n")[0])

    if is_named:
        with pytest.raises(NoMatchingRuleError):
            listener.principal_of(der)
    else:
        assert listener.principal_of(der) == ANONYMOUS


def test_files_that_wait_at_one_listener_are_no_reason_against_those_of_another(tmp_path: Path):
    """A store of another name, which waits for a restart; named again alone, it is refused."""
    operator = Operator(
        tmp_path,
        listeners="SSL://:9093,OTHER://:9094",
        listener_security_protocol_map="SSL:SSL,OTHER:SSL",
    )
    new = tmp_path / "other.pem"
    new.write_bytes(operator.pem())
    operator.issue(common_name="another")
    key = "listener.name.other.ssl.keystore.location"

    operator.tls.check(operator.config.with_listener_settings({key: str(new)}))
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location=/none: No such file"):
        operator.tls.check(operator.config.with_listener_settings({key: "/none"}))
    with pytest.raises(ConfigError, match="the certificate is of"):
        operator.tls.check(operator.config)
