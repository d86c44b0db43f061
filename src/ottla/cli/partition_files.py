"""The JSON files of the tools that elect leaders and move replicas."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.cli.command_error import CommandError
from ottla.cli.options import LARGEST_INT
from ottla.cli.text_files import read_text
from ottla.structs import TopicPartition

Replicas = tuple[int, ...]
ANY_DIR = "any"


def read_document(path: str) -> Any:
    """The JSON of a file; CommandError where there is none."""
    text = read_text(path)
    if not text.strip():
        raise CommandError(f"{path} is empty; it must be JSON")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # it may be nested to any depth
        raise CommandError(f"{path} is not JSON: {error}") from None


def rows_of(path: str, document: Any, key: str) -> list[Any]:
    """The list under a key of a document of version 1; CommandError where it is not there."""
    if not isinstance(document, dict) or not isinstance(document.get(key), list):
        raise CommandError(f'{path}: must be an object with a list: {{"{key}": [...]}}')
    if document.get("version", 1) != 1:
        raise CommandError(f"{path}: version {document['version']} is not known, only 1")
    return list(document[key])


def topic_of(row: Any) -> str:
    """The topic of an entry; TypeError for anything but text, as a null is not a name."""
    topic = row["topic"]
    if not isinstance(topic, str) or not topic.isprintable():
        raise TypeError(f"{topic!r} is not a name")
    return topic


def whole(value: Any, least: int = 0, most: int = LARGEST_INT) -> int:
    """A number of an entry; TypeError for fractions, text and truth values: none is rounded.

    So it is for one that has no room in requests, or is below 0.
    """
    if type(value) is not int or not least <= value <= most:
        raise TypeError(f"{value!r} is not a whole number from {least} to {most}")
    return value


def read_partitions(path: str) -> list[TopicPartition]:
    """`{"partitions": [{"topic": "t", "partition": 0}]}`: each of them once."""
    return list(_rows(path))


def read_assignment(path: str) -> dict[TopicPartition, Replicas]:
    """`{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`."""
    found = {}
    for partition, row in _rows(path).items():
        try:
            replicas = tuple(map(whole, row["replicas"]))
        except (KeyError, TypeError):
            raise CommandError(
                f"{path}: {partition} needs a list of replicas, the ids of brokers: {row}"
            ) from None
        if not replicas or len(set(replicas)) != len(replicas):
            raise CommandError(f"{path}: the replicas of {partition} must be some, each once")
        found[partition] = replicas
    return found


def read_log_dirs(path: str) -> dict[tuple[TopicPartition, int], str]:
    """The directories that a file of assignments names for replicas; "any" names none."""
    found = {}
    for partition, row in _rows(path).items():
        if "log_dirs" not in row:
            continue
        log_dirs, replicas = row["log_dirs"], row["replicas"]
        if not isinstance(log_dirs, list) or len(log_dirs) != len(replicas):
            raise CommandError(f"{path}: {partition} needs as many log_dirs as replicas")
        for broker, log_dir in zip(replicas, log_dirs, strict=True):
            if log_dir == ANY_DIR:
                continue
            if not isinstance(log_dir, str) or not log_dir.startswith("/"):
                raise CommandError(
                    f"{path}: log_dirs of {partition}: {log_dir!r} is not an absolute path "
                    f"and not {ANY_DIR!r}"
                )
            found[partition, whole(broker)] = log_dir
    return found


def read_topics(path: str) -> list[str]:
    """`{"topics": [{"topic": "t"}], "version": 1}`."""
    rows = rows_of(path, read_document(path), "topics")
    try:
        return [topic_of(row) for row in rows]
    except (KeyError, TypeError):
        raise CommandError(f"{path}: each entry of topics must have a topic") from None


def assignment_json(
    assignment: Mapping[TopicPartition, Iterable[int]],
    log_dirs: Mapping[tuple[TopicPartition, int], str] | None = None,
) -> str:
    """The line that --generate and --execute print, and --reassignment-json-file reads."""
    known = log_dirs or {}
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(replicas),
            "log_dirs": [
                known.get((TopicPartition(topic, partition), broker), ANY_DIR)
                for broker in replicas
            ],
        }
        for (topic, partition), replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def _rows(path: str) -> dict[TopicPartition, dict[str, Any]]:
    rows = rows_of(path, read_document(path), "partitions")
    names = []
    for number, row in enumerate(rows, 1):
        try:
            names.append(TopicPartition(topic_of(row), whole(row["partition"])))
        except (KeyError, TypeError):
            raise CommandError(
                f"{path}: entry {number} of partitions must have a topic and a partition, which "
                f"is a number: {row}"
            ) from None
    twice = [str(each) for each, count in Counter(names).items() if count > 1]
    if twice:
        raise CommandError(f"{path}: partitions named twice: {', '.join(twice)}")
    if not names:
        raise CommandError(f"{path} names no partitions")
    return dict(zip(names, rows, strict=True))
