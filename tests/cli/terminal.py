"""A command on a terminal, as somebody who looks at it runs it."""

import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.command import argv

_LOOK = {"TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"}


class Screen:
    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self.process = process
        self.text = ""
        self._terminal = terminal

    def until(self, word: str) -> str:
        """All that was shown, once `word` is among it. Raises AssertionError if it ends before."""
        while word not in self.text:
            shown = self._more()
            assert shown, f"{word!r} never came: {self.text}"
            self.text += shown
        return self.text

    def to_the_end(self) -> str:
        while shown := self._more():
            self.text += shown
        return self.text

    def until_again(self, word: str, times: int) -> None:
        """Once `word` was shown so many times more."""
        wanted = self.text.count(word) + times
        while self.text.count(word) < wanted:
            shown = self._more()
            assert shown, f"{word!r} came no more: {self.text}"
            self.text += shown

    def press(self, key: str) -> None:
        os.write(self._terminal, key.encode())

    def _more(self) -> str:
        with suppress(OSError):  # how a terminal says that nobody is at its other end
            return os.read(self._terminal, 1 << 16).decode()
        return ""


@contextmanager
def on_a_terminal(*words: str, folder: Path, **environment: str) -> Iterator[Screen]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        argv(*words),
        cwd=folder,
        env={**os.environ, **_LOOK, **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Screen(process, ours)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
