"""What runs beside the requests, and how long work is cut into steps.

    background.py   owns every thread, task and periodic job of a broker, and ends them
    tasks.py        the interfaces of it that other rooms use; a coroutine that becomes a task only if it waits
    stepwise.py     work as a generator that yields where other work may run
    turns.py        runs one step of one piece of work in each turn of the loop

The lowest room of the broker: every room may use it.
"""
