"""The page in a real browser: what it shows, by keyboard and to a screen reader, and that names stay text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.broker.metadata.kafka_uuid import uuid_text
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from odradek.testing import BrokerThread
from tests.broker.console.test_bounds import add_topics
from tests.broker.console.waiters import EVIL, fetch_of, join_of, waiting_clients
from tests.broker.telemetry.otlp_messages import gauge, metrics_data
from tests.chromium import Chromium, Page
from tests.patience import PATIENCE_S, block_until
from tests.wire.blocking_client import Client, RawClient
from tests.wire.frames import request_payload

VIEWS = ("Overview", "Waiting", "Topics", "Groups", "Transactions", "Connections", "Clients", "Settings")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    settings = {
        "odradek.metrics.port": "0",
        "group.initial.rebalance.delay.ms": "600000",
        "group.consumer.assignment.interval.ms": "0",
        "odradek.client.metrics.enable": "true",
    }
    with BrokerThread(settings) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic(name="orders", num_partitions=3, replication_factor=1)])
        admin.close()
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        producer.send("orders", b"value", partition=0).get(timeout=PATIENCE_S)
        producer.close()
        with RawClient(broker.bootstrap) as client:
            block_until(lambda: coordinates_groups(client))
        yield broker


def coordinates_groups(client: RawClient) -> bool:
    """Whether the topic of groups has been made and loaded."""
    answer = client.call(request_payload(FindCoordinatorRequest(key="any", key_type=0), 2))
    error_code = answer[8:10]  # behind the correlation id and the throttle time
    return error_code == b"\0\0"


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Page]:
    page = chromium.new_page()
    page.size(1280, 900)
    yield page
    page.close()


def address(broker: BrokerThread) -> str:
    server = broker.broker.metrics_server
    assert server is not None
    return f"http://127.0.0.1:{server.port}/"


def show(page: Page, broker: BrokerThread, view: str) -> None:
    page.open(f"{address(broker)}#/{view}")
    page.until("document.getElementById('status')?.textContent === 'live'")


def focused(page: Page) -> Any:
    return page.value("document.activeElement.textContent.trim() || document.activeElement.getAttribute('aria-label')")


def colour(page: Page) -> Any:
    return page.value("getComputedStyle(document.body).backgroundColor")


def test_every_view_is_shown_without_a_complaint_and_nothing_is_loaded_from_elsewhere(
    page: Page, broker: BrokerThread
) -> None:
    for view in VIEWS:
        show(page, broker, view.lower())
        page.until(f"document.querySelector('h1').textContent === '{view}'")
        page.until(f"document.querySelector('nav [aria-current=page]').textContent === '{view}'")
        page.until("document.querySelector('main').getAttribute('aria-busy') === 'false'")
    assert page.complaints() == []
    assert {url for url in page.requested() if not url.startswith(address(broker))} == set()


def test_topics_and_their_partitions_are_shown(page: Page, broker: BrokerThread) -> None:
    show(page, broker, "topics")
    page.until_text("orders")
    page.value("[...document.querySelectorAll('main a')].find(a => a.textContent === 'orders').click()")
    page.until("document.querySelector('h1').textContent === 'orders'")
    page.until("document.querySelectorAll('main tbody tr').length === 3")
    assert page.value("[...document.querySelector('main tbody tr').children].map(cell => cell.textContent)")[7:9] == [
        "1",
        "1",
    ]


def test_names_from_clients_stay_text(page: Page, broker: BrokerThread) -> None:
    requests = ((fetch_of(("orders", 1, 0)), 11, EVIL), (join_of(EVIL), 3, EVIL))
    with waiting_clients(broker.bootstrap, *requests):
        for view in ("waiting", "groups", "connections"):
            show(page, broker, view)
            page.until_text(EVIL)
        page.value(f"location.hash = '#/group/' + encodeURIComponent({json.dumps(EVIL)})")
        page.until("document.querySelector('h1')?.textContent.startsWith('<img')")
        page.until("document.querySelector('main tbody td')?.textContent.startsWith('<img')")
    assert page.value("document.querySelectorAll('main img').length") == 0
    assert page.value("window.hacked ?? null") is None
    assert page.complaints() == []


REORDERING = "payments\u202egnihton\u2066\u200b\x1b[2J\U000e0041\n end"
SHOWN = r"payments\u202egnihton\u2066\u200b\x1b[2J\U000e0041\n end"


def test_characters_that_nobody_sees_are_shown_as_escapes(page: Page, broker: BrokerThread) -> None:
    requests = ((fetch_of(("orders", 2, 0)), 11, REORDERING), (join_of(REORDERING), 3, REORDERING))
    with waiting_clients(broker.bootstrap, *requests):
        for view in ("waiting", "groups", "connections"):
            show(page, broker, view)
            page.until_text(SHOWN)
            assert not page.value(f"document.documentElement.outerHTML.includes({json.dumps(chr(0x202E))})")
        page.value(f"location.hash = '#/group/' + encodeURIComponent({json.dumps(REORDERING)})")
        page.until(f"document.querySelector('h1')?.textContent === {json.dumps(SHOWN)}")
        page.until("document.querySelector('main tbody td')?.textContent.startsWith('payments')")
        assert page.value("document.title").startswith(SHOWN)
        assert not page.value(f"document.documentElement.outerHTML.includes({json.dumps(chr(0x202E))})")
    assert page.complaints() == []


def test_who_gives_up_a_partition_and_who_waits_for_it_is_shown(page: Page, broker: BrokerThread) -> None:
    with Client(broker.bootstrap, EVIL) as client:
        for member_id, epoch in (("a", 0), ("b", 0), ("a", 2)):
            request = ConsumerGroupHeartbeatRequest(group_id="readers", member_id=member_id, member_epoch=epoch)
            if epoch == 0:
                request.rebalance_timeout_ms = 600_000
                request.subscribed_topic_names = ["orders"]
                request.topic_partitions = []
            assert client.ask(request, 1).error_code == 0
    show(page, broker, "group/readers")
    page.until_text("Partitions on their way")
    rows = "[...document.querySelectorAll('table')[1].querySelectorAll('tbody tr')].map(row => row.innerText)"
    page.until(f"{rows}.length === 1")
    topic, partition, owner, state, until, taker = page.value(rows)[0].split("\t")
    assert (topic, owner, state, taker) == ("orders", f"{EVIL} (a)", "told", f"{EVIL} (b)")
    assert partition in "012"
    assert until.startswith("in 9 min ")
    members = "[...document.querySelectorAll('table')[0].querySelectorAll('tbody tr')].map(row => row.innerText)"
    first, second = (line.split("\t") for line in page.value(members))
    assert (first[4], second[4]) == ("consumer member", "consumer member")
    assert first[6].startswith("orders-")
    assert second[6] == "–"
    show(page, broker, "groups")
    page.until_text("Reconciling")
    assert page.complaints() == []


def test_a_client_and_what_it_has_pushed_are_shown(page: Page, broker: BrokerThread) -> None:
    instance = UUID(int=0x11 << 120)
    rows = "[...document.querySelectorAll('tbody tr')].map(row => row.innerText)"
    with Client(broker.bootstrap, EVIL) as client:
        subscription = client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance), 0)
        request = PushTelemetryRequest(
            client_instance_id=instance,
            subscription_id=subscription.subscription_id,
            metrics=metrics_data(gauge("queue.size", 2.5, topic=EVIL), resource={"group_id": EVIL}),
        )
        assert client.ask(request, 0).error_code == 0
        show(page, broker, "clients")
        page.until(f"{rows}.length === 1")
        shown = page.value(rows)[0].split("\t")
        assert (shown[:2], shown[4], shown[-1]) == ([EVIL, uuid_text(instance)], f"group_id={EVIL}", "1")
        show(page, broker, f"client/{uuid_text(instance)}")
        page.until(f"{rows}.length === 1")
        assert page.value(rows)[0].split("\t")[:4] == ["kafka_client_queue_size", f"topic={EVIL}", "gauge", "2.5"]
    show(page, broker, "clients")
    page.until(f"{rows}.length === 0")
    assert page.value("window.hacked ?? null") is None
    assert page.complaints() == []


def test_an_inline_script_does_not_run(page: Page, broker: BrokerThread) -> None:
    """The policy holds even if a name should ever be parsed."""
    show(page, broker, "overview")
    page.value("document.body.append(Object.assign(document.createElement('script'), {textContent: 'hacked = 1'}))")
    page.value("document.body.insertAdjacentHTML('beforeend', " + json.dumps(EVIL) + ")")
    page.until("[...document.images].every(image => image.complete)")
    assert page.value("window.hacked ?? null") is None
    assert any("Content Security Policy" in text for text in page.complaints())


def test_what_waits_is_shown_and_the_wheel_turns(page: Page, broker: BrokerThread) -> None:
    with waiting_clients(broker.bootstrap, (fetch_of(("orders", 1, 0)), 11, "patient-reader")):
        show(page, broker, "waiting")
        page.until_text("patient-reader (FETCH v11)")
        page.until_text("fewer than the 1 bytes that the consumer asks for: orders-1 from 0, which ends at 0")
        assert page.value("document.querySelectorAll('.dial .bucket').length") % 20 == 0
        assert page.value("document.querySelector('.dial .heat-1') !== null")
        hands = "[...document.querySelectorAll('.dial .hand')].map(hand => hand.getAttribute('transform')).join()"
        before = page.value(hands)
        page.until(f"{hands} !== {before!r}")
    page.until("!document.body.innerText.includes('patient-reader')")


def test_the_keyboard_reaches_everything_and_keeps_its_place(page: Page, broker: BrokerThread) -> None:
    show(page, broker, "overview")
    page.press("Tab")
    assert focused(page) == "Skip to the content"
    page.press("Enter")
    assert page.value("document.activeElement.id") == "main"
    page.value("document.querySelector('nav a').focus()")
    assert focused(page) == "Overview"
    page.press("Tab")
    page.press("Tab")
    assert focused(page) == "Topics"
    page.press("Enter")
    page.until("document.querySelector('h1').textContent === 'Topics'")
    page.press("Tab")
    page.type("ord")
    page.until("document.querySelector('.pager .rows').textContent.startsWith('1–1 of 1')")
    polls = len([url for url in page.requested() if "/api/topics" in url])
    page.until("document.querySelector('main tbody a') !== null")
    page.value("document.querySelector('main tbody a').focus()")
    page.until("new Promise(done => setTimeout(() => done(true), 2500))")
    assert len([url for url in page.requested() if "/api/topics" in url]) > polls
    assert focused(page) == "orders"


def test_a_screen_reader_finds_landmarks_tables_and_names(page: Page, broker: BrokerThread) -> None:
    show(page, broker, "topics")
    page.until_text("orders")
    found = page.accessible()
    roles = {role for role, _ in found}
    assert {"banner", "navigation", "main", "heading", "table", "columnheader", "status"} <= roles
    assert ("table", "Topics") in found
    assert ("searchbox", "Search topics") in found
    assert ("link", "orders") in found
    nameless = [
        role for role, name in found if role in ("button", "link", "combobox", "searchbox", "table") and not name
    ]
    assert nameless == []
    assert page.value("document.documentElement.lang") == "en"


def test_the_colours_follow_the_system_until_the_reader_chooses(page: Page, broker: BrokerThread) -> None:
    page.media(prefers_color_scheme="light")
    show(page, broker, "overview")
    light = colour(page)
    page.media(prefers_color_scheme="dark")
    dark = colour(page)
    assert light != dark
    choose = "const s = document.getElementById('scheme'); s.value = '%s'; s.dispatchEvent(new Event('change'))"
    page.value(f"(() => {{ {choose % 'light'} }})()")
    assert colour(page) == light
    show(page, broker, "topics")  # the choice is kept
    page.value("(window.isOld = true, location.reload())")
    page.until("!window.isOld && document.getElementById('status')?.textContent === 'live'")
    assert page.value("document.getElementById('scheme').value") == "light"
    assert colour(page) == light
    page.value(f"(() => {{ {choose % 'system'} }})()")
    assert colour(page) == dark


def test_texts_have_enough_contrast_in_both_schemes(page: Page, broker: BrokerThread) -> None:
    """WCAG AA: 4.5 to 1 for texts."""
    show(page, broker, "topics")
    page.until_text("orders")
    for scheme in ("light", "dark"):
        page.media(prefers_color_scheme=scheme)
        for selector in ("h1", "th", "td a", ".lead", "nav a[aria-current]", "nav a:not([aria-current])", ".status"):
            assert page.value(CONTRAST % selector) >= 4.5, (scheme, selector)


CONTRAST = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const node = document.querySelector("%s");
  let under = node;
  while (parse(getComputedStyle(under).backgroundColor)[3] === 0) under = under.parentElement;
  const colours = [getComputedStyle(node).color, getComputedStyle(under).backgroundColor];
  const pair = colours.map((colour) => light(parse(colour).slice(0, 3)));
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
})()"""


def test_a_page_that_is_paused_asks_nothing_and_a_broker_that_is_gone_is_noticed(chromium: Chromium) -> None:
    page = chromium.new_page()
    with BrokerThread({"odradek.metrics.port": "0"}) as broker:
        show(page, broker, "overview")
        page.value("document.getElementById('pause').click()")
        page.until("document.getElementById('status').textContent === 'paused'")
        page.value("document.getElementById('pause').click()")
        page.until("document.getElementById('status').textContent === 'live'")
    page.until("document.getElementById('status').textContent === 'no connection'")
    page.close()


def test_a_broker_that_does_not_answer_is_noticed(chromium: Chromium) -> None:
    page = chromium.new_page()
    goes_on = threading.Event()

    async def stand_still() -> None:
        goes_on.wait()

    with BrokerThread({"odradek.metrics.port": "0"}) as broker:
        show(page, broker, "overview")
        page.value("(() => { const real = AbortSignal.timeout; AbortSignal.timeout = (ms) => real(ms / 50); })()")
        with ThreadPoolExecutor(1) as pool:
            still = pool.submit(broker.call, stand_still())
            try:
                page.until("document.getElementById('status').textContent === 'no answer in 10 s'")
            finally:
                goes_on.set()
            still.result()
        page.until("document.getElementById('status').textContent === 'live'")
    page.close()


COUNTERS_AFTER_A_START = """import('/console/views.js').then(async (views) => {
  const now = await (await fetch('/api/overview')).json();
  views.rememberOverview({ ...now, bytes_in: 1_000_000 });
  views.rememberOverview({ ...now, bytes_in: 10, now_ms: now.now_ms + 1000 });
  const view = new views.OverviewView();
  await view.poll();
  const figures = [...view.node.querySelectorAll('.figure')];
  return figures.find((each) => each.textContent.startsWith('Received')).querySelector('.value').textContent;
})"""


def test_a_counter_of_a_broker_that_has_started_again_is_no_negative_rate(page: Page, broker: BrokerThread) -> None:
    show(page, broker, "settings")
    assert page.value(COUNTERS_AFTER_A_START) == "–"


def test_ten_thousand_topics_are_shown_in_pages(chromium: Chromium) -> None:
    page = chromium.new_page()
    with BrokerThread({"odradek.metrics.port": "0"}) as broker:

        async def add() -> None:
            add_topics(broker.broker, 10_000)

        broker.call(add())
        show(page, broker, "topics")
        page.until_text("1–100 of 10,000")
        assert page.value("document.querySelectorAll('main tbody tr').length") == 100
        page.value("[...document.querySelectorAll('button')].find(b => b.textContent === 'Next').click()")
        page.until_text("101–200 of 10,000")
        page.until("document.querySelector('main tbody a').textContent === 'topic-00100'")
    page.close()
