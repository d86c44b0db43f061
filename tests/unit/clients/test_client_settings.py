"""How the settings of a client are put together."""

from __future__ import annotations

import pytest

from ottla.clients.client_settings import ClosedOnExit, merge_settings


@pytest.mark.parametrize(
    ("servers", "settings", "keywords", "expected"),
    [
        (None, None, {}, {}),
        ("h:1", None, {}, {"bootstrap.servers": "h:1"}),
        (["h:1", "i:1"], {"acks": "1"}, {}, {"bootstrap.servers": ["h:1", "i:1"], "acks": "1"}),
        ({"bootstrap.servers": "h:1"}, None, {}, {"bootstrap.servers": "h:1"}),
        (None, {"bootstrap.servers": "h:1"}, {"acks": 1}, {"bootstrap.servers": "h:1", "acks": 1}),
        ({"linger.ms": 1}, {"linger.ms": 2}, {"linger_ms": 3}, {"linger.ms": 3}),
        ({"linger.ms": 1}, {"linger.ms": 2}, {}, {"linger.ms": 2}),
    ],
)
def test_settings_come_as_addresses_a_mapping_and_keywords(servers, settings, keywords, expected):
    """Keywords win over the mapping, and that over one which comes first."""
    assert merge_settings(servers, settings, keywords) == expected


def test_block_closes_its_client_and_lets_errors_go_on():
    """The client is closed however the block ends."""
    closed: list[ClosedOnExit] = []

    class Client(ClosedOnExit):
        """Says that it was closed."""

        def close(self) -> None:
            closed.append(self)

    with Client() as first:
        pass
    with pytest.raises(ZeroDivisionError), Client() as second:
        raise ZeroDivisionError
    assert closed == [first, second]
