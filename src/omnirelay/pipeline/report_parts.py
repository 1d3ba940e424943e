"""The report's pictures: each a function from plain rows to a section of the page."""

from collections.abc import Sequence
from typing import Any

from omnirelay.pipeline import report_svg as svg
from omnirelay.pipeline.report_text import (
    NONE,
    brief_moment,
    count,
    duration,
    moment,
    name,
    safe,
    table,
)

Row = dict[str, Any]  # Any: columns of mixed types, named by the queries of report_gather.py
Rows = Sequence[Row]
_ENDS = {"completed": "good", "failed": "bad", "expired": "warn", "released": "two"}


def section(title: str, about: str, body: str, *, wide: bool = False) -> str:
    style = ' class="wide"' if wide else ""
    return f'<section{style}><h2>{safe(title)}</h2><p class="soft">{about}</p>{body}</section>'


def nothing(why: str) -> str:
    return f"<p>{safe(why)}</p>"


def as_table(headings: list[str], rows: list[list[str]], *, numbers_from: int = 1) -> str:
    return (
        f"<details><summary>As a table</summary>"
        f"{table(headings, rows, numbers_from=numbers_from)}</details>"
    )


# -- over time ----------------------------------------------------------------------------------


def over_time(
    rows: Rows, drawn: Sequence[tuple[str, str, str]], *, title: str, is_duration: bool = False
) -> str:
    """`drawn`: (column, what it is called, style)."""
    shown = duration if is_duration else count
    values = [row[column] for row in rows for column, _, _ in drawn if row[column] is not None]
    top = max(values, default=0) or 1
    span = rows[-1]["at_ms"] - rows[0]["at_ms"]
    picture = svg.lines(
        [
            svg.Line(style, [(row["at_ms"], row[column]) for row in rows])
            for column, _, style in drawn
        ],
        top=top,
        label=f"{title}, from {moment(rows[0]['at_ms'])} to {moment(rows[-1]['at_ms'])} UTC; "
        f"highest {shown(top)}",
    )
    up = "".join(f"<span>{shown(top * share)}</span>" for share in (1, 0.5, 0))
    across = _across(rows[0]["at_ms"], rows[-1]["at_ms"], span)
    legend = "".join(f"<li>{_swatch(style)} {safe(called)}</li>" for _, called, style in drawn)
    cells = [
        [moment(row["at_ms"]), *(shown(row[column]) for column, _, _ in drawn)] for row in rows
    ]
    return (
        f'<figure><div class="chart"><div class="up" aria-hidden="true">{up}</div>{picture}'
        f'{across}</div><ul class="legend">{legend}</ul></figure>'
        f"{as_table(['UTC', *(called for _, called, _ in drawn)], cells)}"
    )


def _across(low: int, high: int, span: int) -> str:
    marks = [low] if low == high else [low, (low + high) // 2, high]
    said = "".join(f"<span>{brief_moment(one, span_ms=span)}</span>" for one in marks)
    return f'<div class="across" aria-hidden="true">{said}</div>'


def _swatch(style: str) -> str:
    line = f'<path class="line {style}" d="M1 5H29"/>'
    return f'<svg viewBox="0 0 30 10" aria-hidden="true">{line}</svg>'


# -- by shard and time --------------------------------------------------------------------------


def heat(rows: Rows, times: Sequence[int]) -> str:
    """Backpressure where there was any, else how many waited."""
    has_pressure = any(row["backpressure_ms"] for row in rows)
    column = "backpressure_ms" if has_pressure else "pending_max"
    shown = duration if has_pressure else count
    top = max((row[column] or 0 for row in rows), default=0) or 1
    by_shard: dict[str, dict[int, float]] = {}
    for row in rows:
        by_shard.setdefault(row["shard"], {})[row["at_ms"]] = row[column] or 0
    lanes = []
    for shard, cells in by_shard.items():
        highest = max(cells.values())
        shares = [
            (cells.get(at, 0) / top, f"{moment(at)}: {shown(cells.get(at, 0))}") for at in times
        ]
        picture = svg.cells(shares, label=f"{shard}: at most {shown(highest)}")
        lanes.append(_lane(name(shard), picture, shown(highest)))
    what = "Time under backpressure" if has_pressure else "Items waiting at most"
    table_rows = [[name(row["shard"]), moment(row["at_ms"]), shown(row[column])] for row in rows]
    across = _across(times[0], times[-1], times[-1] - times[0])
    return (
        f'<p class="soft">{what}; the darkest is {shown(top)}.</p>'
        f'<figure><div class="lanes">{"".join(lanes)}{across}</div></figure>'
        f"{as_table(['Shard', 'UTC', what], table_rows, numbers_from=2)}"
    )


def _lane(label: str, picture: str, figure: str) -> str:
    return (
        f'<div class="lane"><span>{label}</span>{picture}<span class="figure">{figure}</span></div>'
    )


# -- ranked -------------------------------------------------------------------------------------


def slowest(rows: Rows) -> str:
    top = max((row["wait_mean_ms"] for row in rows), default=0) or 1
    lanes = [
        _lane(
            name(f"{row['resource_type']}:{row['resource_id']}"),
            svg.bar(
                [("one", row["wait_mean_ms"] / top)],
                label=f"{row['resource_type']}:{row['resource_id']} waits "
                f"{duration(row['wait_mean_ms'])} on average",
            ),
            duration(row["wait_mean_ms"]),
        )
        for row in rows
    ]
    cells = [
        [
            name(row["resource_type"]),
            name(row["resource_id"]),
            duration(row["wait_mean_ms"]),
            duration(row["wait_max_ms"]),
            duration(row["hold_mean_ms"]),
            count(row["grants"]),
            count(row["retries"]),
            count(row["dead_letters"]),
            count(row["contention"]),
            count(row["churn"]),
        ]
        for row in rows
    ]
    headings = ["Type", "Id", "Mean wait", "Longest", "Mean hold", "Grants", "Retries", "Dead"]
    headings += ["Waiting for each held", "Grants for each item"]
    return _lanes(lanes) + as_table(headings, cells, numbers_from=2)


def _lanes(lanes: list[str]) -> str:
    return f'<figure><div class="lanes">{"".join(lanes)}</div></figure>'


def peers(rows: Rows) -> str:
    top = max((row["grants"] for row in rows), default=0) or 1
    lanes = []
    for row in rows:
        parts = [(style, (row[end] or 0) / top) for end, style in _ENDS.items()]
        label = f"{row['peer_id']}: {count(row['grants'])} grants, {count(row['expired'])} expired"
        mark = ' <strong title="suspected zombie">zombie?</strong>' if row["zombie"] else ""
        lanes.append(
            _lane(name(row["peer_id"]) + mark, svg.bar(parts, label=label), count(row["grants"]))
        )
    cells = [
        [
            name(row["peer_id"]),
            *(count(row[column]) for column in ("grants", *_ENDS, "refused")),
            duration(row["hold_mean_ms"]),
            "yes" if row["zombie"] else "no",
        ]
        for row in rows
    ]
    ends = [end.capitalize() for end in _ENDS]
    headings = ["Peer", "Grants", *ends, "Refused", "Mean hold", "Zombie?"]
    return _lanes(lanes) + _ends_legend() + as_table(headings, cells)


def _ends_legend() -> str:
    entries = "".join(
        f'<li><svg viewBox="0 0 30 10" aria-hidden="true"><rect class="{style}" width="30" '
        f'height="10"/></svg> {end}</li>'
        for end, style in _ENDS.items()
    )
    return f'<ul class="legend">{entries}</ul>'


def principals(rows: Rows) -> str:
    """Rows of (principal, action, times), those of one principal together."""
    sums: dict[str, int] = {}
    for row in rows:
        sums[row["principal"]] = sums.get(row["principal"], 0) + row["times"]
    top = max(sums.values(), default=0) or 1
    lanes = [
        _lane(
            name(who),
            svg.bar([("one", times / top)], label=f"{who}: {count(times)} events"),
            count(times),
        )
        for who, times in sums.items()
    ]
    cells = [
        [
            name(row["principal"]),
            safe(row["action"]),
            count(row["times"]),
            count(row["resources"]),
            moment(row["first_ms"]),
            moment(row["last_ms"]),
        ]
        for row in rows
    ]
    headings = ["Principal", "Did", "Times", "Resources", "First", "Last"]
    return _lanes(lanes) + as_table(headings, cells, numbers_from=2)


# -- one resource -------------------------------------------------------------------------------


def timeline(rows: Rows, now_ms: int) -> str:
    """Who held it: a lane a peer, those who came first on top. An open hold goes on to the end."""
    low = min(row["from_ms"] for row in rows)
    high = max(now_ms, *(row["until_ms"] or row["from_ms"] for row in rows))
    whole = (high - low) or 1
    lanes: dict[str, list[svg.Span]] = {}
    for row in rows:
        until = row["until_ms"] or high
        lanes.setdefault(row["peer_id"] or row["principal"] or "?", []).append(
            svg.Span(
                _ENDS.get(row["outcome"] or "", "three" if row["outcome"] else "one"),
                (row["from_ms"] - low) / whole,
                (until - low) / whole,
                f"fence {row['fence']}, {moment(row['from_ms'])} for "
                f"{duration(until - row['from_ms'])}, {row['outcome'] or 'still held'}",
            )
        )
    drawn = [
        _lane(
            name(who), svg.spans(held, label=f"{who} held it {len(held)} times"), count(len(held))
        )
        for who, held in lanes.items()
    ]
    across = _across(low, high, high - low)
    cells = [
        [
            count(row["fence"]),
            name(row["peer_id"] or NONE),
            name(row["principal"] or NONE),
            moment(row["from_ms"]),
            moment(row["until_ms"]),
            safe(row["outcome"] or "still held"),
        ]
        for row in rows
    ]
    headings = ["Fence", "Peer", "Principal", "From", "Until", "Outcome"]
    return (
        f'<figure><div class="lanes">{"".join(drawn)}{across}</div></figure>{_ends_legend()}'
        f"{as_table(headings, cells, numbers_from=9)}"
    )
