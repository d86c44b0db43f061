"""An application logs to a topic: it waits for no broker, and its errors are read as they come.

    python examples/uses/application_log.py --bootstrap-server localhost:9092

The application sets up Python's `logging` by a dictionary and logs as ever. `ottla.TopicHandler`
sends what is logged in the background; a reader elsewhere counts levels and shows the errors.
"""

from __future__ import annotations

import argparse
import json
import logging
import logging.config
from collections import Counter

from ottla import Admin, Consumer, KafkaError, NewTopic, TopicPartition

TOPIC = "application-log"
ORDERS = 200


class JsonLines(logging.Formatter):
    """A log record as a line of JSON, which readers need not take apart."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"level": record.levelname, "logger": record.name, "text": record.getMessage()}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info).splitlines()[-1]
        return json.dumps(fields)


def log_to(servers: str) -> logging.Logger:
    """Set up logging; with a broker or without one, this does not wait."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": JsonLines}},
            "handlers": {
                "topic": {
                    "class": "ottla.TopicHandler",
                    "topic": TOPIC,
                    "bootstrap_servers": servers,
                    "formatter": "json",
                    "acks": "all",
                    "linger_ms": 20,
                }
            },
            "loggers": {"shop": {"handlers": ["topic"], "level": "INFO", "propagate": False}},
        }
    )
    return logging.getLogger("shop")


def take_orders(log: logging.Logger) -> None:
    """The application: it knows nothing of topics."""
    for number in range(ORDERS):
        try:
            price = 100 // (number % 50)
            log.info("order %d costs %d", number, price)
        except ZeroDivisionError:
            log.exception("order %d has no price", number)


def read(servers: str, count: int) -> list[dict[str, str]]:
    """The first `count` lines of the topic."""
    lines: list[dict[str, str]] = []
    with Consumer(servers, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(TOPIC, 0)])
        while len(lines) < count:
            lines += (json.loads(record.value) for record in reader.poll(timeout_ms=100))
    return lines


def run(servers: str) -> Counter[str]:
    """Take orders, and read what was logged; returns how many lines each level has."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1)])
    log = log_to(servers)
    take_orders(log)
    for handler in log.handlers[:]:
        handler.close()  # as at the end of a program: what is queued is sent
        log.removeHandler(handler)
    lines = read(servers, ORDERS)
    levels = Counter(line["level"] for line in lines)
    print(f"{len(lines)} lines: " + ", ".join(f"{levels[each]} {each}" for each in sorted(levels)))
    for line in lines:
        if line["level"] == "ERROR":
            print(f"{line['logger']}: {line['text']} ({line['error']})")
    return levels


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bootstrap-server", default="localhost:9092")
    try:
        run(arguments.parse_args().bootstrap_server)
    except KafkaError as error:
        raise SystemExit(error.message) from None  # as at a second run, while the topic is there
