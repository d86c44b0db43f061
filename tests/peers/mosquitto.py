"""A mosquitto of one test run: Debian's, in a folder of its own, on a free port of loopback."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess

from paho.mqtt import client as mqtt
from paho.mqtt import publish

from ottla.runtime.free_port import free_port
from ottla.testing import wait_until

HINT = "mosquitto is missing: install Debian's"
PROGRAM = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")


# A clean session without a name, in MQTT 3.1.1; its answer may be that this user is refused.
CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\x00\x00"
CONNACK = b"\x20"


class Mosquitto:
    """A broker on loopback, which keeps sessions over a restart."""

    def __init__(self, folder, *lines):
        self.port = free_port("127.0.0.1")
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            "\n".join(
                (
                    f"listener {self.port} 127.0.0.1",
                    "user root",
                    "persistence true",
                    f"persistence_location {folder}/",
                    *(lines or ("allow_anonymous true",)),
                )
            )
        )
        self._process = None
        self.start()

    def start(self):
        self._process = subprocess.Popen(
            [PROGRAM, "-c", self._config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._answers, "mosquitto to answer")

    def _answers(self):
        """Whether its loop runs: between the first moment that it listens and that one it forgets
        signals, and a broker that was told to end never did.
        """
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as probe:
                probe.sendall(CONNECT)
                return probe.recv(1) == CONNACK
        except OSError:
            return False

    def stop(self):
        """End it in order: it writes its sessions to its file."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(120)

    def signal(self, number):
        self._process.send_signal(number)

    def publish(self, *messages, topic="a/b", retain=False):
        publish.multiple(
            [(topic, message, 1, retain) for message in messages], "127.0.0.1", self.port
        )

    def session(self, name, filters="#"):
        """A session of that name that wants these topics, of a client that is away."""
        listener = Listener(self, name, filters)
        listener.close()


class Listener:
    """A client that keeps what it gets.

    What the broker sends once more, as it was stopped before it had the listener's word, is known
    by its number.
    """

    def __init__(self, broker, name="listener", filters="#"):
        self.got = []
        self.is_ready = False
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, clean_session=False)
        self.client.on_connect = lambda client, *_: client.subscribe(filters, 1)
        self.client.on_subscribe = self._subscribed
        self.client.on_message = self._take
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()
        wait_until(lambda: self.is_ready, "the subscription")

    def _take(self, _client, _user, message):
        if not (message.dup and message.mid in [known.mid for known in self.got]):
            self.got.append(message)

    def _subscribed(self, *_):
        self.is_ready = True

    def close(self):
        self.client.loop_stop()
        self.client.disconnect()
        self.client.on_connect = self.client.on_subscribe = self.client.on_message = None
