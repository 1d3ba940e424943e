"""Key sets: what is read, when it is read again, and what happens while it cannot be."""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from omnirelay.identity.fetch import HttpFetch, KeysUnusable, checked_url
from omnirelay.identity.keys import FileKeys, UrlKeys, read_key_set
from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.testing.authority import Authority
from omnirelay.testing.issuers import KeyServer, Signer

RS256 = frozenset({"RS256", "ES256"})
SIGNERS = [Signer("https://one.example"), Signer("https://two.example")]


class Hands:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms


class Origin:
    """Stands for the issuer's server: counts, fails or waits when told to."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.asked = 0
        self.is_down = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, url: str) -> bytes:
        self.asked += 1
        await self.gate.wait()
        if self.is_down:
            raise KeysUnusable("down")
        return self.body


def url_keys(origin: Origin, clock: Hands) -> UrlKeys:
    return UrlKeys(
        "https://issuer.example/keys",
        RS256,
        clock,
        origin,
        refresh_s=300,
        retry_s=10,
        stale_s=3600,
    )


def one_key(**changed: object) -> dict[str, object]:
    key: dict[str, object] = json.loads(SIGNERS[0].key_set())["keys"][0]
    return {name: value for name, value in {**key, **changed}.items() if value is not None}


def renamed(kid: str) -> bytes:
    return json.dumps({"keys": [one_key(kid=kid)]}).encode()


# -- reading --------------------------------------------------------------------------------------


def test_a_key_is_only_good_for_its_own_algorithms() -> None:
    keys = {key.kid: key for key in read_key_set(SIGNERS[0].key_set(), RS256)}
    assert keys["one"].algorithms == {"RS256"}
    assert keys["two"].algorithms == {"ES256"}


def test_the_private_part_of_a_key_published_by_mistake_is_not_kept() -> None:
    private = {**RSAAlgorithm.to_jwk(SIGNERS[0].rsa, as_dict=True), "key_ops": ["verify"]}
    (key,) = read_key_set(json.dumps({"keys": [private]}).encode(), RS256)
    assert isinstance(key.material, rsa.RSAPublicKey)


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"kty": "RSA"},
        {"kty": 7},
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        one_key(use="enc"),
        one_key(key_ops=["encrypt"]),
        one_key(alg="RS512"),
        one_key(kty="EC"),
        one_key(n=None),
        one_key(n="!!!"),
    ],
)
def test_an_entry_that_cannot_check_a_signature_is_passed_over(entry: dict[str, object]) -> None:
    body = json.dumps({"keys": [entry, one_key()]}).encode()
    assert [key.kid for key in read_key_set(body, RS256)] == ["one"]


def test_a_short_rsa_key_is_passed_over() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()
    body = json.dumps({"keys": [RSAAlgorithm.to_jwk(short, as_dict=True)]}).encode()
    with pytest.raises(KeysUnusable, match="none of its keys"):
        read_key_set(body, RS256)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": [1]}',
        b'{"keys": []}',
        b"\xff",
        b'{"keys":' + b"[" * 100_000,
        b" " * (limits.KEY_SET_BYTES_MAX + 1),
        json.dumps({"keys": [one_key()] * (limits.KEYS_MAX + 1)}).encode(),
    ],
    ids=range(11),
)
def test_what_is_no_key_set_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(KeysUnusable):
        read_key_set(body, RS256)


# -- a file ---------------------------------------------------------------------------------------


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(renamed("old"))
    return path


async def test_a_changed_file_is_read_again(key_file: Path) -> None:
    clock = Hands()
    keys = FileKeys(str(key_file), RS256, clock)
    first = await keys.fresh()
    key_file.write_bytes(renamed("new"))
    assert await keys.fresh() == first, "it is not looked at with every call"
    clock.ms += 1000
    assert await keys.fresh() > first
    assert await keys.find("old", "RS256") is None
    assert await keys.find("new", "RS256") is not None
    await keys.close()


async def test_a_file_that_breaks_leaves_the_keys_as_they_were(
    key_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Hands()
    keys = FileKeys(str(key_file), RS256, clock)
    for breaks in (lambda: key_file.write_bytes(b"{"), key_file.unlink):
        breaks()
        clock.ms += 1000
        await keys.fresh()
        assert await keys.find("old", "RS256") is not None
    assert "stay as they were" in caplog.text


def test_a_file_without_keys_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="No such file"):
        FileKeys(str(tmp_path / "none.json"), RS256, Hands())
    (tmp_path / "bad.json").write_bytes(b"<html>")
    with pytest.raises(InvalidOption, match="not a key set"):
        FileKeys(str(tmp_path / "bad.json"), RS256, Hands())


async def test_a_token_without_kid_finds_a_key_only_if_there_is_no_choice(key_file: Path) -> None:
    keys = FileKeys(str(key_file), RS256, Hands())
    assert await keys.find(None, "RS256") is not None
    key_file.write_bytes(json.dumps({"keys": [one_key(kid="a"), one_key(kid="b")]}).encode())
    keys = FileKeys(str(key_file), RS256, Hands())
    assert await keys.find(None, "RS256") is None


# -- a URL ----------------------------------------------------------------------------------------


async def test_keys_are_fetched_once_for_all_who_wait() -> None:
    origin, clock = Origin(renamed("a")), Hands()
    origin.gate.clear()
    keys = url_keys(origin, clock)
    waiting = [asyncio.create_task(keys.fresh()) for _ in range(5)]
    await asyncio.sleep(0)
    origin.gate.set()
    assert set(await asyncio.gather(*waiting)) == {1}
    assert origin.asked == 1


async def test_a_caller_that_gives_up_does_not_end_the_fetch_for_others() -> None:
    origin, clock = Origin(renamed("a")), Hands()
    origin.gate.clear()
    keys = url_keys(origin, clock)
    hasty = asyncio.create_task(keys.fresh())
    patient = asyncio.create_task(keys.fresh())
    await asyncio.sleep(0)
    hasty.cancel()
    await asyncio.wait([hasty])
    origin.gate.set()
    assert await patient == 1
    assert origin.asked == 1


async def test_a_rotated_key_is_found_by_asking_again_but_not_at_every_strangers_whim() -> None:
    origin, clock = Origin(renamed("old")), Hands()
    keys = url_keys(origin, clock)
    await keys.fresh()
    origin.body = renamed("new")
    for _ in range(100):
        assert await keys.find("made up", "RS256") is None
    assert origin.asked == 1, "it was asked a moment ago"
    clock.ms += 10_000
    assert await keys.find("new", "RS256") is not None
    assert await keys.fresh() == 2
    assert await keys.find("old", "RS256") is None
    assert origin.asked == 2


async def test_old_keys_serve_while_new_ones_are_fetched_and_while_that_fails() -> None:
    origin, clock = Origin(renamed("a")), Hands()
    keys = url_keys(origin, clock)
    await keys.fresh()
    clock.ms += 300_000
    origin.gate.clear()
    assert await keys.fresh() == 1, "nobody waits"
    origin.is_down = True
    origin.gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert origin.asked == 2
    assert await keys.fresh() == 1
    clock.ms += 3_600_000
    with pytest.raises(Unavailable, match="cannot be had"):
        await keys.fresh()
    origin.is_down = False
    clock.ms += 10_000
    assert await keys.fresh() == 1, "the same keys as before"


async def test_an_origin_that_is_down_is_the_nodes_trouble_and_not_the_callers() -> None:
    origin, clock = Origin(renamed("a")), Hands()
    origin.is_down = True
    keys = url_keys(origin, clock)
    for _ in range(10):
        with pytest.raises(Unavailable):
            await keys.fresh()
    assert origin.asked == 1
    origin.is_down = False
    clock.ms += 10_000
    assert await keys.fresh() == 1


async def test_closing_ends_a_fetch_under_way() -> None:
    origin = Origin(renamed("a"))
    origin.gate.clear()
    keys = url_keys(origin, Hands())
    waiting = asyncio.create_task(keys.fresh())
    await asyncio.sleep(0)
    await keys.close()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


# -- the wire -------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[KeyServer]:
    server = KeyServer(renamed("a"))
    yield server
    server.close()


async def test_a_key_set_is_fetched_over_http_on_loopback(server: KeyServer) -> None:
    assert await HttpFetch()(server.url("/keys")) == renamed("a")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/html", "a page"),
        ("/moved", "302"),
        ("/packed", "compressed"),
        ("/long", "longer than"),
        ("/gone", "404"),
    ],
)
async def test_an_answer_that_is_no_key_set_says_what_it_is(
    server: KeyServer, path: str, why: str
) -> None:
    with pytest.raises(KeysUnusable, match=why):
        await HttpFetch()(server.url(path))
    assert server.asked == [path]


async def test_a_server_that_drips_is_left_after_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/keys"
        fetching = asyncio.create_task(HttpFetch(timeout_s=0.2)(url))
        connection, _ = await asyncio.to_thread(listener.accept)
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            with pytest.raises(KeysUnusable, match=r"within 0\.2 s"):
                await fetching
            connection.settimeout(5)
            while await asyncio.to_thread(connection.recv, 65536):
                pass  # the request, then the end: our side has hung up


async def test_nobody_listening_is_said_as_such() -> None:
    with pytest.raises(KeysUnusable, match="cannot be reached"):
        await HttpFetch()("http://127.0.0.1:1/keys")


async def test_https_is_checked_against_the_authority_that_was_named(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "other.pem").write_bytes(Authority("Another authority").pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("keys", ["localhost"]).write(tmp_path, "keys"))

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(renamed("tls"))

        def log_message(self, format: str, *args: object) -> None:
            return None

    with HTTPServer(("127.0.0.1", 0), Answer) as http:
        http.socket = context.wrap_socket(
            http.socket, server_side=True, do_handshake_on_connect=False
        )
        serving = threading.Thread(target=http.serve_forever, args=(0.01,))
        serving.start()
        try:
            url = f"https://localhost:{http.server_address[1]}/keys"
            fetch = HttpFetch(ca_file=str(tmp_path / "ca.pem"))
            assert await fetch(url) == renamed("tls")
            with pytest.raises(KeysUnusable, match="certificate verify failed"):
                await HttpFetch(ca_file=str(tmp_path / "other.pem"))(url)
            with pytest.raises(KeysUnusable, match="certificate verify failed"):
                await HttpFetch()(url)
        finally:
            http.shutdown()
            serving.join(timeout=5)


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/keys",
        "http://127.0.0.1.evil.example/keys",
        "http://10.0.0.1/keys",
        "ftp://issuer.example/keys",
        "file:///etc/keys.json",
        "https:///keys",
        "https://user:secret@issuer.example/keys",
        "https://issuer.example/keys#part",
        "https://issuer.example:port/keys",
        "https://[::1/keys",
        "",
    ],
)
def test_an_address_that_others_could_answer_for_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match="jwks_url") as refused:
        checked_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://issuer.example/keys?v=1", "http://127.0.0.1:80/", "http://[::1]/"]
)
def test_an_address_that_only_the_issuer_can_answer_for_is_taken(url: str) -> None:
    assert checked_url(url).hostname
