"""One event on one line."""

from omnirelay.cli.saying import plain
from omnirelay.journal.events import Event


def event_in_words(event: Event) -> str:
    time = event.timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    facts = [
        f"{name} {plain(value)}"
        for name, value in (
            ("item", event.sequence_id),
            ("attempt", event.attempt),
            ("fence", event.fence),
            ("by", event.peer_id),
            ("epoch", event.epoch if event.event_type == "EpochStarted" else None),
            ("->", event.disposition),
            ("items", None if event.items is None else len(event.items)),
        )
        if value is not None
    ]
    if event.payload is not None:
        facts.append(plain(f"{event.payload.resource_type}/{event.payload.resource_id}"))
    if event.event_type == "Refused" and event.error is not None:
        facts.append(plain(event.error.message))
    if event.event_type == "Followed":
        reader, behind, ms = (event.metadata[name] for name in ("reader", "sequence_lag", "lag_ms"))
        facts.append(plain(f"{reader} is {behind} events and {ms} ms behind"))
    return (
        f"{event.sequence_number:>8}  {time}  {event.event_type:<15}  {'  '.join(facts)}".rstrip()
    )
