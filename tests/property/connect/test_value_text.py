"""Headers as text: nothing is lost on the way."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.data import STRING
from ottla.connect.value_text import from_text, to_text


@given(
    st.recursive(
        st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(-(2**53), 2**53)
        | st.text(st.characters(exclude_categories=["Cs"]))
        | st.datetimes(datetime(1970, 1, 3), datetime(9000, 1, 1)).map(
            lambda at: at.replace(microsecond=1000, tzinfo=UTC)
        ),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=6,
    ).filter(lambda value: isinstance(value, list | dict))
)
def test_what_is_written_is_read_back(value):
    """In a list or map, where strings are quoted, the value comes back as it was."""
    strings = all(from_text(text).schema is STRING for text in _strings(value))

    assert not strings or from_text(to_text(value)).value == value


def _strings(value):
    """The strings in a value: one that looks like a date is read as one."""
    if isinstance(value, str):
        return [value] if value[:1].isdigit() else []
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    return (
        [text for item in inner for text in _strings(item)]
        if isinstance(value, list | dict)
        else []
    )
