"""What metrics show of delegation tokens, read over HTTP."""

from __future__ import annotations

from http_pages import metrics_of, scrape

from ottla.extensions.tokens.tokens import Tokens
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.principal import KafkaPrincipal
from ottla.testing import InProcessBroker


def test_token_that_ends_next_is_told():
    """Whoever logs in with it has to have another by then; without a token there is no series."""
    name = "kafka_server_delegationtokens"
    settings = {"delegation_token_secret_key": "of all", "metrics_listener": "http://127.0.0.1:0"}
    with InProcessBroker(**settings) as broker:
        url, table = str(metrics_of(broker.broker).end_point), broker.broker.find(Tokens).table
        assert (f"{name}_secondstonextexpiry", ()) not in scrape(url)
        now_ms = broker.broker.runtime.clock.now_ms()
        for number, hours in (("a", 2), ("b", 1)):
            table.put(token(number, now_ms, now_ms + hours * 3_600_000))
        found = scrape(url)

    assert found[f"{name}_count", ()] == 2
    assert 3_500 < found[f"{name}_secondstonextexpiry", ()] <= 3_600


def token(token_id, issue_ms, expiry_ms):
    """A token of alice."""
    alice = KafkaPrincipal("User", "alice")
    return DelegationToken(
        token_id=token_id,
        hmac=token_id.encode(),
        owner=alice,
        requester=alice,
        renewers=(),
        issue_ms=issue_ms,
        expiry_ms=expiry_ms,
        max_ms=expiry_ms,
    )
