"""What network and handlers share about a request.

    request_context.py    what a handler knows about a request, and the ways in which it can respond
    pending_response.py   the response to a parked request
    answered_later.py     a response that a task of the background produces
    parked_answer.py      its place in the order of responses
    request_bound.py      which requests are large, and how much a request may name
    request_metrics.py    the counters of requests
    endpoint.py           a listener's address

Callers: every room above it.
"""
