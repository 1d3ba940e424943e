"""`file:///dir`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.

Credentials and endpoints come from the environment, as obstore takes them (AWS_…, GOOGLE_…,
AZURE_…, with the account among them); an address holds none.
"""

import json
import os
from datetime import timedelta
from urllib.parse import parse_qsl, unquote, urlsplit

from omnirelay.model.errors import InvalidOption
from omnirelay.stores.objects_bucket import Bucket, LargeBucket
from omnirelay.stores.objects_files import FileBucket

_SURVIVES = ("", "power_loss", "node_loss")
_OWN = ("amazonaws.com", "googleapis.com", "core.windows.net")
"""Endpoints of the providers themselves."""


def open_bucket(url: str) -> Bucket:
    plain, scheme, survives = check_address(url)
    return _files(plain, survives) if scheme == "file" else _cloud(plain, scheme, survives)


def open_cloud(url: str) -> LargeBucket:
    """For an address that is not one of files."""
    return _cloud(*check_address(url))


def check_address(url: str) -> tuple[str, str, str]:
    """The address without its options, its scheme, and what it says that it survives. Nothing in
    it is passed over in silence: raises InvalidOption for what is not known."""
    plain, _, query = url.partition("?")
    scheme = plain.partition(":")[0].lower()
    if "#" in url or "@" in plain:
        raise InvalidOption(f"{scheme}://…: an address holds neither # nor a user or password")
    if scheme != "file" and not urlsplit(plain).netloc:
        raise InvalidOption(f"{plain!r} names no bucket: write {scheme}://bucket/prefix")
    return plain, scheme, _survives(plain, query)


def _survives(plain: str, query: str) -> str:
    options = dict(parse_qsl(query, keep_blank_values=True))
    survives = options.pop("survives", "")
    if options or survives not in _SURVIVES:
        raise InvalidOption(
            f"{plain}: the only option is survives=power_loss or survives=node_loss; endpoint and "
            f"credentials come from the environment"
        )
    return survives


def _files(plain: str, survives: str) -> Bucket:
    folder = unquote(plain.partition("://")[2])
    if not folder.startswith("/") or not folder.strip("/") or "\x00" in folder:
        raise InvalidOption(f"{plain!r} names no folder: write file:///folder")
    return FileBucket(os.path.normpath(folder), survives=survives)


def _cloud(plain: str, scheme: str, survives: str) -> LargeBucket:
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    from omnirelay.stores.objects_cloud import CloudBucket

    endpoint = _endpoint(scheme)
    is_bare = endpoint is not None and endpoint.startswith("http://")
    try:
        store = from_url(
            plain,
            client_options={"timeout": "10s", "connect_timeout": "3s", "allow_http": is_bare},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
        )
    except (BaseError, ValueError) as error:
        words = str(error).strip().splitlines()[0]
        raise InvalidOption(f"{plain} cannot be opened: {words[:200]}") from None
    return CloudBucket(store, plain, name=scheme, endpoint=endpoint, survives=survives)


def _endpoint(scheme: str) -> str | None:
    """Of a server that is not the provider's own."""
    names = {
        "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "gs": ("GOOGLE_BASE_URL",),
        "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    }[scheme]
    found = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if found is None and scheme == "gs":
        found = _google_endpoint()
    if found is None and scheme == "az" and os.environ.get("AZURE_STORAGE_USE_EMULATOR"):
        found = "http://127.0.0.1:10000"
    return None if found is None or any(own in found for own in _OWN) else found


def _google_endpoint() -> str | None:
    """A service account may name the server it is for."""
    key = os.environ.get("GOOGLE_SERVICE_ACCOUNT_KEY", "")
    try:
        found = json.loads(key).get("gcs_base_url") if key else None
    except (ValueError, AttributeError):
        return None  # obstore will say what is wrong with it
    return str(found) if found else None
