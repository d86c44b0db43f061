"""docs/concepts/compatibility.md says what a running broker says."""

from __future__ import annotations

import re
import socket
import struct
from pathlib import Path

from ottla.config.dynamic_keys import DYNAMIC_BROKER_KEYS
from ottla.config.topic_config import TopicConfig
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.header import decode_response, encode_request

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "compatibility.md"
HEAD_OF_BROKERS = "Between the brokers of a cluster"
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \|", re.MULTILINE)


def test_the_page_lists_what_the_broker_advertises(broker):
    """The rows of the page are the answer to ApiVersions: no API more, no version less."""
    with socket.create_connection(("127.0.0.1", broker.port), 60) as connection:
        connection.sendall(encode_request(0, 1, "docs", ApiVersionsRequest()))
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        frame = connection.recv(size, socket.MSG_WAITALL)
    _, answer = decode_response(ApiVersionsRequest, 0, frame)

    advertised = [
        (str(api.api_key), ApiKey(api.api_key).name, str(api.min_version), str(api.max_version))
        for api in answer.api_keys
    ]
    for_everybody, _, between_brokers = PAGE.read_text(encoding="utf-8").partition(HEAD_OF_BROKERS)
    assert between_brokers
    assert ROW.findall(for_everybody) == advertised


def test_each_setting_that_can_change_is_named():
    """Each key of the table, but for the defaults of topics, which are named together."""
    of_topics = {row.broker_keys[0] for row in TopicConfig.keys.values() if row.broker_keys}
    page = PAGE.read_text()

    assert not {key for key in DYNAMIC_BROKER_KEYS - of_topics if f"`{key}`" not in page}
