"""What network and handlers share about a request.

    request_context.py    what a handler knows about a request, and the ways in which it can respond, now or later
    answered_later.py     a later response that a task of the background produces
    request_bound.py      which requests are large, and how much a request may name
    request_metrics.py    the counters of requests
    endpoint.py           addresses: of a listener, and of a client as ACLs name it

Callers: every room above it.
"""
