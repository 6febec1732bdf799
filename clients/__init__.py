"""A client of Kafka's protocol, and what stands on it. Brokers use it to reach each other; the rest is for people.

    network_client.py   one connection: requests and responses
    logins.py           connections that authenticate by SASL
    network_errors.py   how a request can fail
    admin/              the admin client of the `odradek` command: it administers any Kafka cluster
    recording/          recordings of what clients and brokers say

Of the broker it needs settings, security and the cutting of long work into steps; it knows nothing that serves. The
broker imports the connections alone, neither `admin/` nor `recording/` (import contracts in pyproject.toml).
"""
