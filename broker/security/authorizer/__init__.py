"""Who may do what: ACLs, and decisions by them.

    authorizer.py       what the broker asks an authorizer
    acl.py              what an ACL says, and filters
    name_patterns.py    which names a set of patterns matches
    acl_authorizer.py   the decisions

Everything here is values in, values out. Callers: `handlers/` ask, `cluster/` reads the ACLs from the metadata store,
`broker_security.py` makes the authorizer.
"""
