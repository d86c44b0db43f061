"""The REST API: Kafka's paths, JSON and status codes, and who may ask."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from connect_kit import ask, distributed, standalone, wait_for_state

from ottla.testing import InProcessBroker, wait_until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture(scope="module")
def broker():
    """A broker that all tests of this file share."""
    with InProcessBroker() as running:
        yield running


@pytest.fixture(scope="module")
def worker(broker, tmp_path_factory):
    """A worker that all tests of this file share; each has connectors of its own."""
    with standalone(broker, tmp_path_factory.mktemp("rest")) as running:
        yield running


def config(**more):
    return {"connector.class": "connect_kit.MoodySource", "topic": "rest", **more}


def test_root_and_health(worker):
    """Versions and the id of the cluster; health is a sentence (KIP-1017)."""
    status, root = ask(worker, "GET", "/")
    assert (status, set(root)) == (200, {"version", "commit", "kafka_cluster_id"})
    assert root["kafka_cluster_id"]
    status, health = ask(worker, "GET", "/health")
    assert (status, health["status"]) == (200, "healthy")


def test_connector_comes_and_goes(worker):
    """201 with its info and place, 409 if it is there, 204 when it is deleted, then 404."""
    body = {"name": "one", "config": config()}
    status, created = ask(worker, "POST", "/connectors", body)

    assert status == 201
    info = {
        "name": "one",
        "config": {**config(), "name": "one"},
        "tasks": [{"connector": "one", "task": 0}],
        "type": "source",
    }
    assert created in (info, info | {"tasks": []})  # the tasks may come a moment later
    wait_for_state(worker, "one", "RUNNING", "RUNNING")
    assert ask(worker, "POST", "/connectors", body)[0] == 409
    assert "one" in ask(worker, "GET", "/connectors")[1]
    assert ask(worker, "GET", "/connectors/one")[1] == info
    assert ask(worker, "GET", "/connectors/one/config")[1] == info["config"]
    status, tasks = ask(worker, "GET", "/connectors/one/tasks")
    assert tasks[0]["id"] == {"connector": "one", "task": 0}
    assert tasks[0]["config"]["task.class"] == "connect_kit.MoodySource"
    expanded = ask(worker, "GET", "/connectors?expand=info&expand=status&expand=other")[1]["one"]
    assert set(expanded) == {"info", "status"}
    assert ask(worker, "DELETE", "/connectors/one")[0] == 204
    assert ask(worker, "DELETE", "/connectors/one") == (
        404,
        {"error_code": 404, "message": "Connector one not found"},
    )


def test_config_is_put_and_patched(worker):
    """201 when it is new, 200 when it is replaced; PATCH merges and null takes away (KIP-477)."""
    path = "/connectors/two/config"

    assert ask(worker, "PUT", path, config(count="1"))[0] == 201
    assert ask(worker, "PUT", path, config(count="2"))[0] == 200
    status, info = ask(worker, "PATCH", path, {"count": None, "hangs": ""})
    assert (status, "count" in info["config"], info["config"]["hangs"]) == (200, False, "")
    assert ask(worker, "PATCH", "/connectors/nobody/config", {})[0] == 404
    status, info = ask(worker, "PATCH", path, {"own.flag": True, "own.number": 7})
    assert (status, info["config"]["own.flag"], info["config"]["own.number"]) == (200, "true", "7")
    status, answer = ask(worker, "PATCH", path, {"own.list": ["a"]})
    assert (status, answer["message"]) == (400, "own.list: must be a text, not a list")
    assert ask(worker, "GET", path)[1] == info["config"]
    status, error = ask(worker, "PUT", path, config(name="other"))
    assert (status, "doesn't match" in error["message"]) == (400, True)
    assert ask(worker, "DELETE", "/connectors/two")[0] == 204


def test_patches_at_the_same_time_are_all_there(worker):
    """Each changes what the one before it has left."""
    path = "/connectors/many/config"
    assert ask(worker, "PUT", path, config(count="1"))[0] == 201
    changes = [{f"own.{number}": str(number)} for number in range(12)]
    with ThreadPoolExecutor(len(changes)) as threads:
        patched = [threads.submit(ask, worker, "PATCH", path, each) for each in changes]
        assert {each.result()[0] for each in patched} == {200}
    found = ask(worker, "GET", path)[1]
    assert all(each.items() <= found.items() for each in changes), found


def test_initial_state(worker):
    """A connector may be created stopped (KIP-980)."""
    body = {"name": "still", "config": config(), "initial_state": "STOPPED"}

    assert ask(worker, "POST", "/connectors", body)[0] == 201
    wait_for_state(worker, "still", "STOPPED")
    assert ask(worker, "PUT", "/connectors/still/resume")[0] == 202
    wait_for_state(worker, "still", "RUNNING", "RUNNING")
    assert ask(worker, "DELETE", "/connectors/still")[0] == 204
    assert ask(worker, "POST", "/connectors", body | {"initial_state": "ASLEEP"})[0] == 400


def test_wrong_config_is_refused_with_all_that_is_wrong(worker):
    """400 with a sentence for each key."""
    wrong = {"connector.class": "FileStreamSource", "tasks.max": "0", "batch.size": "x"}
    status, error = ask(worker, "PUT", "/connectors/wrong/config", wrong)

    assert status == 400
    assert "contains the following 3 error(s)" in error["message"]
    for text in ("tasks.max=0: must be at least 1", "batch.size=x", '"topic" which has no default'):
        assert text in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nowhere", None, 404),
        ("GET", "/connectors/nobody/status", None, 404),
        ("PUT", "/connectors/nobody/pause", None, 404),
        ("POST", "/connectors/nobody/restart", None, 404),
        ("GET", "/connectors/nobody/tasks/0/status", None, 404),
        ("GET", "/connectors/nobody/tasks/x/status", None, 404),
        ("GET", "/connectors/nobody/offsets", None, 404),
        ("GET", "/connectors/nobody/topics", None, 404),
        ("DELETE", "/connectors", None, 405),
        ("POST", "/connectors", {"config": {}}, 400),
        ("POST", "/connectors", ["a list"], 400),
        ("PATCH", "/connectors/nobody/offsets", {"offsets": []}, 400),
        ("GET", "/connector-plugins/Nothing/config", None, 404),
        ("PUT", "/admin/loggers/root", {"level": "LOUD"}, 404),
        ("PUT", "/admin/loggers/root", {}, 400),
        ("PUT", "/admin/loggers/root?scope=all", {"level": "INFO"}, 400),
        ("PUT", "/admin/loggers/root?scope=cluster", {"level": "LOUD"}, 404),
        ("GET", "/admin/loggers/no.such.logger", None, 404),
    ],
)
def test_refusals(worker, method, path, body, status):
    """Each with its code in the status and in the body."""
    found, error = ask(worker, method, path, body)

    assert (found, error["error_code"]) == (status, status)
    assert error["message"]


def test_plugins_are_listed(worker):
    """Class, type and version; others than connectors by request (KIP-769)."""
    found = ask(worker, "GET", "/connector-plugins")[1]
    assert FILE_SOURCE in [each["class"] for each in found]
    assert {each["type"] for each in found} == {"source", "sink"}
    every = ask(worker, "GET", "/connector-plugins?connectorsOnly=false")[1]
    assert {"converter", "header_converter"} <= {each["type"] for each in every}


def test_plugin_says_its_settings(worker):
    """Definitions with Kafka's fields."""
    _, found = ask(worker, "GET", "/connector-plugins/FileStreamSource/config")
    by_name = {each["name"]: each for each in found}

    assert by_name["topic"] | {"documentation": ""} == {
        "name": "topic",
        "type": "STRING",
        "required": True,
        "default_value": None,
        "importance": "HIGH",
        "documentation": "",
        "group": None,
        "order": -1,
        "width": "NONE",
        "display_name": "topic",
        "dependents": [],
    }
    assert by_name["tasks.max"]["group"] == "Common"


def test_validation_answers_for_each_setting(worker):
    """200 with errors by setting; 400 if the class is another one."""
    path = "/connector-plugins/FileStreamSource/config/validate"
    wanted = {"connector.class": "FileStreamSource", "name": "x", "tasks.max": "many"}
    status, found = ask(worker, "PUT", path, wanted)

    assert (status, found["error_count"]) == (200, 2)
    errors = {e["value"]["name"]: e["value"]["errors"] for e in found["configs"]}
    assert errors["tasks.max"] == ["tasks.max=many: must be a whole number of 32 bits"]
    assert errors["topic"] == ['Missing required configuration "topic" which has no default value.']
    assert ask(worker, "PUT", path, {"connector.class": "FileStreamSink"})[0] == 400


def test_topics_are_remembered(broker, worker):
    """The topics of a connector are remembered, and forgotten by request (KIP-558)."""
    ask(worker, "PUT", "/connectors/topical/config", config(topic="topical"))
    broker.wait_for_records("topical", 3)

    assert ask(worker, "GET", "/connectors/topical/topics")[1] == {
        "topical": {"topics": ["topical"]}
    }
    assert ask(worker, "PUT", "/connectors/topical/topics/reset")[0] == 200
    assert ask(worker, "GET", "/connectors/topical/topics")[1] == {"topical": {"topics": []}}
    ask(worker, "DELETE", "/connectors/topical")


def test_levels_of_the_log_change(worker):
    """By name, and shown with the time of the change (KIP-495)."""
    path = "/admin/loggers/ottla.connect.worker"

    assert ask(worker, "PUT", path, {"level": "debug"}) == (200, ["ottla.connect.worker"])
    found = ask(worker, "GET", path)[1]
    assert (found["level"], found["last_modified"] > 0) == ("DEBUG", True)
    assert ask(worker, "GET", "/admin/loggers")[1]["ottla.connect.worker"] == found
    ask(worker, "PUT", path, {"level": "INFO"})


def test_worker_of_its_own_is_the_whole_cluster(worker):
    """scope=cluster answers without a body, and changes what the worker's scope would."""
    path = "/admin/loggers/levels.of.all"

    assert ask(worker, "PUT", f"{path}?scope=CLUSTER", {"level": "error"}) == (204, None)
    assert ask(worker, "GET", path)[1]["level"] == "ERROR"
    assert ask(worker, "PUT", f"{path}?scope=worker", {"level": "ERROR"}) == (200, [])


def test_user_and_password(broker, tmp_path):
    """With rest.basic.auth.* nobody else is served."""
    with standalone(
        broker, tmp_path, rest_basic_auth_username="ann", rest_basic_auth_password="secret"
    ) as worker:
        right = base64.b64encode(b"ann:secret").decode()
        wrong = base64.b64encode(b"ann:guess").decode()

        assert ask(worker, "GET", "/")[0] == 401
        assert ask(worker, "GET", "/", headers={"Authorization": f"Basic {wrong}"})[0] == 401
        assert ask(worker, "GET", "/", headers={"Authorization": f"Basic {right}"})[0] == 200


def test_worker_listens_on_loopback(worker):
    """Who reaches the API can run code: nobody else's machine does, unless it is told so."""
    assert worker.url.startswith("http://127.0.0.1:")
    assert worker.config.listeners == ("http://127.0.0.1:0",)
    assert type(worker.config).keys["listeners"].default == ("http://127.0.0.1:8083",)


def raw(url, method="GET", context=None, **headers):
    """Status and headers of an answer."""
    request = urllib.request.Request(url, method=method)
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def test_pages_of_other_origins_ask_where_they_are_named(broker, worker, tmp_path):
    """Kafka's settings for that (CORS); by default no page may."""
    assert raw(worker.url, Origin="http://ui.example")[1]["Access-Control-Allow-Origin"] is None
    shared = {
        "access_control_allow_origin": "http://*.example",
        "access_control_allow_methods": "GET,PUT",
    }
    with standalone(broker, tmp_path, **shared) as running:
        status, found = raw(running.url, Origin="http://ui.example")
        assert (status, found["Access-Control-Allow-Origin"]) == (200, "http://ui.example")
        assert raw(running.url, Origin="http://other")[1]["Access-Control-Allow-Origin"] is None
        asked = {"Origin": "http://ui.example", "Access_Control_Request_Method": "PUT"}
        status, found = raw(f"{running.url}connectors/x/pause", "OPTIONS", **asked)
        assert (status, found["Access-Control-Allow-Methods"]) == (200, "GET,PUT")


NAMED = {"connector.class": "FileStreamSource", "file": "f", "topic": "t"}
WRONG_BODIES = [
    [],
    [1],
    "text",
    None,
    float("nan"),
    {"name": "odd", "config": ["secret"]},
    {"name": "odd", "config": "secret"},
    {"name": "odd", "config": 1},
    {"name": ["secret"], "config": NAMED},
    {"name": {"a": "secret"}, "config": NAMED},
    {"name": "odd", "config": NAMED | {"password": ["secret"]}},
    {"name": "odd", "config": NAMED | {"password": {"a": "secret"}}},
    {"name": "odd", "config": NAMED | {"x\ud800": "1"}},
    {"name": "odd", "config": NAMED | {"x": "\udfff"}},
    {"name": "odd\ud800", "config": NAMED},
    {"name": "odd", "config": NAMED, "initial_state": ["STOPPED"]},
    {"name": "odd", "config": NAMED, "initial_state": {"a": 1}},
    {"name": "odd", "config": NAMED, "initial_state": 1},
    {"name": "odd", "config": NAMED, "initial_state": "x" * 100_000},
]


@pytest.mark.parametrize("body", WRONG_BODIES, ids=range(len(WRONG_BODIES)))
def test_body_of_another_shape_is_the_clients_fault(worker, caplog, body):
    """Nothing of it is kept or logged, and no answer repeats what may be a secret."""
    status, error = ask(worker, "POST", "/connectors", body)

    assert (status, error["error_code"]) == (400, 400)
    assert "secret" not in error["message"]
    assert len(error["message"]) < 1000
    assert "odd" not in ask(worker, "GET", "/connectors")[1]
    assert [each for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize(
    "place",
    [
        b'{"partition": {}, "offset": 5}',
        b'{"partition": {}, "offset": 0}',
        b'{"partition": {}, "offset": "n"}',
        b'{"partition": {}, "offset": ""}',
        b'{"partition": {}, "offset": false}',
        b'{"partition": {}, "offset": [1]}',
        b'{"partition": {}, "offset": {"n": NaN}}',
        b'{"partition": {}, "offset": {"n": 1e999}}',
        b'{"partition": {"n": -1e999}, "offset": {"n": 1}}',
        b'{"partition": {"n": {"a": 1}}, "offset": {"n": 1}}',
    ],
)
def test_offset_that_cannot_be_stored_is_the_clients_fault(worker, caplog, place):
    """Nothing is stored of what is no object of simple values."""
    ask(worker, "POST", "/connectors", {"name": "placed", "config": config()})
    ask(worker, "PUT", "/connectors/placed/stop")
    request = urllib.request.Request(
        f"{worker.url}connectors/placed/offsets",
        b'{"offsets": [%b]}' % place,
        {"Content-Type": "application/json"},
        method="PATCH",
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    with refused.value as error:
        message = json.loads(error.read())["message"]

    assert (refused.value.code, "STOPPED" in message) == (400, False)
    assert [each for each in caplog.records if each.exc_info] == []


def test_setting_of_any_type_comes_from_a_provider(broker, tmp_path):
    """A number is checked as what its reference stands for, and refused without showing it."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("count=2\nword=pin\nlong=s3cret-of-db\n")
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    count = {key: f"${{file:{secrets}:{key}}}" for key in ("count", "word", "long", "none")}
    given = config(name="counted", topic="counted")
    with standalone(
        broker, tmp_path, config_providers="file", config_providers_file_class=provider
    ) as worker:
        worker.create(given | {"count": count["count"]})
        broker.wait_for_records("counted", 2)
        path = f"/connector-plugins/{given['connector.class']}/config/validate"
        right, wrong = (
            next(
                each["value"]
                for each in ask(worker, "PUT", path, given | {"count": count[key]})[1]["configs"]
                if each["value"]["name"] == "count"
            )
            for key in ("count", "word")
        )
        refused = {
            key: ask(worker, "PUT", "/connectors/wrong/config", given | {"name": "wrong"} | more)
            for key, more in {
                "word": {"count": count["word"]},
                "long": {"count": count["long"]},
                "none": {"count": count["none"]},
            }.items()
        }
    assert (right["value"], right["errors"]) == (count["count"], [])
    assert f"count={count['word']}: must be" in wrong["errors"][0]
    assert {key: status for key, (status, _) in refused.items()} == dict.fromkeys(refused, 400)
    for key, (_, error) in refused.items():
        assert count[key] in error["message"]
    assert "=pin" not in f"{wrong} {refused}"
    assert "s3cret" not in str(refused)


@pytest.mark.parametrize("charset", ["foo", "rot13", "hex", "idna", "utf-16", "utf-7"])
def test_body_is_utf_8_whatever_its_header_says(worker, caplog, charset):
    """JSON has no other encoding (RFC 8259); an unknown one was an error of the server."""
    headers = {"Content-Type": f"application/json; charset={charset}"}

    assert ask(worker, "POST", "/connectors", {"name": ""}, headers)[0] == 400
    assert [each for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize("name", ["a%0ab", "a%1b%5B2Jb", "%e2%80%ae", "a" * 201, "a." * 4000])
def test_logger_of_a_strange_name_is_not_made(worker, name):
    """Loggers stay as long as the process."""
    before = ask(worker, "GET", "/admin/loggers")[1]

    assert ask(worker, "PUT", f"/admin/loggers/{name}", {"level": "INFO"})[0] == 400
    assert ask(worker, "GET", "/admin/loggers")[1] == before


FOREIGN = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain;charset=UTF-8"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (FOREIGN, 403),
        ({"Host": "evil.example"}, 403),
        ({**FOREIGN, "Host": "evil.example", "Content-Type": "text/plain"}, 403),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/connectors"),
        ("PUT", "/connectors/by-page/config"),
        ("PUT", "/connector-plugins/FileStreamSource/config/validate"),
        ("PUT", "/admin/loggers/ottla.page"),
    ],
)
def test_page_of_another_site_changes_nothing(worker, method, path, headers, status):
    """A worker runs code for whoever may ask: a browser at its machine would do so for any page."""
    body = {"name": "by-page", "config": {"connector.class": "FileStreamSource"}, "level": "INFO"}

    assert ask(worker, method, path, body, headers)[0] == status
    assert "by-page" not in ask(worker, "GET", "/connectors")[1]


def test_page_of_another_site_restarts_nothing(worker):
    """A request without a body needs no content type, and is known by its origin."""
    assert ask(worker, "POST", "/connectors/none/restart", None, FOREIGN)[0] == 403
    assert ask(worker, "POST", "/connectors/none/restart")[0] == 404


def test_any_origin_is_not_allowed_to_use_the_browsers_password(broker, tmp_path):
    """With * every page could ask as the person who looks at it."""
    with standalone(broker, tmp_path, access_control_allow_origin="*") as running:
        found = raw(running.url, Origin="http://ui.example")[1]
        assert found["Access-Control-Allow-Origin"] == "http://ui.example"
        assert found["Access-Control-Allow-Credentials"] is None


def test_levels_of_the_log_have_a_listener_of_their_own(broker, tmp_path):
    """admin.listeners moves them there; left empty it takes them away."""
    with standalone(broker, tmp_path, admin_listeners="http://127.0.0.1:0") as running:
        (url,) = running.rest.admin_urls
        assert raw(f"{url}admin/loggers")[0] == 200
        assert raw(f"{url}connectors")[0] == 404
        assert raw(f"{running.url}admin/loggers")[0] == 404
    with standalone(broker, tmp_path, admin_listeners="") as running:
        assert raw(f"{running.url}admin/loggers")[0] == 404


def test_workers_reach_each_other_over_tls(broker, certificates, tmp_path):
    """What one cannot do itself it sends on, and trusts the other as its settings say."""
    settings = {
        "listeners": "https://127.0.0.1:0",
        "rest_advertised_host_name": "localhost",
        "listeners_https_ssl_keystore_location": certificates.server,
        "listeners_https_ssl_truststore_location": certificates.ca,
    }
    context = ssl.create_default_context(cafile=certificates.ca)
    workers = [distributed(broker, **settings) for _ in range(2)]
    try:
        for each in workers:
            assert each.url.startswith("https://localhost:")
            wait_until(
                lambda each=each: raw(f"{each.url}health", context=context)[0] == 200, "the group"
            )
        for each in workers:  # one of them does not lead
            path = f"{each.url}connectors/none/pause"
            wait_until(
                lambda path=path: raw(path, "PUT", context=context)[0] == 404, "the leader's word"
            )
    finally:
        for each in workers:
            each.close()


ODD_NAMES = ["a/b", "a%2Fb", "č ž", "a?b#c", "..", "con+fig", "a;b", "\u202ex", "%", "x" * 2000]


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: ascii(name[:10]))
def test_connector_may_have_an_odd_name(worker, name):
    """It is found under it, quoted in the path, and its neighbours are shown."""
    path = "/connectors/" + urllib.parse.quote(name, safe="")
    assert ask(worker, "POST", "/connectors", {"name": name, "config": config()})[0] == 201
    try:
        wait_for_state(worker, urllib.parse.quote(name, safe=""), "RUNNING", "RUNNING")
        assert ask(worker, "GET", f"{path}/offsets")[0] == 200
        assert name in ask(worker, "GET", "/connectors?expand=status")[1]
    finally:
        assert ask(worker, "DELETE", path)[0] == 204


NO_NAMES = ["", " ", "a\nb", "a\0b", "cut \ud83d", "x" * 2001, ["x"], {"a": 1}]


@pytest.mark.parametrize("name", NO_NAMES, ids=lambda name: ascii(name)[:10])
def test_name_that_no_path_can_have_is_refused(worker, name):
    """Neither to be found nor to be deleted again."""
    assert ask(worker, "POST", "/connectors", {"name": name, "config": config()})[0] == 400


def test_body_that_is_too_deep_is_no_error_of_the_worker(worker):
    """JSON cannot be read from it."""
    body = b"[" * 100_000
    request = urllib.request.Request(
        f"{worker.url}connectors", body, {"Content-Type": "application/json"}, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    assert caught.value.code == 400
    caught.value.close()
