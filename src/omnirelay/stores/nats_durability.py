"""What a stream survives, as its servers tell.

A server says over its monitoring port whether it syncs before it acknowledges; NATS itself tells it
only to the system account. What cannot be read is taken for the default, which syncs every two
minutes: a power cut then loses what was acknowledged since.
"""

import asyncio
import json
import urllib.error
import urllib.request

from nats.js.api import StreamInfo

from omnirelay.journal.backend import Durability
from omnirelay.stores.nats_address import NatsAddress

MONITOR_S = 2.0


async def durability_of(info: StreamInfo, address: NatsAddress) -> Durability:
    replicas = info.config.num_replicas or 1
    known = dict(await asyncio.gather(*(_syncs(url) for url in address.monitors)))
    unsure = [name for name in _servers(info) if not known.get(name)]
    is_async = info.config.persist_mode == "async"
    words = _sync_words(known, unsure)
    if is_async:
        words = "persist_mode async acknowledges before it writes"
    return Durability(
        not is_async or replicas > 1,
        not unsure and not is_async,
        replicas >= 3,
        f"JetStream file storage, {replicas} {'replica' if replicas == 1 else 'replicas'}, {words}",
    )


def _sync_words(known: dict[str, bool], unsure: list[str]) -> str:
    if not unsure:
        return "sync_interval always on every server of the stream"
    late = [name for name in unsure if name in known]
    if late:
        return (
            f"{', '.join(late)} sync only now and then: set `sync_interval: always` to survive "
            f"power loss"
        )
    return (
        f"sync_interval of {', '.join(unsure)} unknown: add ?monitor=http://host:8222 for each "
        f"server to the address"
    )


def _servers(info: StreamInfo) -> list[str]:
    """Names of the servers that hold the stream."""
    cluster = info.cluster
    if cluster is None:
        return ["the server"]
    names = [cluster.leader, *(peer.name for peer in cluster.replicas or ())]
    return [name for name in names if name] or ["the server"]


async def _syncs(url: str) -> tuple[str, bool]:
    """The server's name, and whether it syncs each write. A server that is silent promises
    nothing."""
    return await asyncio.to_thread(_ask, url)


def _ask(url: str) -> tuple[str, bool]:
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/varz", timeout=MONITOR_S) as answer:  # noqa: S310
            told = json.load(answer)
        return told["server_name"], bool(told["jetstream"]["config"].get("sync_always"))
    except (OSError, ValueError, KeyError, TypeError, urllib.error.URLError):
        return url, False
