"""What the broker logs, and how.

    structured_logging.py   one event per line, as text on a terminal and as JSON elsewhere
    client_warnings.py      warnings about faulty clients, at a limited rate
    line_rate.py            how many lines of one kind are logged
    lasting_failure.py      a failure that lasts: when it begins, and then once a minute
    quiet_logs.py           what brokers log within a test, and the store within a command: warnings and errors
    printable.py            makes text from clients safe to print

Every room may use it.
"""
