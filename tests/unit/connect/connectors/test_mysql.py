"""Values as MySQL and MariaDB are given them; tests/peers/test_databases.py has a real server."""

from __future__ import annotations

from decimal import Decimal

import pytest
import sqlalchemy

from ottla.connect.connectors.databases import Handling
from ottla.connect.connectors.sql import database_of
from ottla.connect.data import DataError

COLUMNS = {
    "number": [sqlalchemy.BigInteger(), sqlalchemy.Numeric(10, 2), sqlalchemy.Float()],
    "text": [sqlalchemy.Text(), sqlalchemy.String(9), sqlalchemy.Enum("a", "b")],
    "time": [sqlalchemy.Date(), sqlalchemy.DateTime(), sqlalchemy.Time()],
}
NO_NUMBERS = ["", "abc", "7x", "0x7", "7_0", "NaN", "inf", "٧", "1e9999", "2026-01-01", "."]
NUMBERS = [0, 7, -1, 1.5, 7.0, Decimal("1.50"), True, False]


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_mysql_is_given_values_of_the_columns_own_type(dialect):
    """It would take 0 for equal to every name, and 'abc' for the number 0."""
    database = database_of(sqlalchemy, dialect, Handling())

    def bound(kind, value):
        return database.bound(sqlalchemy.Column("v", kind), value)

    for kind in COLUMNS["text"]:
        found = [bound(kind, each) for each in NUMBERS]
        assert found == ["0", "7", "-1", "1.5", "7", "1.50", "1", "0"]
    for kind in COLUMNS["number"]:
        for text in ("7", " 7 ", "+7.0", "7e0", "70E-1", ".7e1", "7."):
            assert bound(kind, text) == 7
        for text in NO_NUMBERS:
            with pytest.raises(DataError, match=r"v=.*must be a number"):
                bound(kind, text)
    for kind in COLUMNS["time"]:
        for number in NUMBERS:
            with pytest.raises(DataError, match="must be a time"):
                bound(kind, number)
