"""Metrics and health over HTTP, at a broker in the test's process."""

from __future__ import annotations

import asyncio
import json
import ssl
from types import SimpleNamespace

import pytest
from http_pages import bean, get, metrics_of, scrape

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError
from ottla.extensions.measures.health import why_not_ready
from ottla.extensions.measures.metrics_listener import MetricsListener
from ottla.metrics.metrics_pages import MAX_ASKED, MAX_BODY_BYTES, MAX_NAME_LENGTH
from ottla.metrics.sensors import TICK_MS
from ottla.network.broker_tls import LOOK_MS
from ottla.network.tls_context import ListenerTls
from ottla.runtime import SocketNetwork
from ottla.server.membership import BrokerState
from ottla.structs import replace
from ottla.testing import InProcessBroker, mock_runtime, wait_until

IN_MEMORY = {"metrics_listener": "http://127.0.0.1:0"}


def url_of(broker):
    return str(metrics_of(broker.broker).end_point)


@pytest.fixture(scope="module")
def broker():
    """A broker with metrics and one topic."""
    with InProcessBroker(**IN_MEMORY) as running:
        running.create_topic("t", partitions=2)
        yield running


@pytest.fixture
def url(broker):
    return url_of(broker)


def test_page_is_what_prometheus_reads(url):
    """Every family, those of the process too, in the text format."""
    found = scrape(url)

    assert found["kafka_server_replicamanager_leadercount", ()] >= 2
    assert found["kafka_server_kafkaserver_brokerstate", ()] == BrokerState.RUNNING
    assert found["process_cpu_seconds_total", ()] > 0


def test_names_can_be_chosen(url):
    """?name= with * is for a scraper that wants few."""
    status, page = get(f"{url}/metrics?name=kafka_log_log_*")

    assert status == 200
    names = {line.split("{")[0] for line in page.splitlines() if not line.startswith("#")}
    assert names == {
        f"kafka_log_log_{name}"
        for name in ("size", "logstartoffset", "logendoffset", "numlogsegments")
    }


def test_healthy_and_ready(url):
    """A broker that runs and leads what it should is both."""
    assert get(f"{url}/healthz") == (200, "ok\n")
    assert get(f"{url}/readyz") == (200, "ready\n")


@pytest.mark.parametrize(
    "asked",
    [
        "kafka.cluster:type=Partition,name=InSyncReplicasCount,topic=t,partition=1",
        "kafka.cluster:name=InSyncReplicasCount,partition=1,type=Partition,topic=t",
    ],
)
def test_one_bean_is_read_as_from_jolokia(url, asked):
    """Its attributes are the value, whatever the order of its tags."""
    status, page = get(f"{url}/jolokia/read/{asked}")
    answer = json.loads(page)

    assert (status, answer["status"]) == (200, 200)
    assert answer["value"] == {"Value": 1}
    assert answer["request"] == {"type": "read", "mbean": asked}


def test_pattern_reads_several_beans(url):
    """The values are by name."""
    found = bean(url, "kafka.log:type=Log,name=Size,*")

    assert {"kafka.log:type=Log,name=Size,partition=0,topic=t"} < set(found)


def test_one_attribute_is_read_alone(url):
    """As /jolokia/read/<bean>/<attribute>, or by POST; several requests come as a list."""
    name = "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec"
    path = json.loads(get(f"{url}/jolokia/read/{name}/Count")[1])
    asked = {"type": "read", "mbean": name, "attribute": "Count"}
    posted = json.loads(get(f"{url}/jolokia", body=asked)[1])
    many = json.loads(get(f"{url}/jolokia/", body=[asked, {"type": "version"}])[1])

    assert path["value"] == posted["value"] == many[0]["value"] == 0
    assert many[1]["value"]["protocol"] == "7.2"


def test_beans_can_be_searched_and_listed(url):
    """What a browser of JMX does first."""
    search = json.loads(get(f"{url}/jolokia/search/kafka.log:*,type=LogManager")[1])["value"]
    listed = json.loads(get(f"{url}/jolokia/list")[1])["value"]

    assert "kafka.log:type=LogManager,name=OfflineLogDirectoryCount" in search
    assert "Value" in listed["kafka.log"]["type=LogManager,name=OfflineLogDirectoryCount"]["attr"]


@pytest.mark.parametrize(
    ("path", "status"),
    [("read/kafka.log:type=Nothing", 404), ("exec/kafka.log:type=Log", 400), ("read/x", 404)],
)
def test_wrong_request_says_what_is_wrong(url, path, status):
    """In the answer's own status, as Jolokia does."""
    answer = json.loads(get(f"{url}/jolokia/{path}")[1])

    assert answer["status"] == status
    assert answer["error"]


def test_body_that_is_not_json_is_refused(url):
    """With 400; and so is a request that is no object."""
    assert json.loads(get(f"{url}/jolokia", body="text")[1])["status"] == 400


def test_list_of_requests_has_a_limit(url):
    """Lists and names have limits: a request is bounded before anything is read."""
    asked = {"type": "read", "mbean": "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"}
    assert len(json.loads(get(f"{url}/jolokia", body=[asked] * MAX_ASKED)[1])) == MAX_ASKED
    status, page = get(f"{url}/jolokia", body=[asked] * (MAX_ASKED + 1))
    assert (status, json.loads(page)["status"]) == (400, 400)

    long = {"type": "read", "mbean": "x:" + "a" * MAX_NAME_LENGTH}
    assert json.loads(get(f"{url}/jolokia", body=long)[1])["status"] == 400
    assert get(f"{url}/jolokia", body="a" * MAX_BODY_BYTES)[0] == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "127.0.0.1:1"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_pages_of_other_sites_are_refused(url, headers, status):
    """A browser on the broker's machine reaches the listener for whatever page it shows."""
    assert get(f"{url}/metrics", headers=headers)[0] == status


def test_password_is_asked_for():
    """All pages but the two of health; user and password must both be right."""
    settings = {"metrics_listener_username": "ann", "metrics_listener_password": "s3cret"}
    with InProcessBroker(**IN_MEMORY, **settings) as broker:
        url = url_of(broker)
        assert get(f"{url}/healthz")[0] == get(f"{url}/readyz")[0] == 200
        assert get(f"{url}/metrics")[0] == get(f"{url}/jolokia/list")[0] == 401
        for wrong in ("ann:wrong", "bob:s3cret", "ann", ":"):
            assert get(f"{url}/metrics", user=wrong)[0] == 401
        assert get(f"{url}/metrics", user="ann:s3cret")[0] == 200


def test_https_takes_the_brokers_own_keys(tmp_path):
    """ssl.keystore.* of all listeners; a client that trusts the authority is served."""
    import trustme

    authority = trustme.CA()
    keys = tmp_path / "keys.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(keys))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with InProcessBroker(
        metrics_listener="https://127.0.0.1:0", ssl_keystore_location=str(keys)
    ) as broker:
        assert get(f"{url_of(broker)}/healthz", context=trusting) == (200, "ok\n")


def test_https_follows_the_file_of_its_keys(tmp_path, monkeypatch):
    """At the next look at it, without a restart; one that is no use changes nothing."""
    import trustme

    monkeypatch.setattr("ottla.extensions.measures.metrics_listener.LOOK_MS", 50)

    first, second = trustme.CA(), trustme.CA()
    keys = tmp_path / "keys.pem"

    def write(authority: trustme.CA) -> None:
        new = tmp_path / "new.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(new))
        new.rename(keys)

    trusting = ssl.create_default_context()
    second.configure_trust(trusting)
    write(first)
    with InProcessBroker(
        metrics_listener="https://127.0.0.1:0",
        ssl_keystore_location=str(keys),
        ssl_allow_dn_changes=True,
    ) as broker:
        url = f"{url_of(broker)}/healthz"

        def is_trusted() -> bool:
            try:
                return get(url, context=trusting) == (200, "ok\n")
            except OSError:
                return False

        assert not is_trusted()
        write(second)
        wait_until(is_trusted, "the changed certificate", 60)
        keys.write_text("half a file")
        looked = metrics_of(broker.broker)._tls
        wait_until(lambda: looked.rejected_count, "the refusal", 60)  # once or, while empty, twice
        assert is_trusted()


def test_broker_that_starts_or_leaves_is_healthy_and_not_ready(broker):
    """503 with the reason: from SIGTERM on, before leadership moves, and before it runs."""
    server = broker.broker
    for state in BrokerState:
        server.state = state
        reason = why_not_ready(server)
        assert (reason is None) == (state is BrokerState.RUNNING), state
        assert get(f"{url_of(broker)}/healthz")[0] == 200
        assert get(f"{url_of(broker)}/readyz")[0] == (200 if reason is None else 503)
    server.state = BrokerState.RUNNING


def test_broker_without_its_session_is_not_ready(broker):
    """It is not registered, so that the controller gives its partitions to others."""
    membership = broker.broker.membership
    membership.is_registered = False
    try:
        status, why = get(f"{url_of(broker)}/readyz")
    finally:
        membership.is_registered = True

    assert status == 503
    assert "not registered" in why


def test_broker_that_does_not_lead_what_it_should_is_not_ready(broker):
    """Metadata name it as leader, and it has not taken over yet."""
    partitions = broker.broker.replica_manager.partitions
    tp = next(each for each in partitions if each.topic == "t")
    partition = partitions.pop(tp)
    try:
        status, why = get(f"{url_of(broker)}/readyz")
    finally:
        partitions[tp] = partition

    assert status == 503
    assert str(tp) in why


def test_port_that_is_taken_stops_the_start(broker):
    """The error names the address, and nothing of the broker is left behind."""
    port = metrics_of(broker.broker).end_point.port
    other = InProcessBroker(metrics_listener=f"http://127.0.0.1:{port}")

    with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
        other.start()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://127.0.0.1:9404", "http://127.0.0.1:9404"),
        ("http://:9404", "http://127.0.0.1:9404"),
        ("https://0.0.0.0:0", "https://0.0.0.0:0"),
        ("http://[::1]:9404/", "http://[::1]:9404"),
    ],
)
def test_listener_is_an_url(text, shown):
    """Without a host only this machine can connect."""
    assert str(BrokerConfig.parse({"metrics.listener": text}).metrics_listener) == shown


@pytest.mark.parametrize(
    "text", ["9404", "ftp://x:1", "http://x", "http://x:99999", "http://x:1/a"]
)
def test_anything_else_is_refused(text):
    """The error says what it must be."""
    with pytest.raises(ConfigError, match=r"must be http://host:port"):
        BrokerConfig.parse({"metrics.listener": text})


def test_user_and_password_belong_together():
    """One alone would protect nothing."""
    with pytest.raises(ConfigError, match=r"metrics.listener.password: must be set"):
        BrokerConfig.parse({"metrics.listener.username": "ann"})


def test_listener_measures_and_ticks_until_it_is_closed(monkeypatch):
    """Meters have their rates from the ticks; what is closed costs a broker nothing."""
    made, ticks = [], []

    class Metrics:
        def __init__(self, parts, registry):
            made.append(registry)

        def close(self):
            made.clear()

    monkeypatch.setattr("ottla.extensions.measures.metrics_listener.BrokerMetrics", Metrics)
    runtime = mock_runtime()
    config = BrokerConfig.parse({"metrics.listener": "http://127.0.0.1:0"})
    listener = MetricsListener(runtime, config, config.metrics_listener, lambda: None)
    listener.registry.on_tick(lambda: ticks.append(None))
    listener.measure(SimpleNamespace(registry=None))
    runtime.advance(2 * TICK_MS)
    assert made == [listener.registry]
    assert len(ticks) == 2
    runtime.scheduler.run(listener.close())
    runtime.advance(2 * TICK_MS)

    assert (made, len(ticks)) == ([], 2)


def test_files_of_keys_are_looked_at_until_the_listener_is_closed(certificates, monkeypatch):
    """Nobody would use what is found afterwards."""
    looks = []

    def look(tls):
        looks.append(tls)

    monkeypatch.setattr(ListenerTls, "read_changed", look)
    settings = {
        "metrics.listener": "https://127.0.0.1:0",
        "ssl.keystore.location": certificates.server,
    }
    config = BrokerConfig.parse(settings)
    runtime = mock_runtime()

    with asyncio.Runner() as runner:
        network = SocketNetwork(runner.get_loop())
        listening = replace(runtime, network=network)
        listener = MetricsListener(listening, config, config.metrics_listener, lambda: None)
        runner.run(listener.start())
        runtime.advance(LOOK_MS)
        assert len(looks) == 1
        runner.run(listener.close())
    runtime.advance(2 * LOOK_MS)

    assert len(looks) == 1
