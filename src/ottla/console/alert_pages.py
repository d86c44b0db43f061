"""The page of alerts: those that fire, those that have ended, the rules, and the webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.alert_book import Webhook
from ottla.console.alert_watch import AlertWatch
from ottla.console.overview import Attention
from ottla.console.page import ConsolePage, Data, Visit

if TYPE_CHECKING:
    from ottla.console.alert_book import Alert

OF_THEIR_OWN: Final = frozenset({"behind", "partitions"})
"""Rules whose subjects the overview names without them."""
MOST_SHOWN: Final = 5


async def alerts(visit: Visit) -> Data:
    """What fires, the newest first; and the newest of those that have ended."""
    watch = visit.cluster.part(AlertWatch)
    return {
        "firing": sorted(watch.book.firing.values(), key=newest_first),
        "ended": list(watch.book.ended),
        "rules": watch.limits,
        "failures": watch.failures,
        "webhook": visit.cluster.part(Webhook).state,
    }


def newest_first(alert: Alert) -> tuple[int, str, str]:
    """The key by which a list begins with the newest alerts."""
    return -alert.since_ms, alert.rule, alert.subject


async def alerts_firing(visit: Visit) -> list[Attention]:
    """The alerts of rules that the overview does not look at by itself."""
    firing = visit.cluster.part(AlertWatch).book.firing.values()
    others = [each for each in firing if each.rule not in OF_THEIR_OWN]
    shown = sorted(others, key=newest_first)[:MOST_SHOWN]
    return [Attention(each.text, each.path, is_bad=each.rule == "disk") for each in shown]


ALERT_PAGES: Final = (
    ConsolePage("/alerts", alerts, "alerts.html", "Alerts", rail="Alerts", refresh_s=5, home=True),
)
