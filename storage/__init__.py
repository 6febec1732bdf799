"""The logs of partitions on disk, in Kafka's formats. Synchronous, on one thread; what takes long is returned as a job.

    files.py             the disk: an interface, so that a test can pass a disk that is full or forgets
    linked_files.py      files of which several names share one content
    file_slice.py        bytes of a file that are sent without reading them
    file_names.py        the names of files and folders
    checkpoint.py        small text files, replaced as a whole
    log_config.py        the settings of a topic, as its log uses them
    log_offsets.py       offsets with their positions
    removal.py           removes files later, so that their readers can finish
    throttled_lines.py   logs repeated failures at a limited rate

The rooms, from below: `segment/` is one segment with its indexes, `producers/` the state of a partition's producers,
`log/` the log of one partition, `directories/` all logs of a broker. `cleaner/` compacts, `dump/` prints. Callers:
`broker`, and the `odradek` command (`dump/`).
"""
