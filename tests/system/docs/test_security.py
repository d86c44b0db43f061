"""docs/operate/security.md as it stands: certificates, a broker, the tools and three clients."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from page import Page, PageReader

import ottla
from ottla.testing import InProcessBroker

PORTS = ("9092", "9093", "9094", "9095")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[PageReader]:
    """Whose broker ends with the test."""
    somebody = PageReader(tmp_path, *PORTS)
    yield somebody
    somebody.shell.close()
    with warnings.catch_warnings():  # kafka-python leaves sockets to the collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.wide
def test_page_on_security_is_true(reader: PageReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom; in the end the records of all four producers are there."""
    monkeypatch.chdir(reader.folder)
    program: dict[str, object] = {}
    do = {
        "properties": reader.write,
        "console": reader.type,
        "python": lambda text: exec(reader.translated(text), program),
        "text": lambda text: None,
    }
    for language, text in Page("docs/operate/security.md").blocks():
        do[language](text)

    with ottla.Consumer(
        f"localhost:{reader.ports['9093']}", program["secure"], auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([ottla.TopicPartition("secrets", 0)])
        values = []
        while len(values) < 4:
            values += [record.value for record in consumer.poll(1000)]
    assert values == [b"sealed", b"from ottla", b"from librdkafka", b"from kafka-python"]


def test_class_of_the_page_names_clients(certificates, tmp_path, monkeypatch) -> None:
    """By the unit in their certificate, which the broker's file needs one line for."""
    (program,) = [
        text
        for language, text in Page("docs/operate/security.md").blocks()
        if language == "python" and "PrincipalBuilder" in text
    ]
    (tmp_path / "teams.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    settings = {
        **certificates.listener,
        "ssl.client.auth": "required",
        "ssl.truststore.location": certificates.ca,
        "principal.builder.class": "teams.py:Teams",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "Team:Clients",
    }
    login = {"security_protocol": "SSL", "ssl_truststore_location": certificates.ca}
    with InProcessBroker(**settings) as broker:
        servers = broker.bootstrap_servers
        with ottla.Admin(servers, **login, ssl_keystore_location=certificates.alice) as alice:
            alice.create_topics([ottla.NewTopic("t")])
            assert alice.list_topics() == {"t"}
        with ottla.Admin(servers, **login, ssl_keystore_location=certificates.client) as other:
            assert other.list_topics() == set()
