"""The replicas and log directories in the plans of `ottla reassign-partitions`."""

from __future__ import annotations

import json

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.partition_files import assignment_json, read_assignment, read_log_dirs
from ottla.structs import TopicPartition

T0 = TopicPartition("t", 0)


def plan(tmp_path, **fields: object) -> str:
    path = tmp_path / "plan.json"
    row = {"topic": "t", "partition": 0, "replicas": [1, 2], **fields}
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    return str(path)


def test_directories_belong_to_the_replicas_in_their_order(tmp_path):
    """Those that may be anywhere are left out, and so is a plan that says nothing."""
    assert read_log_dirs(plan(tmp_path, log_dirs=["any", "/b"])) == {(T0, 2): "/b"}
    assert read_log_dirs(plan(tmp_path)) == {}


@pytest.mark.parametrize("log_dirs", [["/a"], "/a", ["/a", "relative"], ["/a", 5]])
def test_directories_that_fit_no_replica_are_refused(tmp_path, log_dirs):
    """A replica needs one directory: an absolute path or "any"."""
    with pytest.raises(CommandError, match="t-0"):
        read_log_dirs(plan(tmp_path, log_dirs=log_dirs))


def test_plan_for_the_way_back_names_the_directories_that_are_known():
    """The others stay as they are."""
    printed = json.loads(assignment_json({T0: (1, 2)}, {(T0, 1): "/a"}))

    assert printed["partitions"][0]["log_dirs"] == ["/a", "any"]


@pytest.mark.parametrize(
    "fields",
    [
        {"replicas": "12"},
        {"replicas": [1.5]},
        {"replicas": ["1"]},
        {"replicas": [True]},
        {"replicas": {"1": 2}},
        {"replicas": 1},
        {"partition": 0.9},
        {"partition": "0"},
        {"topic": 7},
        {"topic": None},
        {"topic": "\ud800"},
        {"topic": "a\nb"},
        {"partition": -1},
        {"partition": 1 << 31},
        {"replicas": [1 << 31]},
        {"replicas": [-1]},
    ],
    ids=str,
)
def test_what_is_no_number_or_name_is_refused(tmp_path, fields):
    """Nothing is rounded or taken apart: a reassignment moves data."""
    with pytest.raises(CommandError, match=r"plan\.json"):
        read_assignment(plan(tmp_path, **fields))
