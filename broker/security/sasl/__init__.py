"""Logins by SASL: of clients to the broker, and of the broker to others.

    authentication.py   the messages of one login, in order: handshake, tokens, the end
    mechanism.py        what a mechanism is, and how it fails
    plain.py            PLAIN
    scram.py            SCRAM: stored credentials, and the messages
    client.py           the client's side of PLAIN and SCRAM

Everything here is values in, values out. Callers: `handlers/`, which decodes the requests, `sasl_mechanisms.py`,
`cluster/`, which keeps the credentials, and `peers/`.
"""
