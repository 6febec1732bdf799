"""Who may do what: ACLs, and decisions by them.

    authorizer.py   what the broker asks an authorizer

Everything here is values in, values out. Callers: `handlers/` ask, `server.py` makes the authorizer.
"""
