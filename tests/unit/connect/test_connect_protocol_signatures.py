"""Signatures of requests between workers."""

from __future__ import annotations

import pytest

from ottla.connect.config_topic import SessionKey
from ottla.connect.connect_protocol import ALGORITHM, SIGNATURE, body_of, check_signature, sign
from ottla.connect.worker import ConnectRestError

KEY = SessionKey(b"secret", "HmacSHA256", 0)
ALLOWED = ("HmacSHA256",)
TASKS = [{"a": "1"}]


def test_own_signature_is_taken():
    """A worker takes its own signature, and signs nothing without a key."""
    check_signature(sign(body_of(TASKS), KEY), body_of(TASKS), KEY, ALLOWED)
    assert sign(body_of(TASKS), None) == {}


@pytest.mark.parametrize(
    ("headers", "key", "status"),
    [
        ({}, KEY, 400),
        ({SIGNATURE: "AAAA", ALGORITHM: "MD5"}, KEY, 400),
        ({SIGNATURE: "AAAA", ALGORITHM: "HmacSHA256"}, None, 503),
        ({SIGNATURE: "AAAA", ALGORITHM: "HmacSHA256"}, KEY, 403),
        ({SIGNATURE: "not base64", ALGORITHM: "HmacSHA256"}, KEY, 403),
        (sign(body_of([{"a": "2"}]), KEY), KEY, 403),
    ],
)
def test_others_are_refused(headers, key, status):
    """400 unsigned, 503 while there is no key, 403 wrong."""
    with pytest.raises(ConnectRestError) as refused:
        check_signature(headers, body_of(TASKS), key, ALLOWED)
    assert refused.value.status == status
