"""Signatures of requests between workers (KIP-507): who is not of the group is refused.

The leader makes a key and keeps it in the config topic, which only workers read. The signature is a
MAC of the body, in `X-Connect-Authorization`, by the algorithm in
`X-Connect-Request-Signature-Algorithm`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.config_topic import SessionKey
from ottla.connect.worker import refusal

SIGNATURE: Final = "X-Connect-Authorization"
ALGORITHM: Final = "X-Connect-Request-Signature-Algorithm"
DIGESTS: Final = {
    "HmacSHA1": hashlib.sha1,
    "HmacSHA256": hashlib.sha256,
    "HmacSHA384": hashlib.sha384,
    "HmacSHA512": hashlib.sha512,
}


def body_of(tasks: Any) -> bytes:
    """The bytes that are sent, and signed."""
    return json.dumps(tasks, separators=(",", ":")).encode()


def sign(tasks: Any, key: SessionKey | None) -> dict[str, str]:
    """The headers of a request with this body; none while there is no key."""
    if key is None:
        return {}
    mac = hmac.new(key.key, body_of(tasks), DIGESTS[key.algorithm]).digest()
    return {SIGNATURE: base64.b64encode(mac).decode(), ALGORITHM: key.algorithm}


def check(
    headers: Mapping[str, str], body: bytes, key: SessionKey | None, allowed: tuple[str, ...]
) -> None:
    """ConnectRestError 400 without a signature, 403 for a wrong one, 503 while there is no key."""
    signature, algorithm = headers.get(SIGNATURE), headers.get(ALGORITHM)
    if signature is None or algorithm is None:
        raise refusal(400, f"{SIGNATURE} and {ALGORITHM}: a request between workers must have both")
    if algorithm not in allowed or algorithm not in DIGESTS:
        raise refusal(400, f"{ALGORITHM}={algorithm}: must be one of {', '.join(allowed)}")
    if key is None:
        raise refusal(503, "This worker is still starting up and has not read a session key yet")
    mac = hmac.new(key.key, body, DIGESTS[algorithm]).digest()
    try:
        given = base64.b64decode(signature, validate=True)
    except ValueError:
        given = b""
    if not hmac.compare_digest(mac, given):
        raise refusal(403, "Internal request contained invalid signature.")
