"""Which address uses most of something: what is remembered is what a sum over all says."""

from __future__ import annotations

import random

from odradek.broker.network.shares import Shares, origin_of


def test_an_address_of_ipv4_counts_alone_and_one_of_ipv6_with_its_network() -> None:
    assert origin_of("10.0.0.1") == "10.0.0.1"
    assert origin_of("2001:db8::1") == origin_of("2001:db8:0:0:ffff::2") != origin_of("2001:db8:0:1::1")
    assert origin_of("fe80::1%eth0") == origin_of("fe80::2%eth1")
    assert origin_of("") == ""


def test_the_greediest_share_and_the_total_are_right_after_any_changes() -> None:
    chance, shares, sizes = random.Random(7), Shares[int](), dict[int, int]()
    for _ in range(3000):
        user = chance.randrange(40)
        if chance.random() < 0.4:
            shares.remove(user)
            sizes.pop(user, None)
        else:
            size = chance.randrange(100)
            assert shares.use(user, f"10.0.0.{user % 7}", size) == size - sizes.get(user, 0)
            sizes[user] = size
        totals = [sum(size for user, size in sizes.items() if user % 7 == host) for host in range(7)]
        assert shares.total == sum(totals)
        assert list(shares) == list(sizes)
        if sizes and chance.random() < 0.5:
            assert shares.greediest.total == max(totals)


def test_draining_takes_the_oldest_of_the_address_that_uses_most_then() -> None:
    shares = Shares[str]()
    for user, host, size in (("a", "1", 5), ("b", "2", 4), ("c", "2", 4), ("d", "1", 2)):
        shares.use(user, host, size)
    assert list(shares.drained()) == ["b", "a", "c", "d"]
    assert (len(shares), shares.total) == (0, 0)
