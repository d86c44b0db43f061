"""Settings of the source for PostgreSQL; tests/peers/test_postgres.py runs it on a server."""

from __future__ import annotations

import pytest

from ottla.connect.connectors.postgres import PostgresSource, lsn_of, quoted
from ottla.errors import ConfigError

GIVEN = {"connection": "dbname=shop", "tables": "public.orders", "topic.prefix": "shop"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tables": "orders"}, r"tables=orders: must be names as schema\.table"),
        ({"slot.name": "My-Slot"}, r"slot\.name=My-Slot: must be of lower-case letters"),
        ({"value.format": "json"}, r"value\.format=json: must be one of envelope, row"),
        ({"topic.prefix": ""}, r"topic\.prefix=: must not be empty"),
    ],
)
def test_settings_are_checked(settings, text):
    """The error names key, value and rule."""
    with pytest.raises(ConfigError, match=text):
        PostgresSource.Settings.parse(GIVEN | settings)


def test_places_and_names():
    """A place in the log is two numbers in hexadecimal; names may hold anything."""
    assert lsn_of("16/B374D848") == 0x16_B374D848
    assert quoted('a"b') == '"a""b"'
    assert PostgresSource.is_exactly_once(PostgresSource.Settings.parse(GIVEN))
