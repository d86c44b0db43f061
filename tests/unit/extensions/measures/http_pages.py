"""Asks a broker's `metrics.listener` as a scraper does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ottla.extensions.measures.measures import Measures
from ottla.extensions.measures.metrics_listener import MetricsListener
from ottla.server.broker import Broker

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def metrics_of(broker: Broker) -> MetricsListener:
    """The `metrics.listener` of a broker that has one."""
    found = broker.find(Measures)
    assert found is not None
    assert found.listener is not None
    return found.listener


def get(
    url: str,
    *,
    user: str | None = None,
    body: Any = None,
    context: Any = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str]:
    """Status and text of a page; `user` is `name:password`, `body` is posted as JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=dict(headers))
    if user is not None:
        request.add_header("Authorization", f"Basic {b64encode(user.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=120, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(page: str) -> Samples:
    """Name, labels and value of each sample, as Prometheus's own library reads the page."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def scrape(url: str, only: str = "", **options: Any) -> Samples:
    """The samples of /metrics; with `only`, of the lines in which it stands."""
    status, page = get(f"{url}/metrics", **options)
    assert status == 200, page
    return samples("".join(line for line in page.splitlines(True) if only in line))


def bean(url: str, name: str) -> Any:
    """The attributes of one MBean."""
    answer = json.loads(get(f"{url}/jolokia/read/{name}")[1])
    assert answer["status"] == 200, answer
    return answer["value"]
