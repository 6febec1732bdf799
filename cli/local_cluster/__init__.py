"""`make cluster`: a ZooKeeper and several brokers as processes of this machine, in the foreground.

    zookeeper_server.py   which ZooKeeper is installed, and its zoo.cfg
    processes.py          one process: starts it, waits until it is ready, ends it
    __main__.py           all of them, in order

Callers: the command line alone.
"""
