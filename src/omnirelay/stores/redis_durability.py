"""What a Redis server states about its writes, read from itself."""

from omnirelay.journal.backend import Durability
from omnirelay.model.errors import OutcomeUnknown, Unavailable
from omnirelay.stores.redis_link import RedisLink

_ASKED = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory",
    "maxmemory-policy",
)
FAILOVER = "a failover may lose what was acknowledged"


async def durability(link: RedisLink) -> Durability:
    """Replication is asynchronous and WAIT promises nothing about who is promoted, so the loss of
    the node is never survived for certain."""
    try:
        answer = await link.ask(lambda client: client.config_get(*_ASKED))
        told = {_text(key): _text(value) for key, value in answer.items()}
    except OutcomeUnknown:
        raise
    except Unavailable as error:
        return Durability(False, False, False, f"CONFIG cannot be read: {error.message}")
    if missing := [name for name in _ASKED if name not in told]:
        return Durability(False, False, False, f"CONFIG does not show {', '.join(missing)}")
    said = ", ".join(f"{name}={told[name]}" for name in _ASKED)
    if told["maxmemory"] != "0" and told["maxmemory-policy"].startswith("allkeys"):
        return Durability(False, False, False, f"it may evict the journal: {said}")
    logs = told["appendonly"] == "yes"
    # `everysec` puts a write off while a sync is under way, so it may still be in its memory.
    writes = logs and told["appendfsync"] in ("always", "no")
    rests = told["no-appendfsync-on-rewrite"] == "yes"
    syncs = logs and told["appendfsync"] == "always" and not rests
    return Durability(writes, syncs, False, f"{said}; {FAILOVER}")


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
