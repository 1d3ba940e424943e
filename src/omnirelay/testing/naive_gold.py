"""The gold tables and the lineage, added up the slow way from what `naive_tables` saw."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import product
from math import ceil
from typing import Any

from omnirelay.journal.format import Envelope
from omnirelay.lease.records import Followed
from omnirelay.pipeline.lineage_ids import run_id
from omnirelay.testing.naive_tables import Moment, NaiveShard, Row, Tables

_MINUTE_MS = 60_000
_TIMES = ("wait", "hold")


def naive_tables(journals: dict[str, list[Envelope]]) -> Tables:
    """Every silver and gold table of these shards."""
    found: Tables = defaultdict(list)
    for name, envelopes in journals.items():
        shard = NaiveShard(name)
        shard.fold(envelopes)
        for table, rows in _TABLES.items():
            found[table] += rows(shard)
    return dict(found)


def _leases(shard: NaiveShard) -> list[Row]:
    return [row for row in shard.every_attempt() if row["fence"] is not None]


def _ownership(shard: NaiveShard) -> list[Row]:
    same = "shard resource_type resource_id fence peer_id principal outcome sequence_id state"
    return [
        {name: row[name] for name in same.split()}
        | {"from_at": row["granted_at"], "from_sequence": row["granted_sequence"]}
        | {"until_at": row["ended_at"], "until_sequence": row["ended_sequence"]}
        for row in _leases(shard)
    ]


# -- lineage --------------------------------------------------------------------------------------


def _named(attributes: dict[str, str] | None, name: str) -> list[str]:
    text = (attributes or {}).get(name, "")
    return [one.strip() for one in text.split(",") if one.strip()]


def _lineage(shard: NaiveShard) -> list[Row]:
    made: list[tuple[int, str, str]] = []
    rows = []
    for payload, lease in shard.seen.runs:
        resource = f"{payload.resource_type}:{payload.resource_id}"
        inputs = _named(payload.attributes, "lineage.inputs")
        outputs = _named(payload.attributes, "lineage.outputs")
        edges: dict[tuple[str, str], str] = {}
        for name in inputs:
            makers = [m for at, n, m in made if n == name and at < lease["granted_sequence"]]
            edges |= {(maker, resource): "order" for maker in makers[-1:]}
        if inputs or outputs:
            pairs = product(inputs or [resource], outputs or [resource])
            edges |= dict.fromkeys(pairs, "attributes")
        rows += [_edge(lease, pair, why) for pair, why in edges.items() if pair[0] != pair[1]]
        made += [(lease["ended_sequence"], name, resource) for name in outputs]
    return rows


def _edge(lease: Row, pair: tuple[str, str], relation: str) -> Row:
    whose = {name: lease[name] for name in ("shard", "sequence_id", "attempt", "fence")}
    return whose | {
        "sequence": lease["ended_sequence"],
        "run_id": run_id(**whose),
        "source": pair[0],
        "target": pair[1],
        "relation": relation,
        "principal": lease["ended_by"],
        "at": lease["ended_at"],
    }


# -- gold -----------------------------------------------------------------------------------------


def _windows(shard: NaiveShard) -> list[Row]:
    ended: dict[tuple[str, int], list[Row]] = defaultdict(list)
    granted: dict[tuple[str, int], int] = defaultdict(int)
    enqueued: dict[tuple[str, int], int] = defaultdict(int)
    for row in _leases(shard):
        granted[row["resource_type"], _minute(row["granted_at"])] += 1
        if row["outcome"] is not None:
            ended[row["resource_type"], _minute(row["ended_at"])].append(row)
    for how, payload, m in shard.seen.arrivals:
        if how == "enqueue":
            enqueued[payload.resource_type, _minute(m.at)] += 1
    lived = {_minute(m.at) for m in shard.seen.moments}
    lived |= {start for one in _pauses(shard) for start in _minutes_of(one)}
    typed = {**ended, **granted, **enqueued}
    silent = {("", start): None for start in lived - {start for _, start in typed}}
    rows = []
    for key in {**typed, **silent}:
        kind, start = key
        counted = {"enqueued": enqueued[key], "granted": granted[key]} | _of_ended(ended[key])
        moments = [m for m in shard.seen.moments if _minute(m.at) == start]
        is_newest = start == max(lived)
        rows.append(
            {"shard": shard.name, "resource_type": kind, "window_start": start}
            | {"window_end": start + _MINUTE_MS}
            | {"pending_max": max((m.pending for m in moments), default=None)}
            | {"active_max": max((m.active for m in moments), default=None)}
            | {"backpressure_ms": _paused_ms(shard, start)}
            | {"replication_lag_ms": _lag_ms(moments)}
            | {"state": "open" if is_newest else "closed"}
            | {f"{what}s": _sorted(ended[key], what) if is_newest else None for what in _TIMES}
            | counted
        )
    return rows


def _of_ended(leases: list[Row]) -> Row:
    waits, holds = (_sorted(leases, what) for what in _TIMES)
    good = sum(wait <= 60_000 for wait in waits)
    row: Row = {
        name: _count(leases, "outcome", name)
        for name in ("completed", "failed", "expired", "released")
    }
    row |= {"retries": _count(leases, "disposition", "requeued")}
    row |= {"dead_letters": _count(leases, "disposition", "deadLettered")}
    row |= {"slo_total": len(waits), "slo_good": good}
    row |= {"burn": (len(waits) - good) * 1.0 / len(waits) / 0.01 if waits else 0.0}
    for what, values in (("wait", waits), ("hold", holds)):
        for percent in (50, 95, 99):
            place = ceil(percent * len(values) / 100) - 1
            row[f"{what}_p{percent}_ms"] = values[place] if values else None
    return row


def _lag_ms(moments: Iterable[Moment]) -> int | None:
    told = [m.record.lag_ms for m in moments if isinstance(m.record, Followed)]
    return max(told, default=None)


def _pauses(shard: NaiveShard) -> list[Row]:
    return [row for row in shard.backpressure() if row["from_at"] is not None]


def _paused_ms(shard: NaiveShard, start: int) -> int:
    return sum(
        max(0, min(row["until_at"], start + _MINUTE_MS) - max(row["from_at"], start))
        for row in _pauses(shard)
    )


def _minutes_of(pause: Row) -> range:
    return range(_minute(pause["from_at"]), pause["until_at"] + 1, _MINUTE_MS)


def _sorted(leases: list[Row], what: str) -> list[int]:
    return sorted(row[f"{what}_ms"] for row in leases)


def _minute(ms: int) -> int:
    return ms - ms % _MINUTE_MS


def _count(rows: Iterable[Row], name: str, value: object) -> int:
    return sum(row[name] == value for row in rows)


def _sum(rows: Iterable[Row], name: str) -> int:
    return sum(row[name] or 0 for row in rows)


def _grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def _peers(shard: NaiveShard) -> list[Row]:
    rows = []
    for peer, leases in _grouped(_leases(shard), lambda row: row["peer_id"] or "").items():
        by = ("completed", "failed", "expired", "released")
        ends = {name: _count(leases, "outcome", name) for name in by}
        count, held = sum(ends.values()), [r for r in leases if r["outcome"] in by]
        newest = max(leases, key=lambda row: row["granted_sequence"])
        seen = [row["granted_at"] for row in leases]
        seen += [row["last_heartbeat_at"] for row in leases if row["last_heartbeat_at"]]
        own = ("completed", "failed", "released")
        seen += [row["ended_at"] for row in leases if row["outcome"] in own]
        hold = _sum(held, "hold_ms")
        rows.append(
            {"shard": shard.name, "peer_id": peer, "principal": newest["principal"]}
            | {"grants": len(leases), "heartbeats": _sum(leases, "heartbeats"), **ends}
            | {"hold_ms_sum": hold, "hold_mean_ms": hold // count if count else None}
            | {"first_seen_at": min(seen), "last_seen_at": max(seen)}
            | {"refused": shard.seen.refused[peer]}
            | {"suspected_zombie": shard.seen.refused[peer] > 0 or _expires(ends["expired"], count)}
        )
    return rows


def _expires(expired: int, ended: int) -> bool:
    return expired > 0 and expired / ended >= 0.2


def _principals(shard: NaiveShard) -> list[Row]:
    found = defaultdict(list)
    for *key, moment in shard.seen.touches:
        found[tuple(key)].append(moment)
    names = ("principal", "resource_type", "resource_id", "action")
    return [
        {"shard": shard.name, **dict(zip(names, key, strict=True)), "times": len(moments)}
        | {"first_at": moments[0].at, "last_at": moments[-1].at}
        | {"first_sequence": moments[0].sequence, "last_sequence": moments[-1].sequence}
        for key, moments in found.items()
    ]


def _resources(shard: NaiveShard) -> list[Row]:
    arrived: dict[tuple[str, str], int] = defaultdict(int)
    for _, payload, _ in shard.seen.arrivals:
        arrived[payload.resource_type, payload.resource_id] += 1
    every = _grouped(shard.every_attempt(), lambda row: (row["resource_type"], row["resource_id"]))
    rows = []
    for key, items in arrived.items():
        leases = [row for row in every[key] if row["fence"] is not None]
        waiting = [row["queued_at"] for row in every[key] if row["fence"] is None]
        waited, held = _sum(leases, "wait_ms"), _sum(leases, "hold_ms")
        rows.append(
            {"shard": shard.name, "resource_type": key[0], "resource_id": key[1], "items": items}
            | {"grants": len(leases), "retries": _count(leases, "disposition", "requeued")}
            | {"expiries": _count(leases, "outcome", "expired")}
            | {"failures": _count(leases, "outcome", "failed")}
            | {"dead_letters": _count(leases, "disposition", "deadLettered")}
            | {"wait_ms_sum": waited, "hold_ms_sum": held}
            | {"contention": waited / held if held > 0 else None, "churn": len(leases) / items}
            | {"wait_max_ms": max((row["wait_ms"] for row in leases), default=None)}
            | {"oldest_waiting_at": min((at for at in waiting if at is not None), default=None)}
        )
    return rows


_TABLES: dict[str, Callable[[NaiveShard], list[Row]]] = {
    "lease_attempts": NaiveShard.every_attempt,
    "items": lambda shard: shard.items,
    "resource_ownership": _ownership,
    "epochs": lambda shard: shard.epochs,
    "backpressure": NaiveShard.backpressure,
    "lineage_edges": _lineage,
    "slo_by_window": _windows,
    "peer_health": _peers,
    "principal_activity": _principals,
    "hot_resources": _resources,
}
