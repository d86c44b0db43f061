"""A broker of Ottla with a shop's records, its console, and a browser that was let in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from console_in_browser import (
    browser,
    connectors,
    console,
    login_console,
    measured,
    visit,
    worker_url,
)
from shop_in_browser import fill, guard, readers

from ottla.testing.in_process_broker import InProcessBroker

__all__ = [
    "browser",
    "connectors",
    "console",
    "login_console",
    "measured",
    "visit",
    "worker_url",
]

GUARDED = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker with what the shop has."""
    with InProcessBroker(**GUARDED) as broker:
        fill(broker.bootstrap_servers)
        guard(broker.bootstrap_servers)
        with readers(broker.bootstrap_servers):
            yield broker
