"""`odradek serve --test-control`: who may ask, what can be asked, and what is refused."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.clients.admin.client import AdminClient
from odradek.protocol.errors import ErrorCode
from odradek.testing import in_process_broker
from odradek.testing.control import arguments
from odradek.testing.control.resources import Resources
from odradek.testing.faults.arguments import FaultArguments, Selected
from tests.patience import PATIENCE_S, block_until
from tests.wire.blocking_client import Client
from tests.wire.records import codes
from tests.wire.requests import produce_to as produce

SERVE = [sys.executable, "-m", "odradek.broker", "--port", "0"]


class Controlled(NamedTuple):
    bootstrap: str
    address: str
    token: str

    def ask(self, method: str, path: str, document: Any = None, **headers: str | None) -> tuple[int, Any]:
        """Returns the status and the document. A header that is None is left out."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        sent = {"Authorization": f"Bearer {self.token}"} | {name.title(): text for name, text in headers.items()}
        body = document if isinstance(document, (str, bytes)) else None if document is None else json.dumps(document)
        connection.request(method, path, body, {name: text for name, text in sent.items() if text is not None})
        answer = connection.getresponse()
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controlled]:
    command = [*SERVE, "--data-dir", str(tmp_path_factory.mktemp("data")), "--test-control", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        word, url, token = process.stdout.readline().split()
        assert word == "test-control"
        bootstrap = process.stdout.readline().split()[1]
        with Client(bootstrap) as client:
            client.create("orders", 2)
        yield Controlled(bootstrap, url.removeprefix("http://"), token)
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture(autouse=True)
def _without_faults(controlled: Controlled) -> Iterator[None]:
    yield
    controlled.ask("DELETE", "/faults")
    controlled.ask("DELETE", "/requests")


def test_a_fault_is_added_hit_shown_and_removed(controlled: Controlled) -> None:
    asked = {"api": "Produce", "topic": "orders", "partition": 1, "error": "NOT_LEADER_OR_FOLLOWER"}
    status, added = controlled.ask("POST", "/faults", asked)
    assert (status, added) == (201, {"id": added["id"], **asked, "hits": 0, "held": 0})
    assert controlled.ask("GET", "/check") == (
        409,
        {
            "error": "add(api='Produce', topic='orders', partition=1, error='NOT_LEADER_OR_FOLLOWER') was never hit",
        },
    )
    with Client(controlled.bootstrap) as client:
        answered = codes(client.ask(produce({"orders": [0, 1]}), 9))
    assert answered == {("orders", 0): 0, ("orders", 1): int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    assert controlled.ask("GET", f"/faults/{added['id']}")[1]["hits"] == 1
    assert controlled.ask("GET", "/check") == (200, {})
    assert controlled.ask("DELETE", f"/faults/{added['id']}")[0] == 200
    assert controlled.ask("GET", "/faults") == (200, [])


def test_a_request_is_held_awaited_and_released(controlled: Controlled) -> None:
    number = controlled.ask("POST", "/faults", {"api": "Produce", "hold": True})[1]["id"]
    with Client(controlled.bootstrap, "service") as client:
        client.send(produce({"orders": [0]}), 9)
        status, request = controlled.ask("POST", "/requests/wait", {"api": "Produce", "topic": "orders", "within": 20})
        assert (status, request["client_id"], request["faults"]) == (200, "service", [number])
        assert (request["request"]["TopicData"][0]["Name"], request["response"]) == ("orders", None)
        assert controlled.ask("POST", f"/faults/{number}/release")[1]["held"] == 0
        client.receive()
    status, requests = controlled.ask("GET", "/requests?api=Produce&client_id=service")
    assert (status, [each["number"] for each in requests]) == (200, [request["number"]])
    assert requests[0]["response"]["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0


def test_a_wait_for_what_does_not_come_says_what_came(controlled: Controlled) -> None:
    with Client(controlled.bootstrap, "service") as client:
        client.ask(produce({"orders": [0]}), 9)
    status, answer = controlled.ask("POST", "/requests/wait", {"api": "JoinGroup", "within": 0.1})
    assert status == 504
    assert "no request(api='JoinGroup') within 0.1 s" in answer["error"]
    assert "Produce of 'service'" in answer["error"]


def test_a_test_waits_for_the_hits_of_a_fault(controlled: Controlled) -> None:
    number = controlled.ask("POST", "/faults", {"disk": "full", "topic": "orders", "times": 1})[1]["id"]
    status, answer = controlled.ask("POST", f"/faults/{number}/wait", {"within": 0.05})
    assert (status, answer["error"]) == (
        504,
        "add(topic='orders', times=1, disk='full') was hit 0 times within 0.05 s, not 1",
    )
    with Client(controlled.bootstrap) as client:
        client.ask(produce({"orders": [0]}), 9)
    status, fault = controlled.ask("POST", f"/faults/{number}/wait", {"hits": 1, "within": 20})
    assert (status, fault["hits"]) == (200, 1)


def test_a_document_answers_requests(controlled: Controlled) -> None:
    controlled.ask("POST", "/faults", {"api": "Heartbeat", "respond": {"ErrorCode": 27}, "optional": True})
    from odradek.protocol.messages.groups import HeartbeatRequest

    with Client(controlled.bootstrap) as client:
        assert client.ask(HeartbeatRequest(group_id="billing", member_id="one"), 4).error_code == 27


def test_a_disk_is_full(controlled: Controlled) -> None:
    fault = controlled.ask("POST", "/faults", {"disk": "full", "topic": "orders", "partition": 0, "times": 1})[1]
    with Client(controlled.bootstrap) as client:
        assert codes(client.ask(produce({"orders": [0]}), 9))["orders", 0] != 0
    assert controlled.ask("GET", f"/faults/{fault['id']}")[1]["hits"] == 1


# Who may ask


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": None}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer \xe9"}, 401),
        ({"authorization": "{token}"}, 401),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:{port}"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"host": "10.0.0.1"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"host": "localhost:{port}"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"origin": "http://{address}"}, 200),
    ],
)
def test_only_those_with_the_token_may_ask_and_no_page_of_another_origin(
    controlled: Controlled, headers: dict[str, str | None], status: int
) -> None:
    known = {"token": controlled.token, "address": controlled.address, "port": controlled.address.split(":")[1]}
    sent = {name: None if text is None else text.format(**known) for name, text in headers.items()}
    answered, document = controlled.ask("GET", "/faults", **sent)
    assert answered == status
    assert controlled.token not in json.dumps(document)


def raw(controlled: Controlled, text: bytes) -> bytes:
    host, port = controlled.address.split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(text.replace(b"TOKEN", controlled.token.encode()))
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while more := connection.recv(4096):
            received += more
    return received


ALLOWED = b"Host: localhost\r\nAuthorization: Bearer TOKEN\r\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET /faults HTTP/1.1\r\n\r\n", 421),
        (b"GET /faults HTTP/1.1\r\n" + ALLOWED + b"Host: evil.example\r\n\r\n", 400),
        (b"GET /faults HTTP/1.1\r\n" + ALLOWED + b"Origin: null\r\nOrigin: http://localhost\r\n\r\n", 400),
        (b"GET /faults HTTP/1.1\r\n" + ALLOWED + b"Host : evil.example\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /faults HTTP/1.1\r\n" + ALLOWED + b"Transfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /faults HTTP/1.1\r\n" + ALLOWED + b"Content-Length: many\r\n\r\n", 400),
        (b"POST /faults HTTP/1.1\r\n" + ALLOWED + b"Content-Length: 99999999999\r\n\r\n", 413),
        (b"GET /faults HTTP/1.1\r\n" + ALLOWED + b"X: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    ],
)
def test_requests_that_are_no_proper_http_are_refused(controlled: Controlled, text: bytes, status: int) -> None:
    assert raw(controlled, text).split(b" ")[1] == str(status).encode()


def test_connections_that_send_nothing_end_and_keep_nobody_out_for_long(controlled: Controlled) -> None:
    host, port = controlled.address.split(":")
    silent = [socket.create_connection((host, int(port)), 20) for _ in range(70)]
    block_until(lambda: _is_answered(controlled))
    for connection in silent:
        connection.close()


def _is_answered(controlled: Controlled) -> bool:
    try:
        return controlled.ask("GET", "/faults")[0] == 200
    except (http.client.HTTPException, OSError):
        return False


# What is asked


@pytest.mark.parametrize(
    ("method", "path", "document", "status", "error"),
    [
        ("POST", "/faults", {"api": "Produc", "delay": 1}, 400, "did you mean Produce"),
        ("POST", "/faults", {"api": "Produce", "error": "NOT_LEADER"}, 400, "did you mean"),
        ("POST", "/faults", {"api": "Produce", "eror": "X"}, 400, "no argument 'eror'; did you mean error"),
        ("POST", "/faults", {"api": "Produce"}, 400, "the fault does nothing"),
        ("POST", "/faults", {"api": 0, "delay": 1}, 400, "api=0: must be str"),
        ("POST", "/faults", {"partition": True, "topic": "orders", "delay": 1}, 400, "partition=True: must be int"),
        ("POST", "/faults", {"hold": 1}, 400, "hold=1: must be bool"),
        ("POST", "/faults", {"when": "always", "delay": 1}, 400, "no argument 'when'"),
        ("POST", "/faults", "{", 400, "the body is not JSON"),
        ("POST", "/faults", "[" * 100_000, 400, "the body is not JSON"),
        ("POST", "/faults", [], 400, "the body is not a JSON object"),
        ("PUT", "/faults", {}, 405, "GET and POST and DELETE"),
        ("GET", "/faults/77", None, 404, "there is no fault 77"),
        ("POST", "/faults/77/release", None, 404, "there is no fault 77"),
        ("GET", "/", None, 404, "the paths are"),
        ("GET", "/requests?api=Produc", None, 400, "did you mean Produce"),
        ("GET", "/requests?partition=x&topic=orders", None, 400, "partition='x': must be int"),
        ("POST", "/requests/wait", {"within": 1e9}, 400, "at most 600"),
        ("POST", "/requests/wait", {"within": -1}, 400, "above 0"),
        ("POST", "/requests/wait?api=Produce", {}, 400, "/requests/wait has its arguments in the body"),
        ("POST", "/faults?api=Produce", {"delay": 1}, 400, "/faults has its arguments in the body"),
        ("GET", "/requests", {"api": "Produce"}, 400, "GET has no body; the arguments of /requests are a query"),
        ("GET", "/requests?api=", None, 400, "there is no API ''"),
        ("GET", "/requests?topic=", None, 400, "topic is empty"),
        ("GET", "/requests?topic=a&topic=b", None, 400, "an argument stands twice in the query"),
        ("GET", "//[", None, 404, "the paths are"),
        ("POST", "/faults/77/wait", {}, 404, "there is no fault 77"),
        ("POST", "/faults", {"api": "Heartbeat", "topic": "orders", "delay": 1}, 400, "name no topic"),
    ],
)
def test_bad_input_is_one_clear_error(
    controlled: Controlled, method: str, path: str, document: Any, status: int, error: str
) -> None:
    answered, body = controlled.ask(method, path, document)
    assert answered == status
    assert error in body["error"]
    assert controlled.ask("GET", "/faults") == (200, [])


def test_a_wait_does_not_keep_other_requests_waiting(controlled: Controlled) -> None:
    answers: list[Any] = []
    document = {"api": "Produce", "client_id": "late", "within": 20}
    waiting = threading.Thread(target=lambda: answers.append(controlled.ask("POST", "/requests/wait", document)))
    waiting.start()
    assert controlled.ask("GET", "/faults") == (200, [])
    with Client(controlled.bootstrap, "late") as client:
        client.ask(produce({"orders": [1]}), 9)
    waiting.join(20)
    assert answers[0][0] == 200


def test_a_wait_ends_with_its_client_and_takes_no_request_from_others(controlled: Controlled) -> None:
    document = json.dumps({"api": "Produce", "client_id": "late", "within": 60}).encode()
    head = b"POST /requests/wait HTTP/1.1\r\n" + ALLOWED + b"Content-Length: %d\r\n\r\n" % len(document)
    host, port = controlled.address.split(":")
    with socket.create_connection((host, int(port)), 20) as gone:
        gone.sendall(head.replace(b"TOKEN", controlled.token.encode()) + document)
        controlled.ask("GET", "/faults")
    assert raw(controlled, head + document) == b"", "a client that has no more to say is gone as well"
    with Client(controlled.bootstrap, "late") as client:
        client.ask(produce({"orders": [1]}), 9)
    assert controlled.ask("POST", "/requests/wait", {"client_id": "late", "within": 20})[0] == 200


def test_a_request_that_is_not_complete_in_time_is_refused(controlled: Controlled) -> None:
    host, port = controlled.address.split(":")
    with socket.create_connection((host, int(port)), 20) as slow:
        slow.sendall(b"POST /faults HTTP/1.1\r\n" + ALLOWED.replace(b"TOKEN", controlled.token.encode()))
        slow.sendall(b"Content-Length: 10\r\n\r\n{")
        assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_the_arguments_are_those_of_python() -> None:
    assert set(FaultArguments.__annotations__) - set(arguments.FAULT) == {"when", "change"}
    assert set(arguments.FAULT) <= set(FaultArguments.__annotations__)
    assert set(arguments.SELECTORS) == set(Selected.__annotations__) - {"when"}


# Starting


@pytest.mark.parametrize("listeners", ["PLAINTEXT://:0", "PLAINTEXT://0.0.0.0:0", "A://127.0.0.1:0,B://[::]:0"])
def test_a_broker_that_others_can_reach_has_no_control_port(tmp_path: Path, listeners: str) -> None:
    command = [*SERVE[:3], "--data-dir", str(tmp_path / "data"), "--test-control", "0"]
    for setting in (
        f"listeners={listeners}",
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"inter.broker.listener.name={listeners.split(':')[0]}",
        f"advertised.listeners={listeners.split(':')[0]}://127.0.0.1:9092",
    ):
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "--test-control is for tests on this machine" in done.stderr.splitlines()[-1]


def test_a_control_port_that_is_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [*SERVE, "--data-dir", str(tmp_path / "data"), "--test-control", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"odradek: --test-control {port}: ")


def test_without_the_option_nothing_of_it_is_imported(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from odradek.broker.server import Broker\n"
        "from odradek.broker.settings.config import BrokerConfig\n"
        "import odradek.broker.serve\n"
        f"config = BrokerConfig.single_node({{'log.dirs': {str(tmp_path / 'data')!r}, 'listeners': 'PLAINTEXT://127.0.0.1:0'}})\n"
        "async def main():\n"
        "    broker = Broker(config)\n"
        "    await broker.start()\n"
        "    await broker.stop()\n"
        "asyncio.run(main())\n"
        "print(*[name for name in sys.modules if 'testing' in name and name.startswith('odradek')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.splitlines()[-1] == ""


async def test_other_tasks_run_between_the_requests_of_the_journal() -> None:
    async with in_process_broker(journal=True) as broker:
        async with AdminClient(broker.bootstrap) as admin:
            for _ in range(50):
                await admin.topics([])
        asked = Resources(broker.faults).response("GET", "/requests", {"api": "Metadata"}, {})
        answer = asyncio.create_task(asked)
        turns = 0
        while not answer.done():
            turns += 1
            await asyncio.sleep(0)
        _, document = await answer
    assert isinstance(document, bytes)
    assert turns >= len(json.loads(document)) >= 50
