"""Connections whose other side is gone without a word: its machine lost its power or its network,
and says nothing for ever. The system can be told to ask."""

import socket


def ask_whether_alive(line: socket.socket, *, first_s: int, every_s: int, times: int) -> None:
    """After `first_s` without a word, and then `times` more; an end of the connection if none is
    answered. The other side's system answers, however busy its program is."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    _set(line, "TCP_KEEPIDLE", first_s)
    _set(line, "TCP_KEEPINTVL", every_s)
    _set(line, "TCP_KEEPCNT", times)


def expect_answers(line: socket.socket, silence_s: float) -> None:
    """For a caller: nobody has to wait for much longer than that for one that is gone, neither for
    an answer nor to get rid of what it says."""
    each_s = max(1, round(silence_s / 3))
    ask_whether_alive(line, first_s=each_s, every_s=each_s, times=2)
    _set(line, "TCP_USER_TIMEOUT", round(silence_s * 1000))


def _set(line: socket.socket, name: str, value: int) -> None:
    option = getattr(socket, name, None)  # not every system has all of them
    if option is not None:
        line.setsockopt(socket.IPPROTO_TCP, option, value)
