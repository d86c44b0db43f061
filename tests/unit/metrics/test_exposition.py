"""What Prometheus and readers of JSON get: names, labels, numbers."""

from __future__ import annotations

import math
import random
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.metrics.exposition import Naming, prometheus_text
from ottla.metrics.jolokia import BeanPattern, _properties, finite, read_beans
from ottla.metrics.metrics_registry import (
    BeanKind,
    Beans,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
)
from ottla.testing.runtime import mock_runtime


@pytest.fixture
def registry():
    return MetricsRegistry(mock_runtime(), max_series=1_000)


def samples(registry, pattern=None):
    """Name, labels and value of each sample, as Prometheus's own library reads the page."""
    page = "".join(prometheus_text(registry, pattern))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_meter_is_a_counter_under_the_exporters_name(registry):
    """`...PerSec` becomes `..._total`, in lower case."""
    name = FamilyName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec")
    registry.meter(name, "Bytes.", lambda: 12)

    assert samples(registry) == {("kafka_server_brokertopicmetrics_bytesin_total", ()): 12}


def test_histogram_has_a_count_and_quantiles(registry):
    """The quantiles are labels, as the exporter's rules write them."""
    histogram = registry.histogram(FamilyName("kafka.network", "RequestMetrics", "TotalTimeMs"), "")
    histogram.update_all([1.0, 2.0], now_ms=0)
    found = samples(registry)

    base = "kafka_network_requestmetrics_totaltimems"
    assert f"{base}_count 2\n" in "".join(prometheus_text(registry))
    assert {labels for name, labels in found if name == base} == {
        (("quantile", quantile),) for quantile in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
    }


def test_confluents_names_are_whole(registry):
    """A meter has its rates, a histogram its count without suffix, labels are in lower case."""
    registry.meter(FamilyName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec"), "", lambda: 3)
    histogram = registry.histogram(FamilyName("kafka.network", "RequestMetrics", "TotalTimeMs"), "")
    histogram.update(2.0, now_ms=0)
    tags = (("clientId", "a"), ("networkProcessor", "0"))
    family = FamilyName("kafka.server", "socket-server-metrics")
    registry.register(Family(family, Kind.KAFKA, "", lambda: ((tags, {"request-total": 9}),)))
    page = "".join(prometheus_text(registry, naming=Naming.CONFLUENT))

    assert "kafka_server_brokertopicmetrics_bytesinpersec 3\n" in page
    assert "kafka_server_brokertopicmetrics_bytesinpersec_oneminuterate 0.0\n" in page
    assert "kafka_network_requestmetrics_totaltimems 1\n" in page
    assert 'kafka_network_requestmetrics_totaltimems{quantile="0.99"} 2.0\n' in page
    labels = 'clientid="a",network_processor="0"'
    assert f"kafka_server_socketservermetrics_request_total{{{labels}}} 9\n" in page


def test_share_of_time_has_both_names(registry):
    """A gauge keeps its name and has Strimzi's `_percent`, too; a meter has only that."""
    gauge = FamilyName("kafka.network", "SocketServer", "NetworkProcessorAvgIdlePercent")
    meter = FamilyName("kafka.server", "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent")
    registry.gauge(gauge, "", lambda: 0.5)
    registry.meter(meter, "", lambda: 1)

    assert {name for name, _ in samples(registry)} == {
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    }


def test_attributes_of_a_kafka_bean_are_metrics(registry):
    """Each with the bean's tags; a `-total` is a counter."""
    tags = (("listener", "PLAINTEXT"), ("networkProcessor", "0"))
    value = {"connection-count": 3, "request-total": 9, "version": "1.0"}
    family = FamilyName("kafka.server", "socket-server-metrics")
    registry.register(Family(family, Kind.KAFKA, "", lambda: ((tags, value),)))

    assert samples(registry) == {
        ("kafka_server_socket_server_metrics_connection_count", tags): 3,
        ("kafka_server_socket_server_metrics_request_total", tags): 9,
    }


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "a{b}", "ä", "a,b=c"])
def test_any_client_id_is_a_label(registry, value):
    """Whatever a client calls itself, the page can be read, and says it."""
    registry.gauges(FamilyName("d", "T", "X"), "", lambda: (((("clientId", value),), 1),))

    assert samples(registry) == {("d_t_x", (("clientId", value),)): 1}


def test_numbers_that_are_none_are_written_as_prometheus_has_them(registry):
    """NaN and infinity, whole numbers, and truth as 1."""
    values = {"nan": math.nan, "inf": math.inf, "yes": True, "large": 2**62}
    for name, value in values.items():
        registry.gauge(FamilyName("d", "T", name), "", lambda value=value: value)
    found = {name: value for (name, _), value in samples(registry).items()}

    assert math.isnan(found.pop("d_t_nan"))
    assert found == {"d_t_inf": math.inf, "d_t_yes": 1, "d_t_large": 2**62}


def test_text_has_no_place_in_prometheus(registry):
    """The id of a cluster is shown by JSON only."""
    registry.gauge(FamilyName("d", "T", "ClusterId"), "", lambda: "abc")

    assert samples(registry) == {}
    assert dict(filter(None, read_beans(registry, BeanPattern("d:*")))) == {
        "d:type=T,name=ClusterId": {"Value": "abc"}
    }


def test_pattern_chooses_families_by_their_names(registry):
    """Families that do not match are not even read."""
    registry.gauge(FamilyName("d", "T", "Wanted"), "", lambda: 1)
    registry.gauge(FamilyName("d", "T", "Other"), "", lambda: 1 / 0)

    assert samples(registry, "d_t_want*") == {("d_t_wanted", ()): 1}


def test_series_of_a_name_stand_together(registry):
    """Prometheus refuses a name that comes twice: quantiles and counts are apart."""
    name = FamilyName("d", "T", "Ms")
    histograms = [registry.new_histogram() for _ in range(3)]
    registry.register(
        Family(
            name,
            Kind.HISTOGRAM,
            "",
            lambda: ((((("request", str(n)),), each)) for n, each in enumerate(histograms)),
        )
    )
    lines = "".join(prometheus_text(registry)).splitlines()

    assert sum(line.startswith("# TYPE") for line in lines) == 2
    assert len(samples(registry)) == 3 + 3 * 6


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("d:topic=a:b,name=X,type=T,partition=0", 1),
        ('d:type=T,name=X,topic="a:b",partition=0', 1),
        ("d:type=T,name=X", 0),
        ("d:type=T,*", 2),
        ("d:type=T,name=X,*", 2),
        ("d:type=T,name=X,partition=?,topic=*", 2),
        ("d:type=T,name=X,partition=1,*", 1),
        ('d:type=T,topic="*",*', 0),
        ("*:*", 2),
        ("e:*", 0),
    ],
)
def test_beans_are_found_by_their_tags(registry, pattern, count):
    """In any order; a star may stand for more tags, and within quotes for itself."""
    tags = [(("partition", str(n)), ("topic", "a:b")) for n in range(2)]
    registry.gauges(FamilyName("d", "T", "X"), "", lambda: ((each, 1) for each in tags))

    assert len(list(filter(None, read_beans(registry, BeanPattern(pattern))))) == count


def test_one_attribute_can_be_asked_for(registry):
    """Beans without it are left out."""
    registry.gauge(FamilyName("d", "T", "X"), "", lambda: 1)
    registry.meter(FamilyName("d", "T", "Y"), "", lambda: 2)

    assert dict(filter(None, read_beans(registry, BeanPattern("d:*"), "Count"))) == {
        "d:type=T,name=Y": {"Count": 2}
    }


def test_json_has_no_nan():
    """Jolokia writes it as text."""
    assert finite({"a": math.nan, "b": {"c": -math.inf}, "d": 1.5}) == {
        "a": "NaN",
        "b": {"c": "-Inf"},
        "d": 1.5,
    }


def test_state_is_a_label_in_the_rules_for_connect(registry):
    """`-metrics` and `connect-` are left out of names; Confluent's names keep them."""
    tags = (("connector", "c"),)
    family = FamilyName("kafka.connect", "connect-worker-metrics")
    values = {"status": "running", "task-total": 2, "leader-name": "http://a/"}
    registry.register(Family(family, Kind.KAFKA, "", lambda: ((tags, values),)))

    assert samples(registry) == {
        ("kafka_connect_worker_status", (*tags, ("status", "running"))): 1,
        ("kafka_connect_worker_task_total", tags): 2,
    }
    page = "".join(prometheus_text(registry, naming=Naming.CONFLUENT))
    assert 'kafka_connect_connect_worker_metrics_task_total{connector="c"} 2' in page


def test_beans_of_threads_are_on_the_page(registry):
    """Beans of threads are shown, also of unknown kinds, by the names of the exporter's rules."""
    beans = Beans(registry.runtime.clock)
    registry.show(lambda: [beans])
    assert samples(registry) == {}
    kind = BeanKind(FamilyName("kafka.connect.mirror", "MirrorSourceConnector"), "", ("record",))
    beans.measures(kind, (("topic", "a"),)).add("record", 3)

    base, labels = "kafka_connect_mirror_mirrorsourceconnector", (("topic", "a"),)
    assert samples(registry) == {
        (f"{base}_record_count", labels): 3,
        (f"{base}_record_rate", labels): 0.1,
    }
    assert samples(registry, "*_count").keys() == {(f"{base}_record_count", labels)}


ODD = [
    "",
    b"\xff\xc3\xa9",
    "a\nb\r",
    "\ud800",
    "x" * 100_000,
    'q"=,:*?[\\',
    "a b",
    "\u2028",
    7,
    None,
]


@pytest.mark.parametrize("odd", ODD)
def test_odd_names_of_a_plug_in_are_shown(registry, odd):
    """In both forms, beside those of others, by names that find them again."""
    beans = Beans(registry.runtime.clock)
    registry.show(lambda: [beans])
    for kind in (
        BeanKind(FamilyName(odd, odd, odd), odd, (odd,), ()),
        BeanKind(FamilyName("d", "Sound"), "", ("a-b", "a_b"), (odd,)),
        BeanKind(FamilyName("d", "sound"), "", ("a_b",)),
    ):
        beans.measures(kind, ((odd, odd), ("topic", odd))).add(kind.counts[0], 3)

    values = [each for name, each in samples(registry).items() if name[0].endswith("_count")]
    assert values == [3, 3]
    assert all(len(line) < 2_000 for line in "".join(prometheus_text(registry)).splitlines())
    names = [bean[0] for bean in read_beans(registry, BeanPattern("*:*")) if bean]
    assert len(names) == 3
    for name in names:
        assert [bean[0] for bean in read_beans(registry, BeanPattern(name)) if bean] == [name]
        assert name.isprintable()


HOSTILE = [
    "",
    "9lives",
    "a-b",
    "a_b",
    "client_id",
    "client id",
    "\n",
    "é",
    "__",
    "=",
    '"',
    "x" * 300,
]


@pytest.mark.parametrize("seed", range(20))
def test_page_can_be_read_whatever_tags_are_called(registry, seed):
    """Clients name some of them: no label is empty, begins with a digit, or is there twice."""
    chance = random.Random(seed)
    tags = (
        ("client_id", "app"),
        *((chance.choice(HOSTILE), chance.choice(HOSTILE)) for _ in "123456"),
    )
    family = FamilyName("kafka", "client", "x")
    doc = 'a \\ "doc"\nof two lines'
    registry.register(Family(family, Kind.GAUGE, doc, lambda: [(tags, 1.5)], unbounded=True))
    page = "".join(prometheus_text(registry))

    (sample,) = [
        each
        for metric in text_string_to_metric_families(page)
        for each in metric.samples
        if each.name == "kafka_client_x"
    ]
    assert sample.labels["client_id"] == "app"
    assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) for name in sample.labels)
    line = next(line for line in page.splitlines() if line.startswith("kafka_client_x{"))
    assert line.count('client_id="') == 1


@pytest.mark.parametrize(
    "text", ['d:type=T,name="a,b",*', r'd:name="a\"b,c",type=T', "d:" + "a" * 999]
)
def test_name_is_split_once_through(text):
    """Commas in quotes are none; letters without an equals sign are no tag."""
    assert ",".join(_properties(text.partition(":")[2])) == text.partition(":")[2]


def test_many_series_of_one_name_are_given_some_at_a_time():
    """They stand together all the same, with one line of their meaning."""
    registry = MetricsRegistry(mock_runtime())
    series = [((("topic", f"t{number}"),), number) for number in range(1000)]
    registry.gauges(FamilyName("kafka.log", "Log", "Size"), "bytes", lambda: series)
    parts = [part for part in prometheus_text(registry) if part]
    lines = "".join(parts).splitlines()

    assert len(parts) >= 5
    assert [line[0] for line in lines] == ["#", "#", *"k" * 1000]
    assert lines[-1] == 'kafka_log_log_size{topic="t999"} 999'


def test_labels_of_very_long_names_are_short_and_tell_them_apart(registry):
    """A group of 32 KB stands beside each of its partitions: a page of a thousand had 32 MB."""
    names = [letter * 30_000 + end for letter, end in ("xa", "xb", "ya")] + ["z" * 500]
    family = FamilyName("kafka.server", "Groups", "Lag")
    series = [((("group", name),), 1.0) for name in names]
    registry.register(Family(family, Kind.GAUGE, "", lambda: series))
    shown = [dict(labels)["group"] for _, labels in samples(registry)]

    assert len(set(shown)) == len(names)
    assert max(map(len, shown)) < 520
    assert names[-1] in shown
