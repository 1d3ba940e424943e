"""The switch between hosts: `python cluster_switch.py FD`, a program by itself, so that what the
test is busy with slows no packet down and the other way round.

FD is a socket of packets, on which it is told, each time with an answer, of a host with the TUN
device that comes along, `{"host": 3}`, or how things are from now on:
`{"lost": [[1, 3]], "late": [[3, 1, 0.05]]}`, what goes from host 1 to host 3 is dropped and what
goes back takes 50 ms longer. It ends when the other side does.
"""

import heapq
import json
import os
import selectors
import socket
import sys
import time
from contextlib import suppress

_PACKET = 1 << 16
_AT_ONCE = 64
"""Packets of one host, before the next one has its turn."""
_FROM, _TO = 15, 19
"""Where the last bytes of the addresses of an IPv4 packet stand: these are the hosts' numbers."""

Ends = tuple[int, int]


class Switch:
    def __init__(self) -> None:
        self._hosts: dict[int, int] = {}
        self._lost: set[Ends] = set()
        self._late: dict[Ends, float] = {}
        self._due: list[tuple[float, int, int, bytes]] = []
        self._waited = 0

    def obey(self, told: bytes, devices: list[int]) -> None:
        words = json.loads(told)
        if "host" in words:
            [self._hosts[words["host"]]] = devices
            return
        self._lost = {(here, there) for here, there in words["lost"]}
        self._late = {(here, there): late_s for here, there, late_s in words["late"]}

    def carry(self, device: int) -> None:
        """What a host has sent."""
        with suppress(OSError):  # there is no more, or the host is gone
            for _ in range(_AT_ONCE):
                packet = os.read(device, _PACKET)
                if packet[0] >> 4 == 4:
                    self._send((packet[_FROM], packet[_TO]), packet)

    def _send(self, ends: Ends, packet: bytes) -> None:
        if ends in self._lost or ends[1] not in self._hosts:
            return
        if late_s := self._late.get(ends):
            self._waited += 1  # those of one moment stay in their order
            late = (time.monotonic() + late_s, self._waited, ends[1], packet)
            heapq.heappush(self._due, late)
        else:
            self._deliver(ends[1], packet)

    def _deliver(self, host: int, packet: bytes) -> None:
        with suppress(OSError):  # lost, as packets are
            os.write(self._hosts[host], packet)

    def deliver_late(self) -> float | None:
        """What is due. Returns after how long the next is, if one waits."""
        while self._due:
            left_s = self._due[0][0] - time.monotonic()
            if left_s > 0:
                return left_s
            _, _, host, packet = heapq.heappop(self._due)
            self._deliver(host, packet)
        return None


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    switch = Switch()
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select(switch.deliver_late()):
                if key.fileobj is not control:
                    switch.carry(key.fd)
                    continue
                told, devices, _, _ = socket.recv_fds(control, _PACKET, 1)
                if not told:
                    return
                switch.obey(told, devices)
                for device in devices:
                    ready.register(device, selectors.EVENT_READ)
                control.send(b"done")


if __name__ == "__main__":
    main()
