"""A search index over posts that keeps its offsets with its segments.

Wing: reads one topic of the site, and works with any broker. Documents are collected in memory and
written as a segment: one file with the documents, their words, and for each partition the offset
that comes next. A crash loses what was not written yet, and the offsets with it: the index reads
these records again, so that it is never ahead of its offsets, nor behind them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.site.topic_reader import TopicReader

SEGMENT: Final = "segment-{:06}.json"
WORD: Final = re.compile(r"\w+")


class Document(NamedTuple):
    """A post, and the record that it came in."""

    partition: int
    offset: int
    person: str
    text: str


class SearchIndex:
    """The segments in a folder, and the documents that are not in a segment yet.

    A segment is written after `documents` of them, or `seconds`.
    """

    def __init__(
        self, servers: str, topic: str, folder: Path, *, documents: int = 200, seconds: float = 1.0
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._limit = documents
        self._limit_s = seconds
        self._written_s = time.monotonic()
        self.documents: list[Document] = []
        self._places: dict[str, list[int]] = defaultdict(list)
        self._fresh: list[Document] = []
        self._segments = 0
        self.next_offsets: dict[int, int] = {}
        for path in sorted(folder.glob(SEGMENT.format(0).replace("000000", "*"))):
            self._read(path)
        self._reader = TopicReader(servers, topic, self.next_offsets)
        self._reached = dict(self.next_offsets)

    @property
    def record_count(self) -> int:
        """The records in segments."""
        return len(self.documents)

    def step(self) -> None:
        """Read on, and write a segment when it is time."""
        for record in self._reader.poll():
            post: Mapping[str, Any] = json.loads(record.value or b"{}")
            text = f"{post.get('verb', '')} {post.get('object', '')}"
            who = str(post.get("actor", ""))
            self._fresh.append(Document(record.partition, record.offset, who, text))
            self._reached[record.partition] = record.offset + 1
        is_late = time.monotonic() - self._written_s >= self._limit_s
        if len(self._fresh) >= self._limit or (self._fresh and is_late):
            self.flush()

    def flush(self) -> None:
        """Write what is in memory as a segment; it is there whole or not at all."""
        if not self._fresh:
            return
        path = self._folder / SEGMENT.format(self._segments + 1)
        segment = {"next_offsets": self._reached, "documents": self._fresh}
        fresh = path.with_suffix(".part")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(segment, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        self._fresh = []
        self._written_s = time.monotonic()
        self._read(path)

    def search(self, words: str) -> Iterator[Document]:
        """The documents that have all of these words, oldest first."""
        wanted = [self._places.get(word, []) for word in WORD.findall(words.lower())]
        common = set(wanted[0]).intersection(*wanted[1:]) if wanted else set()
        for place in sorted(common):
            yield self.documents[place]

    def close(self) -> None:
        """Write the last segment."""
        self.flush()
        self._reader.close()

    def abandon(self) -> None:
        """End as in a crash: what is in memory is lost."""
        self._reader.close()

    def _read(self, path: Path) -> None:
        segment = json.loads(path.read_text(encoding="utf-8"))
        for document in segment["documents"]:
            for word in set(WORD.findall(document[-1].lower())):
                self._places[word].append(len(self.documents))
            self.documents.append(Document(*document))
        self.next_offsets = {int(key): value for key, value in segment["next_offsets"].items()}
        self._segments += 1
