"""How numbers, sizes and times look on the console's pages."""

from __future__ import annotations

import re
import time
from html import unescape

import pytest

from ottla.console.decoding import ACTING
from ottla.console.formats import (
    count_text,
    duration_text,
    exactly,
    moment,
    percent,
    printable,
    short_count,
    size_text,
    sparkline,
)
from ottla.console.frame import environment


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (count_text, 9007199254740993, "9,007,199,254,740,993"),
        (count_text, None, "–"),
        (short_count, 0.0, "0"),
        (short_count, 4.25, "4.2"),
        (short_count, 137.4, "137"),
        (short_count, 12_345, "12.3k"),
        (short_count, 2_500_000, "2.5M"),
        (short_count, None, "–"),
        (size_text, 0, "0 B"),
        (size_text, 1536, "1.5 KB"),
        (size_text, 5 << 40, "5 TB"),
        (size_text, -1, "–"),
        (duration_text, 4.4, "4 ms"),
        (duration_text, 492_000, "8 min 12 s"),
        (duration_text, 3_600_000, "1 h"),
        (duration_text, 90_061_000, "1 d 1 h"),
        (duration_text, None, "–"),
    ],
)
def test_values_as_text(show, value, text):
    """Exact where they fit, in the two largest units where they do not."""
    assert show(value) == text


@pytest.mark.parametrize("show", [size_text, short_count])
def test_numbers_of_any_size_are_digits_without_an_exponent(show):
    """Also where a unit begins at 1,024, and beyond the largest one."""
    sizes = [
        base**power * part // 10_000
        for base in (1000, 1024)
        for power in range(2, 8)
        for part in (9_767, 9_994, 9_995, 9_999, 10_000, 10_001)
    ]
    texts = {size: show(size) for size in sizes}
    assert {size: text for size, text in texts.items() if "e+" in text} == {}
    assert show(1023 * 1024) == ("1,023 KB" if show is size_text else "1.05M")
    assert short_count(-999_960) == "-1,000k"


def test_percent_of_nothing():
    """It is no error."""
    assert (percent(1, 8), percent(0, 0)) == ("12 %", "0 %")


def test_moment_is_local_with_utc_as_its_title():
    """Also beyond the years that Python knows, and where a record has no time."""
    assert 'title="2026-03-02T08:00:00.007Z"' in moment(1_772_438_400_007)
    assert "9223372036854775807" in moment(2**63 - 1)
    assert "no time" in moment(-1)


def test_sparkline_has_gaps_and_words():
    """None is a gap; a line of one point is left out."""
    line = sparkline([0, 5, None, 10, 5], "records:")
    assert line.count("<polyline") == 2
    assert 'aria-label="records: 5"' in line
    assert sparkline([1]) == ""
    assert sparkline([None, None]) == ""
    assert "flat" in sparkline([0, 0])
    assert sparkline([1, 2], points=5).count("<polyline") == 1


def test_sparkline_holds_no_markup_of_others():
    """Its label is escaped."""
    assert "<b>" not in sparkline([1, 2], "<b>")


def test_characters_that_act_on_a_screen_are_escapes():
    """On all pages; numbers and markup stay."""
    template = environment().from_string("{{ a }}{{ b | join(' ') }}<i title='{{ a ~ 1 }}'>{{ n }}")

    assert template.render(a="\x1b[2J<", b=["\u202ex"], n=7) == (
        "\\x1b[2J&lt;\\u202ex<i title='\\x1b[2J&lt;1'>7"
    )
    assert printable(None) is None


def test_field_of_a_form_gives_its_characters_back():
    """As references of HTML, which a browser turns into the characters."""
    for text in ("a\x1b[2J<\"'&", "\u202e\ufeff\r\n\t", "plain"):
        field = exactly(text)
        assert unescape(re.sub(r"&#(27);", "\x1b", field)) == text
        assert not ACTING.search(field)


def test_day_of_a_moment_is_left_out_where_it_is_today(monkeypatch):
    """A list of records shows times alone: of another day that would be a wrong one."""
    now_ms = time.time_ns() // 1_000_000
    for zone in ("UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Kiritimati"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert '<span class="today">' in moment(now_ms)
        assert '<span class="">' in moment(now_ms - 86_400_000)
        assert '<span class="">' in moment(now_ms - 365 * 86_400_000)
    monkeypatch.undo()
    time.tzset()
