"""How far the pipelines of the site are, by the checkpoints of their queries."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from ottla.site.spark_readers import reached_in


def commit(checkpoints, query, batch, **offsets):
    """A batch that a query has planned and committed."""
    for kind in ("offsets", "commits"):
        (checkpoints / query / kind).mkdir(parents=True, exist_ok=True)
    reach = json.dumps({"pages": {name[1:]: offset for name, offset in offsets.items()}})
    (checkpoints / query / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{reach}\n")
    (checkpoints / query / "commits" / str(batch)).write_text("v1\n{}\n")


def test_slowest_query_counts(tmp_path):
    """Its last batch that is committed; what else a pipeline keeps beside them is no query."""
    assert reached_in(tmp_path / "absent", "pages") == {}
    commit(tmp_path, "one", 0, p0=3, p1=4)
    commit(tmp_path, "one", 1, p0=9, p1=4)
    commit(tmp_path, "other", 0, p0=5, p1=6)
    (tmp_path / "outputs.json").write_text("{}")
    (tmp_path / "one" / "offsets" / "2").write_text("v1\n{}\n{}\n")
    assert reached_in(tmp_path, "pages") == {0: 5, 1: 4}
    assert reached_in(tmp_path, "clicks") == {}


def test_query_that_has_committed_nothing_holds_all_back(tmp_path):
    """Its records are still to be read."""
    commit(tmp_path, "one", 0, p0=3)
    (tmp_path / "other" / "commits").mkdir(parents=True)
    assert reached_in(tmp_path, "pages") == {}
