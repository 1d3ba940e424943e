"""Rows of a report as Spark would give them, with names that nobody should choose."""

from random import Random

from omnirelay.pipeline.report_page import Pictures
from omnirelay.pipeline.report_parts import Row

START = 1_760_000_000_000
HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><style>body{display:none}</style>",
    "</title></svg><script>alert(2)</script>",
    "w" * 1500,
    "\u202eshecret\u202c שלום עולם مرحبا",
    "🙂👩‍👩‍👧‍👦 emoji",
    "line\nbreak\x00\x07&amp;{{t}}",
    "https://tracker.example/pixel.png",
)
OUTCOMES = ("completed", "failed", "expired", "released", "drained", None)


def hostile_pictures(steps: int = 240) -> Pictures:
    chance = Random(7)
    times = tuple(range(START, START + 24 * 600_000, 600_000))
    ranked = range(len(HOSTILE))
    rows: dict[str, list[Row]] = {
        "windows": [window(chance, at) for at in range(steps)],
        "heat": [
            {
                "shard": shard,
                "at_ms": at,
                "backpressure_ms": chance.randrange(9999),
                "pending_max": 5,
            }
            for shard in HOSTILE
            for at in times
        ],
        "slowest": [slow(chance, at) for at in ranked],
        "peers": [peer(chance, at) for at in ranked],
        "principals": [
            {
                "principal": HOSTILE[at],
                "action": action,
                "times": chance.randrange(1, 10**9),
                "resources": 3,
                "first_ms": START,
                "last_ms": START + 9,
            }
            for at in ranked
            for action in ("Enqueue", HOSTILE[0])
        ],
        "timeline": [hold(chance, number) for number in range(120)],
        "runs": [
            {
                "run_id": "r",
                "ended_ms": START,
                "kind": "full",
                "events": 123456,
                "findings": 2,
                "verdict": HOSTILE[0],
            }
        ],
        "findings": [
            {
                "check": "gap",
                "severity": "error",
                "shard": one,
                "sequence": 4,
                "event_type": "x",
                "message": one,
            }
            for one in HOSTILE
        ],
        "positions": [{"table": "gold/x", "shard": one, "sequence": 2**53} for one in HOSTILE],
    }
    more = {"heat": 3, "timeline": 1000}
    return Pictures(rows, times=times, resource=(HOSTILE[0], HOSTILE[5]), more=more)


def window(chance: Random, at: int) -> Row:
    enqueued = chance.randrange(10_000)
    waits = sorted(chance.randrange(100_000) for _ in range(3))
    return {
        "at_ms": START + at * 60_000,
        "enqueued": enqueued,
        "granted": enqueued,
        "completed": enqueued // 2,
        "failed": chance.randrange(50),
        "expired": chance.randrange(9),
        "retries": 3,
        "dead_letters": 1,
        "wait_p50_ms": waits[0],
        "wait_p95_ms": waits[1],
        "wait_p99_ms": None if at % 17 == 3 else waits[2],
        "replication_lag_ms": chance.randrange(9_000) if at % 2 else None,
        "burn": chance.random() * 3,
    }


def slow(chance: Random, at: int) -> Row:
    return {
        "resource_type": "table",
        "resource_id": HOSTILE[at],
        "grants": chance.randrange(1, 999),
        "retries": 1,
        "dead_letters": 0,
        "wait_max_ms": 99_999_999,
        "wait_mean_ms": chance.random() * 10**6,
        "hold_mean_ms": None,
        "contention": None,
        "churn": chance.random() * 3,
    }


def peer(chance: Random, at: int) -> Row:
    ends = {one: chance.randrange(100) for one in ("completed", "failed", "expired", "released")}
    whole = sum(ends.values())
    return {
        "peer_id": HOSTILE[at],
        "grants": whole,
        **ends,
        "refused": at,
        "hold_mean_ms": 5.5,
        "zombie": at == 2,
    }


def hold(chance: Random, number: int) -> Row:
    start = START + number * 40_000
    outcome = OUTCOMES[number % len(OUTCOMES)]
    return {
        "fence": number,
        "peer_id": HOSTILE[number % len(HOSTILE)] if number % 7 else None,
        "principal": HOSTILE[3],
        "outcome": outcome,
        "sequence_id": number,
        "from_ms": start,
        "until_ms": None if outcome is None else start + chance.randrange(60_000),
    }
