"""Recordings of what clients and brokers say to each other: made by a proxy, shown, and sent again.

    recording_file.py   the format of a file of frames, its writer and its reader
    secrets.py          what is not recorded: logins, passwords, tokens
    conversation.py     which response answers which request of a connection
    decoding.py         a recorded frame as a document
    topic_names.py      the names of topics by their ids
    addresses.py        addresses in responses, replaced by those of the proxy
    streams.py          connections to brokers, and frames in pieces
    room.py             how much memory the frames that are held may take
    relay.py            one client's connection through the proxy
    proxy.py            `odradek record`: a listener for each broker
    show.py             `odradek show`: frames as lines
    comparison.py       what may differ between two responses, and what does
    identities.py       the ids of a recording and those of the brokers that it is sent to
    fetched.py          what the fetches of a recording return as a whole
    late_batches.py     batches that a target has, but had not yet when a recorded fetch was answered
    heartbeats.py       what members of consumer groups were told last
    not_yet.py          responses that depend on how fast a cluster was
    listed.py           the APIs and versions that a broker lists
    target.py           a cluster that a recording is sent to
    replay.py           `odradek replay` and `odradek compare`

docs/recordings.md describes the commands and the format. A package of the client's side, as `clients/admin/`.

Callers: `odradek.cli` and tests. The broker itself does not use it.
"""
