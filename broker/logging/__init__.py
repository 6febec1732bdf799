"""What the broker logs, and how.

    structured_logging.py   one event per line, as text on a terminal and as JSON elsewhere
    client_warnings.py      warnings about faulty clients, at a limited rate
    printable.py            makes text from clients safe to print

Every room may use it.
"""
