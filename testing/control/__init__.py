"""`odradek serve --test-control PORT`: faults and requests of a broker over HTTP, for tests in other languages.

    control.py       what a broker with a control port is made of; who may have one
    server.py        the port: who may ask; `broker/http` serves it
    resources.py     the paths: faults, requests, check
    arguments.py     the arguments of faults and requests as JSON

docs/testing/faults.md describes the port for clients. Caller: `broker/serve.py`.
"""

from odradek.testing.control.control import Control

__all__ = ["Control"]
