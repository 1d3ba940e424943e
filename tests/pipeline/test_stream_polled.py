"""A stream over Spark Connect is runs one after the other: when it runs, waits, ends and gives up.
What a run itself does, and a stream over a real server, is shown in tests/spark."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from omnirelay.cli.ending import EXIT_FAILED, EXIT_USAGE, exit_code
from omnirelay.cli.pipeline import app
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError, Unavailable
from omnirelay.pipeline.hold import HoldLost
from omnirelay.pipeline.offsets import admitted
from omnirelay.pipeline.run import Pipeline, RunReport
from omnirelay.pipeline.stream import StreamOptions
from omnirelay.pipeline.stream_polled import PolledStream


class Site:
    """Journals that grow by a script, and tables of which only the positions are kept."""

    def __init__(self, *, heads: int, at: int = 0) -> None:
        self.heads = heads
        self.at = at
        self.runs: list[int] = []
        self.is_away = False
        self.silent: dict[str, int] = {}
        """Shards of which nothing is to be read, and how far they are."""
        self.hold_is_lost = False
        self.asked = self.looks = 0
        self.at_look: dict[int, Callable[[], None]] = {}
        """What happens when the journals are looked at for the n-th time."""
        self.after_run: Callable[[], None] = lambda: None

    def look(self) -> dict[str, int]:
        self.looks += 1
        self.at_look.get(self.looks, lambda: None)()
        if self.is_away:
            raise Unavailable("the node is away")
        return {"a": self.heads, **self.silent}

    def new(self, after: dict[str, int], rows: int | None = None) -> tuple[Any, dict[str, int]]:
        heads = {shard: last for shard, last in self.look().items() if shard not in self.silent}
        end = admitted(after, heads, rows)
        return after, {shard: last for shard, last in end.items() if last > after.get(shard, 0)}

    def take(self, rows: int | None) -> None:
        _, upto = self.new(self.positions, rows)
        self.runs.append(upto.get("a", self.at) - self.at)
        self.at = upto.get("a", self.at)

    @property
    def positions(self) -> dict[str, int]:
        return {"a": self.at} if self.at else {}

    def run(self, take: Callable[[Any], None]) -> RunReport:
        take(self)
        self.after_run()
        return RunReport(self.runs[-1], 0, (), 0.0)

    def check(self) -> None:
        if self.hold_is_lost:
            raise HoldLost("the tables", "another pipeline works here")

    @property
    def version(self) -> str:
        """What a server of Spark Connect is asked."""
        self.asked += 1
        return "4"

    def stream(self, rows_max: int | None = None, *, is_once: bool = False) -> PolledStream:
        pipeline = SimpleNamespace(
            tables=SimpleNamespace(snapshot=lambda _: SimpleNamespace(positions=self.positions)),
            intake=SimpleNamespace(journals=SimpleNamespace(heads=self.look, new=self.new)),
            hold=self,
            session=self,
            run=self.run,
        )
        self.said: list[str] = []
        return PolledStream(
            cast("Pipeline", pipeline),
            StreamOptions("", is_once=is_once, interval_s=0.0, rows_max=rows_max),
            lambda made: None,
            self.said.append,
        )


def test_once_takes_what_is_there_in_batches_and_ends() -> None:
    site = Site(heads=25)
    following = site.stream(10, is_once=True)
    following.run()
    assert site.runs == [10, 10, 5]
    assert following.last is not None
    assert following.last.events == 5


def test_once_does_not_chase_a_journal_that_goes_on() -> None:
    site = Site(heads=10)
    site.after_run = lambda: setattr(site, "heads", site.heads + 10)
    site.stream(10, is_once=True).run()
    assert site.runs == [10]


def test_once_with_nothing_new_still_brings_up_what_a_crash_left_behind() -> None:
    site = Site(heads=10, at=10)
    site.stream(is_once=True).run()
    assert site.runs == [0]


def test_it_runs_when_there_is_something_new_until_it_is_stopped() -> None:
    site = Site(heads=3)
    following = site.stream()
    site.at_look = {5: lambda: setattr(site, "heads", 7), 9: following.stop}
    following.run()
    assert site.runs == [3, 4], "a look that finds nothing is no run"


def test_a_node_that_goes_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnirelay.model.limits.STREAM_PAUSE_FIRST_S", 0.001)
    site = Site(heads=3)
    following = site.stream()
    site.after_run = lambda: setattr(site, "is_away", True)

    def come_back(line: str) -> None:
        site.said.append(line)
        if line.startswith("waiting"):
            site.is_away, site.heads, site.after_run = False, 5, following.stop

    following.say = come_back
    following.run()
    assert site.runs == [3, 2]
    assert site.said == [
        "waiting for the journals: the node is away",
        "the journals answer again: going on",
    ]


def test_without_a_limit_a_run_takes_as_much_as_a_micro_batch_of_spark() -> None:
    site = Site(heads=1_500_000)
    site.stream(is_once=True).run()
    assert site.runs == [1_000_000, 500_000]


def test_once_does_not_wait_for_a_shard_that_has_nothing_to_read() -> None:
    """As one has whose events all lie before the moment that was asked for."""
    site = Site(heads=10)
    site.silent = {"b": 7}
    site.after_run = lambda: setattr(site, "heads", site.heads + 10)
    site.stream(10, is_once=True).run()
    assert site.runs == [10]


def test_looks_that_find_nothing_have_a_pause_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(heads=3)
    following = site.stream()
    pauses: list[float] = []

    def wait(pause_s: float) -> bool:
        pauses.append(pause_s)
        if len(pauses) == 3:
            following.stop()
        return False

    monkeypatch.setattr(following._stopping, "wait", wait)
    following.run()
    assert pauses == [limits.STREAM_IDLE_PAUSE_S] * 3


def test_a_server_hears_from_a_stream_that_has_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would forget the session."""
    monkeypatch.setattr("omnirelay.model.limits.CONNECT_SILENCE_S", 0.0)
    site = Site(heads=3)
    following = site.stream()
    site.at_look = {6: following.stop}
    following.run()
    assert site.runs == [3]
    assert site.asked >= 3


@pytest.mark.parametrize("at", [0, 3])
def test_one_that_never_answered_ends_it_whatever_the_tables_have(at: int) -> None:
    site = Site(heads=3, at=at)
    site.is_away = True
    with pytest.raises(Unavailable, match="the node is away"):
        site.stream().run()


def test_a_lease_that_is_lost_ends_it_before_anything_is_read() -> None:
    site = Site(heads=3)
    site.hold_is_lost = True
    with pytest.raises(HoldLost):
        site.stream().run()
    assert site.runs == []


# -- the command --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (
            ("--to", "tables", "--master", "sc://127.0.0.1:15002", "--checkpoint", "kept"),
            EXIT_FAILED,
            "over Spark Connect there is no checkpoint",
        ),
        (
            ("--to", "delta:main.leases"),
            EXIT_USAGE,
            "no folder that Spark's checkpoint could be in",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_is_refused_before_spark_starts(
    words: tuple[str, ...], code: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["stream", "--from", "sqlite:///leases.db", *words])
    assert isinstance(result.exception, OmniRelayError)
    assert exit_code(result.exception) == code
    assert why in result.exception.message
    assert list(tmp_path.iterdir()) == []
