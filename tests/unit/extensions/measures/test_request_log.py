"""The log of requests: which it has, and what it says of them."""

from __future__ import annotations

import json
import logging
from uuid import UUID

import pytest

import ottla
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
from ottla.config.broker_config import BrokerConfig
from ottla.extensions.measures.request_log import (
    LOGGED_TIMES,
    LOGGER,
    MAX_ITEMS,
    RequestLog,
    described,
)
from ottla.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    ConfigResourceType,
)
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.testing import InProcessBroker, wait_until


@pytest.fixture(autouse=True)
def level():
    """The level of the logger is as it was, for the next test."""
    log = logging.getLogger(LOGGER)
    before = log.level
    yield log
    log.setLevel(before)


def entries(caplog):
    """What stands in the log, as objects."""
    texts = [each.getMessage() for each in caplog.records if each.name == LOGGER]
    return [json.loads(text.removeprefix("Completed request:")) for text in texts]


def change(broker, kind, key, value):
    """Set one thing of the broker or of its loggers."""
    resource = ConfigResource(kind, str(broker.broker.broker_id))
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.incremental_alter_configs({resource: [AlterConfigOp(key, value)]})


def ask(broker, client_id):
    with ottla.Admin(broker.bootstrap_servers, client_id=client_id) as admin:
        admin.list_topics()


def test_requests_are_written_while_the_level_says_so(caplog):
    """Who asked, what, and where its time went; without metrics, too."""
    with InProcessBroker() as broker:
        ask(broker, "before")
        change(broker, ConfigResourceType.BROKER_LOGGER, LOGGER, "DEBUG")
        assert broker.broker.apis.meter is not None
        ask(broker, "app")
        wait_until(
            lambda: [e for e in entries(caplog) if e["requestHeader"]["clientId"] == "app"],
            "a request in the log",
        )
        change(broker, ConfigResourceType.BROKER_LOGGER, LOGGER, "WARN")
        assert broker.broker.apis.meter is None
        ask(broker, "after")
    found = entries(caplog)
    names = {entry["requestHeader"]["clientId"] for entry in found}
    metadata = next(e for e in found if e["requestHeader"]["requestApiKeyName"] == "METADATA")

    assert "app" in names
    assert not {"before", "after"} & names
    assert metadata["principal"] == "User:ANONYMOUS"
    assert metadata["listener"] == metadata["securityProtocol"] == "PLAINTEXT"
    assert metadata["totalTimeMs"] >= metadata["localTimeMs"] >= 0
    assert metadata["response"]["brokers"][0]["port"] > 0


@pytest.mark.parametrize(
    ("key", "value", "is_in"),
    [
        ("request_log_principals", "User:ANONYMOUS", True),
        ("request_log_principals", "User:alice", False),
        ("request_log_client_ids", "app", True),
        ("request_log_client_ids", "other", False),
        ("request_log_apis", "Metadata", True),
        ("request_log_apis", "Produce", False),
        ("request_log_slower_than_ms", "600000", False),
    ],
)
def test_filters_choose_what_is_written(caplog, level, key, value, is_in):
    """By principal, client id, API and time."""
    level.setLevel(logging.DEBUG)
    with InProcessBroker(metrics_listener="http://127.0.0.1:0", **{key: value}) as broker:
        ask(broker, "app")
    found = [e for e in entries(caplog) if e["requestHeader"]["requestApiKeyName"] == "METADATA"]

    assert bool([e for e in found if e["requestHeader"]["clientId"] == "app"]) == is_in


def test_filters_change_while_the_broker_runs(caplog, level):
    """As settings of the broker."""
    level.setLevel(logging.DEBUG)
    with InProcessBroker(request_log_apis="Produce") as broker:
        change(broker, ConfigResourceType.BROKER, "request.log.apis", "Metadata")
        wait_until(lambda: ask(broker, "later") or entries(caplog), "a request that is let through")

    assert {e["requestHeader"]["requestApiKeyName"] for e in entries(caplog)} == {"METADATA"}


def test_other_loggers_do_not_bring_the_requests(level):
    """With the root at DEBUG a broker would write a line for each: its logger is apart."""
    level.setLevel(logging.NOTSET)
    RequestLog(BrokerConfig())

    assert level.level == logging.WARNING


def test_records_are_written_by_their_size():
    """A line is about the request, not about the data in it."""
    partition = PartitionProduceData(index=1, records=b"secret data")
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])

    assert described(request)["topicData"][0]["partitionData"][0]["records"] == "<11 bytes>"


def test_secrets_in_settings_are_hidden():
    """A password does not get into the log."""
    configs = [AlterableConfig(name="ssl.keystore.password", value="sesame")]
    request = AlterConfigsRequest(resources=[AlterConfigsResource(configs=configs)])

    assert "sesame" not in json.dumps(described(request))


def test_long_lists_are_cut():
    """A request for all topics of a large cluster is still one line that can be read."""
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(MAX_ITEMS + 5)]
    found = described(MetadataRequest(topics=topics))["topics"]

    assert len(found) == MAX_ITEMS + 1
    assert found[-1] == "... and 5 more"
    assert len(described(MetadataRequest(topics=topics[:MAX_ITEMS]))["topics"]) == MAX_ITEMS


def test_value_that_json_does_not_have_is_named_by_its_type():
    """Null is null, and a line is written of every request."""
    assert described(MetadataRequest(topics=None))["topics"] is None
    assert described(UUID(int=7)) == "<UUID>"


def test_request_is_written_from_the_time_on_that_is_set(caplog, level):
    """Only those that were faster are left out."""
    level.setLevel(logging.DEBUG)
    log = RequestLog(BrokerConfig(request_log_slower_than_ms=5))
    for total_ms in (4.99, 5.0):
        log.end({}, dict.fromkeys(LOGGED_TIMES, total_ms))

    assert [entry["totalTimeMs"] for entry in entries(caplog)] == [5.0]
