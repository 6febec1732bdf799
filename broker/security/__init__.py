"""Who somebody is, and what they may do: logins, secrets and ACLs, of clients and of the broker as a client.

    jaas.py         JAAS configuration: sections of login modules with their options
    sasl/           logins of clients by SASL
    authorizer/     who may do what: ACLs, and decisions by them
    digest_md5.py   the client's side of SASL's DIGEST-MD5
    key_stores.py   key stores and trust stores: PEM, PKCS12
    cipher_suites.py    TLS versions and cipher suites by Java's names
    tls.py          TLS of a client and of a server, as an `ssl.SSLContext`
    certificate_fields.py   whose a certificate is, for which hosts, and from when until when
    principal_mapping.py    which user a client's certificate stands for
    authentication_counts.py    how many connections of a listener have authenticated
    certificate_authority.py    makes certificates for development

Everything here is values in, values out: callers read files and send bytes. No text of this room, neither an error nor
a `repr`, shows a secret. Callers: `metadata_store/zookeeper/`, `settings/`, `network/`, `handlers/`, `peers/`,
`cluster/`, `cli/certificates.py`.
"""
