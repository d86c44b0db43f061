"""Reset plans as CSV."""

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.consumer_groups.reset import plan_as_csv, read_plan
from ottla.structs import TopicPartition

PLAN = {"g": {TopicPartition("t", 1): 7, TopicPartition("t", 0): 5}}


def test_plan_of_one_group_has_three_columns():
    """Topic, partition, offset, in the order of partitions."""
    assert plan_as_csv(PLAN, with_group=False) == "t,0,5\nt,1,7\n"


def test_plan_of_several_groups_names_them():
    """The group stands in front."""
    assert plan_as_csv(PLAN, with_group=True) == "g,t,0,5\ng,t,1,7\n"


@pytest.mark.parametrize(("with_group", "only_group"), [(False, "g"), (True, "g"), (True, None)])
def test_plan_can_be_read_back(tmp_path, with_group, only_group):
    """What --export prints is what --from-file reads."""
    path = tmp_path / "plan.csv"
    path.write_text(plan_as_csv(PLAN, with_group=with_group))

    assert read_plan(str(path), only_group=only_group) == PLAN


@pytest.mark.parametrize("line", ["t,0", "t,x,5", "t,0,5", "a,b,t,0,5"])
def test_wrong_line_is_named(tmp_path, line):
    """The message has the file, the line and what was expected there."""
    path = tmp_path / "plan.csv"
    path.write_text(f"g,t,0,5\n\n{line}\n")

    with pytest.raises(CommandError, match=rf"plan.csv, line 3: expected group,.* found '{line}'"):
        read_plan(str(path), only_group=None)


def test_missing_file_is_named():
    """The message has the path and the reason."""
    with pytest.raises(CommandError, match="cannot read /no/plan: No such file"):
        read_plan("/no/plan", only_group="g")
