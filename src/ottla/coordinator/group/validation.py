"""What a coordinator checks of every request before it looks at the group's state."""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.group import GroupMetadata
from ottla.errors import ErrorCode

# Names are kept in records as strings with an int16 length; flexible requests could carry longer.
MAX_NAME_BYTES: Final = 32767


def is_too_long(name: str | None) -> bool:
    """Whether a name has no room in the records of the offsets topic."""
    return name is not None and len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES


def is_valid_group_id(group_id: str, *, may_be_empty: bool) -> bool:
    """Groups without a name have no members, but old clients keep offsets under the empty name."""
    return bool(group_id or may_be_empty) and not is_too_long(group_id)


def check_member(group: GroupMetadata, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Whether the sender is the member that it says it is.

    A static member must be the one that last joined under its instance id: an older one with the
    same instance id is fenced for good (KIP-345).
    """
    if group_instance_id is not None:
        current_member_id = group.static_members.get(group_instance_id)
        if current_member_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current_member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE
