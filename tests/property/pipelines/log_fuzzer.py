"""Makes access logs with faults, and knows what each line is."""

from __future__ import annotations

import json
import random
from collections import Counter

from ottla.pipelines.site_traffic import SiteActivity

FAULT_SHARE = 0.05
WITH_ITS_TIME, REST_OF_A_LINE = 40, 60


class LogFuzzer:
    """Lines of all formats, of which some are damaged; `sound` is how many of them are not."""

    def __init__(self, seed: int, lines: int) -> None:
        self._chance = random.Random(seed)
        self._source = SiteActivity(seed, lines).lines()
        self.sound = 0
        self.faults: Counter[str] = Counter()

    def lines(self):
        """The lines without their ends."""
        forms = (
            *(bytes, self._common, self._vhost, self._main, self._upstream, self._ingress),
            *(self._ipv6, self._quotes, self._json, self._caddy),
        )
        faults = (
            *(self._cut, self._torn, self._nuls, self._bits, self._no_time, self._empty),
            *(self._rubbish, self._half_json),
        )
        for line in self._source:
            if self._chance.random() < FAULT_SHARE:
                fault = self._chance.choice(faults)
                self.faults[fault.__name__] += 1
                yield fault(line).replace(b"\n", b" ")
            else:
                self.sound += 1
                yield self._rotten(self._chance.choice(forms)(line))

    def _rotten(self, line):
        """A sound line as it is found: with other bytes around it, or rubbish as its request."""
        kind = self._chance.randrange(40)
        if kind == 0:
            return b"\0" * self._chance.randrange(1, 50) + line
        if kind == 1:
            return b"\xef\xbb\xbf" + line
        if kind == 2:
            return line + b"\r"
        return line

    # The forms: each has the request of a line in combined format.

    def _common(self, line):
        return line.rsplit(b' "', 2)[0]

    def _vhost(self, line):
        return b"www.example.com:443 " + line

    def _main(self, line):
        return line + b' "203.0.113.7, 10.0.0.1"'

    def _upstream(self, line):
        """nginx with the times of its upstreams, of which a second one may have been tried."""
        times = self._chance.choice((b"-", b"0.120", b"0.001, 0.120", b"0.001 : 0.120"))
        quoted = self._chance.choice((b"%b", b'"%b"')) % times
        return line + b' "-" rt=0.121 uct=%b urt=%b' % (quoted, quoted)

    def _ingress(self, line):
        return line + b" 412 0.003 [web-80] [] 10.0.0.1:80, 10.0.0.2:80 0, 12 0.001, 0.002 502, 200"

    def _ipv6(self, line):
        address = self._chance.choice((b"2001:db8::1", b"::ffff:192.0.2.1", b"fe80::1%eth0"))
        return address + b" " + line.partition(b" ")[2]

    def _quotes(self, line):
        """A client that sends quotes: Apache escapes them so, nginx by their number."""
        return line[:-1] + self._chance.choice((rb" \"x\\\" y", rb" \x22x\x22")) + b'"'

    def _json(self, line):
        client, time, request, status, size = _parts(line)
        fields = {"remote_addr": client, "time_local": time, "request": request}
        upstream = {"upstream_response_time": "0.001, 0.120", "upstream_status": "502, 200"}
        return json.dumps({**fields, "status": status, "bytes_sent": size, **upstream}).encode()

    def _caddy(self, line):
        client, time, request, status, size = _parts(line)
        method, uri, proto = request.split(" ")
        address = self._chance.choice(({"remote_ip": client}, {"remote_addr": f"{client}:4711"}))
        asked = {**address, "proto": proto, "method": method, "uri": uri, "headers": {}}
        size = 0 if size == "-" else int(size)
        fields = {"level": "info", "ts": time, "request": asked, "size": size}
        return json.dumps({**fields, "status": int(status)}).encode()

    # The faults: none of what they make is a request.

    def _cut(self, line):
        """Less than its first sixty characters: not even the request is whole."""
        return line[: self._chance.randrange(REST_OF_A_LINE)]

    def _torn(self, line):
        return line[: self._chance.randrange(WITH_ITS_TIME, REST_OF_A_LINE)] + line

    def _nuls(self, line):
        return line[:30] + b"\0" * 20 + line[40:]

    def _bits(self, line):
        return line.replace(b" [", b" \xff\x80")

    def _no_time(self, line):
        return line.replace(b"/Mar/", b"/Mrz/")

    def _empty(self, line):
        return self._chance.choice((b"", b" ", b"\0\0\0"))

    def _rubbish(self, line):
        return self._chance.randbytes(self._chance.randrange(1, 200))

    def _half_json(self, line):
        return self._json(line)[: -self._chance.randrange(1, REST_OF_A_LINE)]


def _parts(line):
    """Client, time, request, status and size of a line in combined format."""
    client, _, rest = line.decode().partition(" - - [")
    time, _, rest = rest.partition('] "')
    request, _, rest = rest.partition('" ')
    status, size = rest.split(" ")[:2]
    return client, time, request, status, size
