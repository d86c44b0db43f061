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
        forms = (bytes, self._common, self._vhost, self._main, self._json)
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

    def _json(self, line):
        client, _, rest = line.decode().partition(" - - [")
        time, _, rest = rest.partition('] "')
        request, _, rest = rest.partition('" ')
        status, size = rest.split(" ")[:2]
        fields = {"remote_addr": client, "time_local": time, "request": request}
        return json.dumps({**fields, "status": status, "bytes_sent": size}).encode()

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
