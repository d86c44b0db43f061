"""Journeys through the console's pages in a real browser, which a person would take.

Nothing is said on the browser's console, and no other host is asked. They are walked over Ottla's
broker here, and over Apache Kafka's in `tests/peers`: a cluster is its `bootstrap_servers`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shop_in_browser import HOSTILE, START, add_topic

from ottla import Admin, Consumer, OffsetAndMetadata, OffsetSpec, Producer, TopicPartition
from ottla.errors import KafkaError
from ottla.pipelines.execution import Batch
from ottla.pipelines.progress_topic import ProgressTopic
from ottla.testing import wait_until

NOTE_DRAWN = """
window.drawn = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
  drawn.push(text);
  return fill.call(this, text, ...more);
};
"""
"""Keeps the words that are drawn on a canvas."""


def records_of_orders(broker) -> int:
    """The offsets that the topic has given."""
    ends = dict.fromkeys([TopicPartition("orders", n) for n in range(3)], OffsetSpec.LATEST)
    with Admin(broker.bootstrap_servers) as admin:
        return sum(each.offset for each in admin.list_offsets(ends).values())


class Journeys:
    """Each begins at a page of its own, over the records of the shop."""

    def test_nothing_of_a_record_runs(self, visit):
        """Not in the list, nor on its page, nor where a row is opened; digits stay as they are."""
        page = visit("/t/hostile/records")
        assert "run" not in page.title()
        assert page.locator("#records img, #records script").count() == 0
        for row in range(len(HOSTILE)):
            page.locator("#records > tr:not(.open)").nth(row).locator("td").nth(4).click()
            page.locator("#records .open").nth(row).wait_for()
        assert "9007199254740993" in page.inner_text("#records")
        assert "23958446825181076828" in page.inner_text("#records")
        assert "run" not in page.title()

    @pytest.mark.wide
    def test_topics_are_filtered_as_one_types(self, visit):
        """The focus stays in the field, the address follows, and the list is of what fits."""
        page = visit("/topics")
        page.locator("[data-filter] input[name=q]").press_sequentially("ord")
        page.locator("[role=status]", has_text="1 of 6 topics").wait_for()
        assert page.inner_text("tbody td.name") == "orders"
        assert "q=ord" in page.url
        assert page.evaluate("document.activeElement.name") == "q"

    def test_late_answer_to_a_filter_is_not_shown(self, visit):
        """The answer to what was typed before may come after the one to what is typed now."""
        page, held = visit("/topics"), []

        def hold(route) -> None:
            is_first = "q=q&" in route.request.url
            held.append(route) if is_first else route.continue_()

        status = page.locator("[role=status]")
        page.route("**/topics?*", hold)
        page.locator("[data-filter] input[name=q]").fill("q")
        wait_until(lambda: held, "the first request", meanwhile=lambda: page.wait_for_timeout(10))
        page.locator("[data-filter] input[name=q]").fill("orders")
        page.locator("tbody td.name", has_text="orders").wait_for()
        status.filter(has_text="1 of 6 topics").wait_for()
        with page.expect_response("**/topics?q=q&*") as late:
            held[0].continue_()
        late.value.finished()
        page.evaluate("new Promise(requestAnimationFrame)")
        assert page.locator("tbody td.name").all_inner_texts() == ["orders"]
        page.unroute("**/topics?*")

    def test_key_in_a_filter_is_one_request_also_after_an_hour(self, visit):
        """The form stays while its list is made new behind it, and does not listen twice."""
        page = visit("/topics").context.new_page()
        page.clock.install()
        page.goto(visit("/topics").url)
        field = page.locator("[data-filter] input[name=q]")
        field.press("o")
        page.clock.run_for(1_000)
        page.locator("[role=status]", has_text="2 of 6 topics").wait_for()
        for _ in range(4):
            with page.expect_response("**/topics?q=o&*") as again:
                page.clock.run_for(5_000)
            again.value.finished()
            page.evaluate("new Promise(requestAnimationFrame)")
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        field.press("r")
        page.clock.run_for(100)
        page.locator("[role=status]", has_text="1 of 6 topics").wait_for()
        assert len([url for url in asked if "/topics?q=or&" in url]) == 1
        page.close()

    def test_row_that_is_clicked_twice_is_open_once(self, visit):
        """Also where its record has not come by the second click."""
        page, held = visit("/t/orders/records"), []
        # A function of Python, as playwright marks what it calls.
        page.route("**/t/orders/*/*", lambda route: held.append(route))  # noqa: PLW0108 - so
        cell = page.locator("#records > tr:not(.open)").first.locator("td").nth(4)
        for _ in range(2):
            cell.click()
        wait_until(
            lambda: len(held) == 2, "both requests", meanwhile=lambda: page.wait_for_timeout(10)
        )
        for route in held:
            with page.expect_response(route.request.url) as answer:
                route.continue_()
            answer.value.finished()
        page.locator("#records .open pre.data").first.wait_for()
        page.evaluate("new Promise(requestAnimationFrame)")
        assert page.locator("#records .open").count() == 1
        page.unroute("**/t/orders/*/*")

    @pytest.mark.wide
    def test_longest_name_of_a_topic_fits_a_narrow_screen(self, visit, broker):
        """Nothing of a page is beyond its edge."""
        name = "x" * 249
        add_topic(broker.bootstrap_servers, name)
        wrong = []
        for path in (f"/t/{name}/records", "/topics", "/flow", "/sql"):
            page = visit(path)
            page.set_viewport_size({"width": 390, "height": 900})
            page.locator("main", has_text=name).wait_for()
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wrong.append(path)
        with Admin(broker.bootstrap_servers) as admin:
            admin.delete_topics([name])
        assert wrong == []

    @pytest.mark.wide
    def test_journey_from_a_search_to_a_record_and_its_key(self, visit):
        """By links alone, as without a script."""
        page = visit("/t/orders/records")
        page.fill(".search input[name=q]", "value.status = 'error' and value.amount > 100")
        page.press(".search input[name=q]", "Enter")
        page.wait_for_selector(".found-line b")
        assert page.inner_text(".found-line b") == "4 found"
        page.locator("#records a").first.click()
        page.wait_for_selector("pre.data")
        page.click("text=All records of this key")
        page.wait_for_selector(".found-line b")
        assert "only that one was read" in page.inner_text(".found-line")

    @pytest.mark.wide
    def test_records_are_followed_as_they_come(self, visit, broker):
        """They appear above the others, also after the tab was away."""
        page = visit("/t/orders/records")
        page.click("[data-live]")
        page.wait_for_selector("[data-live-state]:not([hidden])")
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("orders", b'{"status": "<b>fresh</b>"}', key=b"new").result()
        page.locator("#records tr:first-child", has_text="<b>fresh</b>").wait_for()
        page.click("[data-live]")
        assert page.inner_text("[data-live]") == "Follow"

    @pytest.mark.wide
    def test_followed_partition_that_cannot_be_read_is_named(self, visit):
        """Silence would look as if no records came; the line is as before with the next one."""
        state = {"came": 0, "shown": 0, "passed": 0, "unread": {"1": "no leader", "2": "gone"}}
        page = visit("/t/orders/records")
        page.route(
            "**/live/**",
            lambda route: route.fulfill(
                content_type="text/event-stream",
                body=f"event: state\ndata: {json.dumps(state)}\n\n",
            ),
        )
        page.click("[data-live]")
        page.locator(".live-state.halted", has_text="Partition 1 cannot be read now").wait_for()
        state["unread"] = {}
        page.locator(".live-state:not(.halted)", has_text="Following").wait_for()
        page.click("[data-live]")

    @pytest.mark.wide
    def test_record_is_sent_and_sent_again(self, visit):
        """Forms have the token of the session; the browser ends at the record."""
        page = visit("/t/quiet/records")
        page.click("text=Send a record")
        page.fill("input[name=key]", "k")
        page.fill("textarea[name=value]", '{"n": 1.10}')
        page.click("text=Send >> nth=-1")
        page.wait_for_selector(".message")
        assert page.url.endswith("/t/quiet/0/0")
        page.click("text=Send again")
        page.click("text=Send the same record")
        page.wait_for_selector(".message")
        assert page.url.endswith("/t/quiet/0/1")
        assert "1.10" in page.inner_text("pre.data >> nth=1")

    @pytest.mark.wide
    def test_topic_is_created_and_deleted(self, visit):
        """By keys and forms; deletion wants its name."""
        page = visit("/topics")
        page.click("text=New topic")
        page.fill("main input[name=name]", "short-lived")
        page.fill("input[name=partitions]", "2")
        page.keyboard.press("Enter")
        page.wait_for_selector(".message")
        page.click("text=Settings")
        page.click("text=Delete this topic")
        page.fill("details input[name=name]", "short-lived")
        page.click("text=Delete it")
        page.wait_for_selector(".message")
        assert page.url.endswith("/topics")
        assert "short-lived" not in page.inner_text("tbody")

    @pytest.mark.wide
    def test_theme_is_chosen_and_kept(self, visit):
        """By a form, without a script of its own."""
        page = visit("/topics")
        page.click("[value=dark]")
        page.wait_for_selector("html[data-theme=dark]")
        assert page.url.endswith("/topics")
        page.click("[value=auto]")
        page.wait_for_selector("html:not([data-theme])")

    @pytest.mark.wide
    def test_keys_lead_to_the_search_box_and_through_rows(self, visit):
        """A page can be used without a mouse."""
        page = visit("/topics")
        page.keyboard.press("j")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.textContent") == "orders"
        page.keyboard.press("/")
        page.keyboard.type("quiet")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Topics with")
        assert page.locator(".found a").count() == 1

    @pytest.mark.wide
    def test_pages_work_without_a_script(self, browser, console):
        """Search, older records and a page of a record."""
        base = console.partition("/?")[0]
        context = browser.context.browser.new_context(
            java_script_enabled=False, storage_state=browser.context.storage_state()
        )
        page = context.new_page()
        page.goto(f"{base}/t/orders/records?count=5&q=paid")
        assert page.locator("#records tr").count() == 5
        page.click("a[rel=next]")
        page.locator("#records a").first.click()
        assert "Offset" in page.inner_text("h1")
        context.close()

    def test_journey_from_a_group_that_is_behind_to_its_cause_and_back(self, visit):
        """The plot is drawn from its table; the reset is refused while the member lives."""
        page = visit("/groups?sort=name")
        assert page.locator("tbody tr td.name").all_inner_texts() == ["billing", "nightly"]
        page.click("text=nightly")
        assert "nobody reads: the group is Empty" in page.inner_text("#why .leads")
        page.goto(page.url.replace("nightly", "billing"))
        # Two looks of the collector are a curve; it looks less often where brokers are slow.
        page.wait_for_selector(".plot canvas", timeout=300_000)
        assert page.locator(".matrix td.cell:not(:empty)").count() == 3
        page.click("text=Reset offsets")
        page.select_option("[name=to]", "to-latest")
        page.click("button.main")
        page.locator(".preview", has_text="log end").first.wait_for()
        assert page.locator("button.danger").is_disabled()

    @pytest.mark.wide
    def test_offsets_are_reset_by_the_plan_that_was_seen(self, visit, broker):
        """And the message says so, on the group's page."""
        page = visit("/group/reset?id=nightly&topic=orders&to=shift-by&value=2")
        assert page.locator(".rows td:nth-child(3)").all_inner_texts() == ["5", "5", "5"]
        page.click("button.danger")
        page.wait_for_selector(".message")
        assert "/group?id=nightly" in page.url
        with Admin(broker.bootstrap_servers) as admin:
            offsets = admin.list_group_offsets("nightly")
        assert {each.offset for each in offsets.values()} == {5}

    @pytest.mark.wide
    def test_series_is_pinned_as_a_plot(self, visit):
        """By a link; its address is one to send to somebody."""
        page = visit("/metrics?q=bytesin")
        page.click("main tbody >> text=pin")
        page.wait_for_selector("figure.plot canvas")
        assert "4096" in page.inner_text("main .card")
        assert "pin=" in page.url

    @pytest.mark.wide
    @pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/St_Johns"])
    def test_plot_has_the_times_of_its_table_in_every_browser(self, visit, zone):
        """They are of the console's zone, not of the one where somebody looks."""
        first = visit("/metrics?q=bytesin")
        state = first.context.storage_state()
        context = first.context.browser.new_context(storage_state=state, timezone_id=zone)
        page = context.new_page()
        page.add_init_script(NOTE_DRAWN)
        page.goto(first.url)
        page.click("main tbody >> text=pin")
        page.wait_for_selector("figure.plot canvas")
        drawn = [text[:5] for text in page.evaluate("drawn") if ":" in text]
        times = [text[11:16] for text in page.locator("figure time").all_text_contents()]
        context.close()
        assert drawn
        assert times[0] <= min(drawn) <= max(drawn) <= times[-1] or times[0] > times[-1]

    @pytest.mark.wide
    def test_report_of_a_run_is_in_a_sandbox(self, visit):
        """It is beside the records that arrive, and survives the page's own refreshing."""
        page = visit("/run")
        assert page.inner_text("main td.name >> nth=0")
        page.frame_locator("iframe.report").locator("text=All arrived").wait_for()
        assert page.evaluate("document.querySelector('iframe').contentDocument") is None

    @pytest.mark.wide
    def test_statement_shows_how_far_it_is_and_then_its_rows(self, visit):
        """Its address is one to send to somebody."""
        page = visit("/sql")
        statement = "SELECT value.user, count(*) FROM orders WHERE value.id > 0 GROUP BY 1"
        page.fill("textarea", statement)
        page.click("main button.main")
        page.wait_for_selector("[data-progress]:not([hidden])")
        page.wait_for_selector(".found-line")
        assert page.inner_text(".found-line").startswith("9 rows over all ")
        assert page.locator("thead th").all_inner_texts() == ["user", "count(*)"]
        page.goto(page.url)
        assert page.locator("tbody tr").count() == 9

    @pytest.mark.wide
    @pytest.mark.parametrize(
        ("path", "field", "text"),
        [
            ("/sql", "textarea", "SELECT max(random()) FROM range(1000000), range(1000000)"),
            ("/t/orders/records", ".search input[name=q]", "value.amount > 1"),
        ],
    )
    def test_work_is_stopped_by_its_button(self, visit, path, field, text):
        """The page stays as it was, and the next one is begun from it."""
        page = visit(path)
        page.fill(field, text)
        page.click("main button.main")
        page.click("[data-progress]:not([hidden]) button")
        page.wait_for_selector("[data-progress]", state="hidden")
        assert page.url.endswith(path)
        page.click("main button.main")
        page.wait_for_selector("[data-progress]:not([hidden])")

    @pytest.mark.wide
    def test_registry_is_walked_by_links(self, visit):
        """To a node below, and back by the way to it; no name of a node is markup."""
        page = visit("/registry?path=/config/topics")
        assert page.locator("main tbody script").count() == 0
        page.click("main tbody >> text=orders")
        page.wait_for_url("**path=%2Fconfig%2Ftopics%2Forders")
        page.click(".crumbs >> text=config")
        page.wait_for_url("**path=%2Fconfig")
        assert "run" not in page.title()

    @pytest.mark.wide
    def test_transaction_is_ended(self, visit, broker):
        """By its id, as its coordinator knows it: the readers of its partition go on."""
        add_topic(broker.bootstrap_servers, "held")
        with Producer(broker.bootstrap_servers, transactional_id="stuck") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("held", b"open").result()
            page = visit("/transactions")
            mine = page.locator(".opened li", has_text="stuck")
            wait_until(mine.count, "the transaction of a new topic", meanwhile=page.reload)
            mine.locator("button.danger").click()
            page.wait_for_selector(".message")
            assert mine.count() == 0
            with pytest.raises(KafkaError):
                producer.commit_transaction()

    @pytest.mark.wide
    def test_setting_of_a_topic_is_changed(self, visit):
        """And shown with the others, as the topic's own."""
        page = visit("/t/quiet/settings")
        page.click('main td code:text-is("retention.ms")')
        page.fill("main input[name=value]", "86400000")
        page.click("main button.main")
        page.wait_for_selector(".message")
        row = page.locator("main tbody tr", has=page.get_by_text("retention.ms", exact=True))
        assert "86400000" in row.inner_text()
        assert "this topic" in row.inner_text()

    @pytest.mark.wide
    def test_bar_of_the_timeline_leads_to_its_records(self, visit):
        """As does a field of the shape to the records that have it."""
        page = visit(f"/t/orders/timeline?from={START}&to={START + 240_000}")
        page.locator("main svg a").first.click()
        page.wait_for_selector("#records tr")
        page.click("text=Shape")
        page.click("main td.name a >> nth=0")
        page.wait_for_selector(".found-line b")

    @pytest.mark.wide
    def test_list_is_taken_along(self, visit):
        """By a link at the foot of its page."""
        page = visit("/topics")
        with page.expect_download() as download:
            page.click("footer >> text=CSV")
        text = download.value.path().read_text()
        assert text.startswith("name,")
        assert "\norders," in text

    @pytest.mark.wide
    def test_broker_has_its_settings_and_replicas(self, visit):
        """From the list of brokers; defaults are left out until they are asked for."""
        page = visit("/brokers")
        page.click("main h2 a")
        page.wait_for_url("**/broker?id=*")
        page.check("input[name=all]")
        page.locator("main tbody code", has_text="log.retention.hours").first.wait_for()
        page.click(".tabs >> text=Replicas")
        page.locator("main td.name", has_text="orders-0").wait_for()

    @pytest.mark.wide
    def test_flow_leads_from_a_topic_to_its_records(self, visit):
        """Between those that write and those that read."""
        page = visit("/flow")
        page.click("main a >> text=orders")
        page.wait_for_selector("#records tr")

    @pytest.mark.wide
    def test_journey_from_a_dead_letter_to_its_origin_and_back(self, visit, broker):
        """The plan names what failed; all letters are sent back, each once."""
        page = visit("/t/rejected/records")
        page.click("text=Dead letters")
        assert page.locator("main tbody tr").count() == 3
        page.click("main tbody tr >> nth=0 >> text=orders")
        page.wait_for_selector("pre.data")
        assert "/t/orders/1/" in page.url
        page.go_back()
        before = records_of_orders(broker)
        page.click("text=Send all 3 back")
        page.wait_for_selector(".message")
        assert records_of_orders(broker) - before >= 3  # and the marker of their transaction
        page.goto(page.url.partition("/t/")[0] + "/t/rejected/redrive")
        assert "No letter waits here." in page.inner_text("main")

    @pytest.mark.wide
    def test_group_of_the_newer_protocol_has_its_members_and_lag(self, visit, broker):
        """KIP-848: assigned by the coordinator, and shown as a group of it."""
        servers = broker.bootstrap_servers
        with Consumer(
            servers, group_id="modern", client_id="modern-1", group_protocol="consumer"
        ) as member:
            member.subscribe(["orders"])
            wait_until(member.assignment, "the assignment", meanwhile=lambda: member.poll(20))
            orders = [TopicPartition("orders", number) for number in range(3)]
            member.commit({each: OffsetAndMetadata(4) for each in orders})
            page = visit("/groups?sort=name")
            row = page.locator("main tbody tr", has_text="modern")
            wait_until(row.count, "the group in the list", meanwhile=page.reload)
            assert row.locator(".tag", has_text="new").count() == 1
            page.click("main tbody >> text=modern")
            assert page.locator(".matrix td.cell:not(:empty)").count() == 3
            assert "modern-1" in page.inner_text(".matrix tbody")

    @pytest.mark.wide
    def test_who_may_read_is_answered(self, visit):
        """With the ACL that decides; users and quotas are below."""
        page = visit("/access")
        page.select_option("[name=operation]", "Read")
        page.select_option("[name=kind]", "topic")
        page.fill("main input[name=name]", "orders")
        page.click("text=Ask")
        answer = page.locator("[aria-label='The answer'] tbody tr")
        assert answer.filter(has_text="User:alice").locator("text=yes").count() == 1
        page.fill("main input[name=principal]", "User:mallory")
        page.click("text=Ask")
        assert "Deny Read of Topic orders" in answer.inner_text()
        assert "acls explain" in page.inner_text("main .command >> nth=0")
        assert "SCRAM-SHA-256" in page.inner_text("main")
        assert "1 KB/s" in page.inner_text("main")

    @pytest.mark.wide
    def test_misspelt_topic_leads_to_the_right_one_and_is_not_made(self, visit, broker):
        """Nothing that is only looked at comes into being."""
        page = visit("/t/ordres/records", status=404)
        assert "There is no topic ordres" in page.inner_text("main")
        with Admin(broker.bootstrap_servers) as admin:
            assert "ordres" not in admin.list_topics()
        page.click("main a >> text=orders")
        page.wait_for_selector("#records tr")

    @pytest.mark.wide
    def test_journey_from_a_failed_task_to_its_dead_letters_origin(self, visit, connectors):
        """The one that has failed comes first; letters lead to what could not be read."""
        page = visit("/connectors")
        assert page.locator("main tbody td.name a").all_inner_texts() == ["strict", "lenient"]
        page.click("main tbody >> text=strict")
        assert "hostile" in page.inner_text("main pre >> nth=0")
        page = visit("/connector?name=lenient")
        page.click("main a >> text=hostile.dead")
        page.wait_for_selector("#records tr")
        page.click("text=Dead letters")
        page.click("main tbody tr >> nth=0 >> text=hostile")
        page.wait_for_selector("pre.data")
        assert "/t/hostile/0/" in page.url

    @pytest.mark.wide
    def test_task_that_failed_is_restarted(self, visit, connectors):
        """It fails again with the same record, and the page says so."""
        page = visit("/connector?name=strict")
        page.click("text=restart failed")
        page.wait_for_selector(".message")
        failed = page.locator("main .tag.bad", has_text="failed")
        wait_until(failed.count, "the failure", meanwhile=page.reload)

    @pytest.mark.wide
    def test_batches_of_a_continuous_pipeline_are_seen_as_they_come(self, visit, broker):
        """The page that is open follows them, and says how the run has ended."""
        counts = {"hosts": {"rows": 40, "malformed": 2}}
        visit("/")
        with ProgressTopic(broker.bootstrap_servers, "monitoring", Path("report.html")) as topic:
            topic.batch(Batch("alerts", 0, 40, 0.5, 7, 1, 12, counts))
            card = visit("/pipelines").locator("main .card", has_text="monitoring")
            wait_until(card.count, "the run", meanwhile=lambda: visit("/pipelines"))
            assert "running" in card.inner_text()
            topic.batch(Batch("alerts", 1, 80, 0.5, 0, 0, 12, counts))
            card.locator("text=batch 1 ").wait_for()
            assert "160" in card.inner_text()
        card.locator(".tag", has_text="ended").wait_for()

    @pytest.mark.wide
    def test_page_that_cannot_refresh_itself_is_not_live(self, visit):
        """It says so, and is live again with the next answer."""

        def refuse(route) -> None:
            is_refresh = "x-refresh" in route.request.headers
            route.fulfill(status=503, body="") if is_refresh else route.continue_()

        page = visit("/groups", later=503)
        page.route("**/groups", refuse)
        page.locator("[data-pause].stale", has_text="not up to date").wait_for()
        page.unroute("**/groups", refuse)
        page.locator("[data-pause]:not(.stale)", has_text="live").wait_for()
