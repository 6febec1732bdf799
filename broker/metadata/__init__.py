"""What this broker knows of the cluster.

    metadata_cache.py   brokers, topics, partitions and settings, as the controller has sent them
    new_topic.py        topics and partitions that somebody wants to have
    administration.py   the interface by which handlers ask the controller
    topic_names.py      which names are valid
    kafka_uuid.py       ids of topics and clusters

`cluster` writes the cache; everything above this room reads it.
"""
