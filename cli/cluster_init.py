"""`odradek cluster init`: the files with which several machines become one cluster.

For each machine it writes zoo.cfg and myid for Debian's package `zookeeper`, a server.properties, and the systemd units
that run both. Nothing is installed: the files say where they belong.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from odradek.broker.features.features import first_levels
from odradek.broker.settings.config import ConfigError
from odradek.cli.errors import CommandError
from odradek.cli.options import command

DESCRIPTION = """Write the configuration of a cluster: a folder for each machine, with the files of ZooKeeper and of the
broker, which both run on each of the machines. docs/cluster.md says how to go on."""

EXAMPLES = """  odradek cluster init --nodes node1,node2,node3
  odradek cluster init --nodes node1,node2,node3 --feature transaction.version=0
  odradek cluster init --nodes 10.0.0.1,10.0.0.2,10.0.0.3 --racks a,b,c --to /tmp/cluster
"""
MOST_REPLICAS = 3
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")

ZOO_CFG = """# /etc/zookeeper/conf/zoo.cfg on {host}
tickTime=2000
initLimit=10
syncLimit=5
dataDir=/var/lib/zookeeper
clientPort=2181
admin.enableServer=false
autopurge.snapRetainCount=3
autopurge.purgeInterval=24
{servers}
"""

SERVER_PROPERTIES = """# /etc/odradek/server.properties on {host}
broker.id={number}
{rack}{features}listeners=PLAINTEXT://{host}:9092
log.dirs=/var/lib/odradek
zookeeper.connect={connect}/odradek
zookeeper.session.timeout.ms=18000

# With these, a record that was acknowledged with acks=all survives the loss of any one machine.
default.replication.factor={replicas}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
"""

ZOOKEEPER_SERVICE = """# /etc/systemd/system/zookeeper.service
[Unit]
Description=ZooKeeper
After=network-online.target
Wants=network-online.target

[Service]
User=zookeeper
StateDirectory=zookeeper
ExecStart=/usr/share/zookeeper/bin/zkServer.sh start-foreground /etc/zookeeper/conf/zoo.cfg
SuccessExitStatus=143
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""

ODRADEK_SERVICE = """# /etc/systemd/system/odradek.service
[Unit]
Description=Odradek, a Kafka-compatible broker
After=network-online.target zookeeper.service
Wants=network-online.target

[Service]
User=odradek
StateDirectory=odradek
StateDirectoryMode=0700
ExecStart={program} serve --config /etc/odradek/server.properties
TimeoutStopSec=60
LimitNOFILE=100000
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""


def add_parser(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `init` to the actions of `cluster`."""
    parser = command(
        actions, "init", "write the configuration of a cluster", init, description=DESCRIPTION, examples=EXAMPLES
    )
    parser.add_argument(
        "--nodes", required=True, metavar="HOST,HOST,...", help="the machines, as the others reach them"
    )
    parser.add_argument("--racks", metavar="RACK,RACK,...", help="the rack of each machine, in the same order")
    parser.add_argument("--to", type=Path, default=Path("cluster"), metavar="DIR", help="default ./cluster")
    parser.add_argument(
        "--feature",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        dest="features",
        help="the level of a feature in the new cluster, instead of the highest; may be repeated",
    )
    parser.add_argument(
        "--program",
        default="/opt/odradek/bin/odradek",
        metavar="PATH",
        help="the odradek command on the machines (default /opt/odradek/bin/odradek)",
    )


def init(arguments: argparse.Namespace) -> None:
    """Writes the files and prints their paths."""
    hosts = _hosts(arguments.nodes)
    racks = arguments.racks.split(",") if arguments.racks else [""] * len(hosts)
    if len(racks) != len(hosts):
        raise CommandError(f"--racks has {len(racks)} names, but there are {len(hosts)} nodes")
    try:
        first_levels(None, arguments.features)
    except ConfigError as error:
        raise CommandError(f"--feature: {error}") from None
    target: Path = arguments.to
    if target.exists() and any(target.iterdir()):
        raise CommandError(f"{target} is not empty: give another folder with --to")
    for number, (host, rack) in enumerate(zip(hosts, racks, strict=True), 1):
        for name, text in _files(hosts, number, host, rack, arguments).items():
            path = target / host / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(path)


def _hosts(text: str) -> list[str]:
    hosts = text.split(",")
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise CommandError(f"--nodes: '{host}' is not a host name or an IPv4 address")
    if len(set(hosts)) != len(hosts):
        raise CommandError("--nodes: a machine is named twice")
    if len(hosts) < 3 or len(hosts) % 2 == 0:
        raise CommandError(
            "--nodes: ZooKeeper works while more than half of its servers do: name three machines, or five"
        )
    return hosts


def _files(hosts: Sequence[str], number: int, host: str, rack: str, arguments: argparse.Namespace) -> dict[str, str]:
    features = ",".join(arguments.features)
    replicas = min(MOST_REPLICAS, len(hosts))
    servers = "\n".join(f"server.{each}={name}:2888:3888" for each, name in enumerate(hosts, 1))
    return {
        "zoo.cfg": ZOO_CFG.format(host=host, servers=servers),
        "myid": f"{number}\n",
        "zookeeper.service": ZOOKEEPER_SERVICE,
        "server.properties": SERVER_PROPERTIES.format(
            host=host,
            number=number,
            rack=f"broker.rack={rack}\n" if rack else "",
            features=f"odradek.initial.features={features}\n" if features else "",
            connect=",".join(f"{name}:2181" for name in hosts),
            replicas=replicas,
            in_sync=replicas - 1,
        ),
        "odradek.service": ODRADEK_SERVICE.format(program=arguments.program),
    }
