"""Virtual time: a test advances the time of a broker or a cluster, and everything that falls due happens at once.

    virtual_time.py    the time of all brokers of one test: their clock, and when their calls are made
    advance.py         one advance: from deadline to deadline
    schedule.py        the calls that are ready, or due, in order; the simulation has one, too
    idle_runs.py       leaves out the runs of periodic work that would do nothing
    under_way.py       what a broker waits for that needs no time to pass
    members.py         pauses the sessions of group members during an advance
    state.py           what there is at a broker, for the error of a condition that was not reached
    controls.py        `advance` and `advance_until` of brokers and clusters

Between two advances virtual time flows as wall time does. Clients live in wall time: a fetch that may wait for half a
second is answered after half a second, whether the test advances or not.

During an advance virtual time does not flow. It stands still until nothing is left to do: no callback of a broker is
ready, no function runs in a thread, no child process works, nothing is on its way between two brokers. Then it jumps to
the next deadline of any broker. So deadlines are met to the microsecond and in order, however slow the machine is.

Callers: `one_broker.py`, `in_process_cluster.py`, and what they start.
"""
