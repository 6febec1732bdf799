"""Sockets: from bytes to frames, and from responses to bytes.

    socket_server.py       the listeners, and what all connections share
    arrivals.py            connections that are established and not served yet
    fair_line.py           a line in which addresses take turns
    hang_ups.py            who has closed a connection that nobody reads
    connection.py          one client's connection: frames in, responses out, in order
    rounds.py              one callback of the loop in which requests arrive
    large_frame.py         a frame that has a buffer of its own
    outbox.py              responses that are not written yet
    file_sending.py        slices of files, by sendfile
    tls_transport.py       TLS between a socket and its connection
    handshakes.py          which TLS handshakes are under way
    listener_tls.py        TLS of one listener
    certificates.py        the keys and certificates of all listeners, which are replaced while the broker runs
    expiring_certificates.py   warns of those that expire
    file_reading.py        slices of files, where TLS must encrypt them
    queued_bytes.py        bounds of what clients have begun to send, and who shares one
    logins.py              which clients have not logged in, and until when they may
    shares.py              which address uses most of something
    connection_limits.py, open_files.py   how many connections there may be

It knows no handler: `assembly.py` passes it the dispatcher.
"""
