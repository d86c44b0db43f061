"""`ottla broker --console`: a console beside a broker, which comes and goes with it."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_console_comes_and_goes_with_its_broker(tmp_path, end):
    """Its line has the URL, whose token lets a browser in; it ends however the broker ends."""
    settings = ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}")
    words = [word for each in settings for word in ("--override", each)]
    with subprocess.Popen(
        [sys.executable, "-m", "ottla", "broker", "--console", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        try:
            line = next(each for each in broker.stdout if each.startswith("The console of"))
            url = line.rpartition(" ")[2].strip()
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                urllib.request.urlopen(url.partition("?")[0])
            refused.value.close()
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(url) as page:
                assert "Overview" in page.read().decode()
        finally:
            broker.send_signal(end)
        rest = broker.stdout.read()  # the pipe ends only when the console has ended too
        assert "another one" in rest
