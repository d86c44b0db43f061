"""The JSON files of the tools that elect leaders and move replicas."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ottla.cli.command import CommandError
from ottla.structs import TopicPartition

Replicas = tuple[int, ...]


def read_document(path: str) -> Any:
    """The JSON of a file; CommandError where there is none."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}") from None


def read_partitions(path: str) -> list[TopicPartition]:
    """`{"partitions": [{"topic": "t", "partition": 0}]}`: each of them once."""
    return list(_rows(path))


def read_assignment(path: str) -> dict[TopicPartition, Replicas]:
    """`{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`."""
    found = {}
    for partition, row in _rows(path).items():
        if any(log_dir != "any" for log_dir in row.get("log_dirs", ())):
            raise CommandError(f"{path}: log_dirs of {partition}: only 'any' is supported")
        try:
            replicas = tuple(int(broker) for broker in row["replicas"])
        except (KeyError, TypeError, ValueError):
            raise CommandError(f"{path}: {partition} needs a list of replicas") from None
        if not replicas or len(set(replicas)) != len(replicas):
            raise CommandError(f"{path}: the replicas of {partition} must be some, each once")
        found[partition] = replicas
    return found


def read_topics(path: str) -> list[str]:
    """`{"topics": [{"topic": "t"}], "version": 1}`."""
    try:
        return [str(row["topic"]) for row in read_document(path)["topics"]]
    except (KeyError, TypeError):
        raise CommandError(f"{path} is not a list of topics to move") from None


def assignment_json(assignment: Mapping[TopicPartition, Iterable[int]]) -> str:
    """The line that --generate and --execute print, and --reassignment-json-file reads."""
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(list(replicas)),
        }
        for (topic, partition), replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def _rows(path: str) -> dict[TopicPartition, dict[str, Any]]:
    document = read_document(path)
    try:
        rows = document["partitions"]
        names = [TopicPartition(str(row["topic"]), int(row["partition"])) for row in rows]
    except (KeyError, TypeError, ValueError):
        raise CommandError(f"{path} is not a list of partitions") from None
    if isinstance(document, dict) and document.get("version", 1) != 1:
        raise CommandError(f"{path}: version {document['version']} is not known, only 1")
    twice = [str(each) for each, count in Counter(names).items() if count > 1]
    if twice:
        raise CommandError(f"{path}: partitions named twice: {', '.join(twice)}")
    if not names:
        raise CommandError(f"{path} names no partitions")
    return dict(zip(names, rows, strict=True))
