"""What a broker waits for that needs no time to pass. Until all of it has ended, virtual time stands still.

    (A) functions in threads, connections that are being opened, and whatever else its loop awaits of the one below
    (B) child processes that have been given something to do, and those that have been told to end
    (C) bytes, and the ends of connections, on their way from another broker
    (D) connections that are closed, and whose callback has not run yet
    (E) slices of files that a socket would take

What comes from clients is not waited for, nor what they have not read yet: they are in no hurry. Nor is anything that a
gate keeps out, because a broker is paused, cut off, or does not want to read.

(C) compares what the system has sent at one end of a connection with what the node has read at the other end. A count
in the node would miss sendfile, and differs between both ends with TLS. It is compared only if the other end may have
sent something since it was last found to be the same (`has_sent`).
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import termios

from odradek.testing.gates import Gate
from odradek.testing.node_loop import NodeLoop

TCP_INFO_BYTES = 216
RECEIVED_AT = 128
"""The position of the bytes received in Linux's `struct tcp_info`; then of those sent and those sent again."""
SENT_AT, SENT_AGAIN_AT = 200, 208


def what_is_under_way(loop: NodeLoop) -> str:
    """Says what the node waits for. Empty if there is nothing."""
    if loop.has_ended:
        return ""
    who = f"broker {loop.node_id}"
    if loop.pending and any(loop.pending.values()):  # (A)
        return f"{who} waits for a thread, or for a connection that is being opened"
    if loop.processes and any(process.is_working for process in loop.processes):  # (B)
        return f"{who} waits for a child process"
    if loop.writers and not loop.is_held and _would_take(list(loop.writers)):  # (E)
        return f"{who} sends a file"
    network = loop.network
    for gate in loop.gates:
        if gate.is_being_closed:  # (D)
            return f"{who} closes a connection"
        other = network.other_end(gate)
        if (other is not None and not other.has_sent) or not network.is_expecting(gate) or not gate.is_open:
            continue
        if _is_on_its_way(gate, other):  # (C)
            return f"something is on its way to {who} on a connection {gate.purpose or 'from another broker'}"
        if other is not None and not other.has_tls_below:
            other.has_sent = False
    return ""


def _would_take(sockets: list[socket.socket]) -> bool:
    return bool(select.select([], sockets, [], 0)[1])


def _is_on_its_way(gate: Gate, other: Gate | None) -> bool:
    if other is None:
        return True  # it is being accepted, or its end is on its way
    if other.unwritten or other.has_written_the_end:
        return True
    here, there = gate.fileno(), other.fileno()
    if here < 0 or there < 0:
        return False
    if _unread(here) > 0:
        return True
    sender = _tcp_info(there)
    sent = _number(sender, SENT_AT) - _number(sender, SENT_AGAIN_AT)
    return sent > _number(_tcp_info(here), RECEIVED_AT) or _unread(here) > 0  # what has come since


def _tcp_info(descriptor: int) -> bytes:
    same = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=descriptor)
    try:
        return same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    finally:
        same.detach()


def _number(info: bytes, position: int) -> int:
    number: int = struct.unpack_from("=Q", info, position)[0] if len(info) >= position + 8 else 0
    return number


def _unread(descriptor: int) -> int:
    number: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0]
    return number
