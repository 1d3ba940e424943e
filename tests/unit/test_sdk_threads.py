"""A loop on a thread of its own: whoever waits for something there is told, whenever it stops."""

import threading

from omnirelay.sdk.threads import LoopThread


class Gate:
    """A callback that holds the loop up until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(10)


async def seven() -> int:
    return 7


def test_what_ends_in_the_moment_of_a_stop_is_told_to_whoever_waits() -> None:
    thread = LoopThread("test")
    first, second = Gate(), Gate()
    thread.soon(first)
    assert first.reached.wait(10)
    found = thread.start(seven())  # its task begins one turn later, together with the stop
    thread.soon(second)
    first.opened.set()
    assert second.reached.wait(10)
    stopping = threading.Thread(target=thread.stop)
    stopping.start()
    while True:
        with thread._starting:
            if thread._is_over:
                break
    second.opened.set()
    stopping.join(10)
    assert found.result(5) == 7
