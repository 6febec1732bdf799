"""`make cluster-demo`: three brokers that fail under a producer with acks=all, drawn as SVG.

    clients.py   the producer and the consumer
    samples.py   the state of the partition, time and again
    picture.py   draws what was recorded

Nothing else imports it.
"""
