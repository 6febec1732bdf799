"""Faults that a test asks for: requests that fail, wait, or lose their connection, and disks that are full or slow.

    names.py         Kafka's names of APIs and error codes
    request.py       a request that a broker has received, and what it answered
    arguments.py     the arguments of faults: the one table of them
    selector.py      which requests a fault is for
    selection.py     which topics, partitions and groups in a request are selected
    fault.py         one fault: what it does, how often it was hit, and waiting for that
    faults.py        all faults of a broker or cluster
    faulty_dispatch.py    the broker's dispatch with faults before and behind it
    answers.py       responses: decoded and encoded again, parked, changed when they are ready
    failures.py      responses with an error code: whole, or in the selected items only
    fetches.py       the same for Fetch, whose partitions may be those of a session
    journal.py       the latest requests, and waiting for one
    disk.py          the disk of a broker with faults

A broker without faults has none of it. Callers: `testing/`, `odradek serve --test-control`.
"""

from odradek.testing.faults.fault import Fault
from odradek.testing.faults.faults import Faults, UnusedFaults
from odradek.testing.faults.journal import Journal, NoSuchRequest
from odradek.testing.faults.request import Request

__all__ = ["Fault", "Faults", "Journal", "NoSuchRequest", "Request", "UnusedFaults"]
