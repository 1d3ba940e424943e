"""One page that carries everything with it: no script, no request, one style sheet inside."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.resources import files

import msgspec

from omnirelay.pipeline import report_parts as parts
from omnirelay.pipeline.report_parts import Row, Rows, nothing, section
from omnirelay.pipeline.report_text import NONE, count, moment, name, safe, table

NO_WINDOWS = "The table slo_by_window is not there yet, or empty."


class Pictures(msgspec.Struct, frozen=True):
    """What the page shows: for each picture its rows, few enough to be drawn."""

    rows: Mapping[str, Rows]
    step_ms: int = 60_000
    """How much time a step of the other pictures takes."""
    times: tuple[int, ...] = ()
    """The steps of the heat map."""
    resource: tuple[str, str] | None = None
    """Whose timeline is drawn."""
    more: Mapping[str, int] = {}
    """How many rows a picture leaves out, where it does."""

    def of(self, picture: str) -> Rows:
        return self.rows.get(picture, ())


def page(pictures: Pictures, *, made_ms: int, place: str) -> str:
    style = files("omnirelay.pipeline").joinpath("assets", "report.css").read_text("utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    # Nothing on the page may load, run or be styled but by this one sheet, whatever a name says.
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = "".join(make(pictures) for make in _SECTIONS)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        # Else a browser asks its server for an icon.
        '<link rel="icon" href="data:,">'
        f"<title>OmniRelay report</title><style>{style}</style></head><body>"
        f"<header><h1>Leases, as the journal tells them</h1>"
        f'<p class="soft">{_span(pictures)} Made {moment(made_ms)} UTC from {name(place)}.</p>'
        f"{_verdict(pictures)}{_tiles(pictures)}</header>"
        f"<main>{sections}</main>"
        "<footer>All times are UTC. Pictures show at most a few hundred steps; where many minutes "
        "share a step, its worst minute is drawn.</footer></body></html>\n"
    )


def _span(pictures: Pictures) -> str:
    rows = pictures.of("windows")
    if not rows:
        return ""
    return f"{moment(rows[0]['at_ms'])} to {moment(rows[-1]['at_ms'])}."


# -- at the top ---------------------------------------------------------------------------------


def _verdict(pictures: Pictures) -> str:
    runs = pictures.of("runs")
    if not runs:
        return (
            '<p class="verdict warn">Not audited: <code>omnirelay pipeline audit</code> does.</p>'
        )
    run = runs[0]
    number = run["findings"]
    found = f"{count(number)} finding{'s' if number > 1 else ''}" if number else "nothing found"
    behind = _unaudited(pictures)
    style = "bad" if number else "warn" if behind else "good"
    return (
        f'<p class="verdict {style}">Audit: {safe(run["verdict"])}, {found}; audited '
        f"{moment(run['ended_ms'])}, {count(run['events'])} events.{behind}</p>"
    )


def _unaudited(pictures: Pictures) -> str:
    """What is newer than the verdict, which does not speak of it."""
    rows = pictures.of("unaudited")
    if not rows:
        return ""
    places = [
        f"{name(row['shard'])} up to {row['looked']:,} of {row['sequence']:,}"
        if row["looked"]
        else f"nothing of {name(row['shard'])}"
        for row in rows
    ]
    left = pictures.more.get("unaudited", 0)
    places += [f"{count(left)} more shards in part"] if left else []
    return f" The tables have gone on since: it looked at {', '.join(places)}."


_TILES = ("enqueued", "granted", "completed", "failed", "expired", "retries", "dead_letters")


def _tiles(pictures: Pictures) -> str:
    rows = pictures.of("windows")
    if not rows:
        return ""
    shown = "".join(
        f"<div><dt>{one.replace('_', ' ')}</dt><dd>{count(sum(row[one] or 0 for row in rows))}</dd>"
        f"</div>"
        for one in _TILES
    )
    return f'<dl class="tiles">{shown}</dl>'


# -- the pictures -------------------------------------------------------------------------------


def _throughput(pictures: Pictures) -> str:
    drawn = [
        ("enqueued", "enqueued", "two"),
        ("completed", "completed", "one"),
        ("failed", "failed or expired", "bad"),
    ]
    rows = [
        {**row, "failed": (row["failed"] or 0) + (row["expired"] or 0)}
        for row in pictures.of("windows")
    ]
    body = parts.over_time(rows, drawn, title="Throughput") if rows else nothing(NO_WINDOWS)
    return section("Throughput", f"Items in {pictures.step_ms // 60_000} min.", body)


def _wait(pictures: Pictures) -> str:
    drawn = [
        ("wait_p50_ms", "half waited less", "one"),
        ("wait_p95_ms", "95 % waited less", "two"),
        ("wait_p99_ms", "99 % waited less", "three"),
    ]
    rows = pictures.of("windows")
    body = (
        parts.over_time(rows, drawn, title="Wait", is_duration=True)
        if rows
        else nothing(NO_WINDOWS)
    )
    return section(
        "Wait", "From being available to being leased; the worst minute of a step.", body
    )


def _burn(pictures: Pictures) -> str:
    rows = pictures.of("windows")
    drawn = [("burn", "burn", "one"), ("budget", "what the objective allows", "bad")]
    shown = [{**row, "budget": 1.0} for row in rows]
    body = parts.over_time(shown, drawn, title="Error budget burn") if rows else nothing(NO_WINDOWS)
    about = "Share of waits that were too long over the share that is allowed: above 1 is too much."
    return section("SLO burn", about, body)


def _heat(pictures: Pictures) -> str:
    rows = pictures.of("heat")
    body = parts.heat(rows, pictures.times) if rows else nothing(NO_WINDOWS)
    return section("Where it was tight", _more(pictures, "heat", "shards"), body)


def _lag(pictures: Pictures) -> str:
    """Not for a node that has no readers."""
    rows = pictures.of("windows")
    if all(row["replication_lag_ms"] is None for row in rows):
        return ""
    drawn = [("replication_lag_ms", "the furthest behind", "one")]
    about = "How far readers of the journal were behind: followers, mirrors, other programs."
    picture = parts.over_time(rows, drawn, title="Replication lag", is_duration=True)
    return section("Replication lag", about, picture)


def _more(pictures: Pictures, picture: str, what: str) -> str:
    left = pictures.more.get(picture, 0)
    return f"The first of them; {count(left)} more {what} are not shown." if left > 0 else ""


def _slowest(pictures: Pictures) -> str:
    rows = pictures.of("slowest")
    body = (
        parts.slowest(rows) if rows else nothing("The table hot_resources is not there, or empty.")
    )
    return section("Slowest resources", "By mean wait for a lease.", body)


def _peers(pictures: Pictures) -> str:
    rows = pictures.of("peers")
    body = parts.peers(rows) if rows else nothing("The table peer_health is not there, or empty.")
    return section("Peers", "By grants, with how their leases ended.", body)


def _timeline(pictures: Pictures) -> str:
    rows = pictures.of("timeline")
    title = "Who held it"
    if pictures.resource is None:
        return section(title, "", nothing("No resource was ever leased."))
    of = name(":".join(pictures.resource))
    if not rows:
        return section(title, of, nothing("This resource was never leased."), wide=True)
    end = max(row["until_ms"] or row["from_ms"] for row in rows)
    windows = pictures.of("windows")
    if any(row["until_ms"] is None for row in rows) and windows:
        end = max(end, windows[-1]["at_ms"])
    about = f"{of} {_more(pictures, 'timeline', 'holds')}"
    return section(title, about, parts.timeline(rows, end), wide=True)


def _principals(pictures: Pictures) -> str:
    rows = pictures.of("principals")
    missing = "The table principal_activity is not there, or empty."
    body = parts.principals(rows) if rows else nothing(missing)
    return section("Principals", "Events by who was proved to cause them.", body)


def _findings(pictures: Pictures) -> str:
    rows = pictures.of("findings")
    if not rows:
        return ""
    cells = [
        [_place(row), safe(row["severity"]), safe(row["check"]), name(row["message"])]
        for row in rows
    ]
    shown = table(["Where", "Severity", "Check", "What"], cells, numbers_from=9)
    return section("Findings", _more(pictures, "findings", "findings"), shown, wide=True)


def _place(row: Row) -> str:
    where = name(row["shard"] or NONE)
    return where if row["sequence"] is None else f"{where} {row['sequence']:,}"


def _positions(pictures: Pictures) -> str:
    rows = pictures.of("positions")
    if not rows:
        return section("Positions", "", nothing("No table has a position yet."))
    cells = [[name(row["table"]), name(row["shard"]), f"{row['sequence']:,}"] for row in rows]
    body = table(["Table", "Shard", "Last sequence"], cells, numbers_from=2)
    about = f"How far each table has come. {_more(pictures, 'positions', 'positions')}"
    return section("Positions", about, body)


_SECTIONS: tuple[Callable[[Pictures], str], ...] = (
    _throughput,
    _wait,
    _burn,
    _heat,
    _lag,
    _slowest,
    _peers,
    _principals,
    _positions,
    _timeline,
    _findings,
)
