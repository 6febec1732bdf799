"""The `odradek` command. A subcommand is a module; it is imported when it is called.

    __main__.py        finds the subcommand
    options.py         options that several commands share
    serve.py           runs a broker
    topics.py, configs.py, groups.py, group_reset.py, transactions.py    administer a cluster
    features.py        shows features, raises and lowers their levels
    users.py, acls.py, acl_options.py                                    who may log in, and who may do what
    health.py          says whether a broker serves clients
    cluster.py, cluster_lines.py, cluster_watch.py                       show it
    cluster_reassign.py                                                  moves replicas
    cluster_init.py                                                      writes the configuration of a new one
    cluster_migrate.py                                                   makes one of a single node
    produce.py, consume.py                                               write and read records
    record.py, show.py, replay.py, compare.py                            recordings of requests and responses
    hex_input.py                                                         `show --hex`: bytes and JSON
    dump_log.py                                                          prints log files
    certificates.py                                                      makes certificates for development
    pipeline.py                                                          runs a job of the pipeline
    migration/         copies the metadata of a single node to ZooKeeper: `odradek cluster migrate`
    local_cluster/     a ZooKeeper and several brokers on this machine: `make cluster`
    docs.py            writes the generated pages of docs/: `make docs`
    help_format.py, tables.py, errors.py, extras.py

It is thin: over the broker's admin client and security, and the pipeline for its own commands.
"""
