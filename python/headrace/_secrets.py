"""Options of stores that are secrets, on their way to another process.

A pickle may lie in a file, a queue or a log, so none holds a secret. What is left out is found
again where the process has it: in the one that pickled, and in those forked from it. Elsewhere the
store is opened without, by what the process's environment and profiles give. Who knows that a
pickle goes nowhere else opens the store with ``storage_options={"pickle_credentials": True, ...}``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

_SECRET = re.compile(
    r"key|secret|token|passw|sas|credential|connection_string|authorization|cookie|headers|auth\b"
    r"|^query$"
)
_OPT_OUT = "pickle_credentials"
# "http://me:password@proxy:3128", wherever it stands.
_USER_IN_URL = re.compile(r"(?<=://)[^/?#\s]*@")

# Names that say nothing of what they belong to.
_salt = os.urandom(16)
_kept: dict[str, dict[str, Any]] = {}


def without_secrets(url: str, options: dict[str, Any] | None) -> tuple[str, dict[str, Any] | None]:
    """Of "https://user:password@host/path?query" all three as options, known for secrets.

    References and Icechunk repositories on such hosts have no query; of theirs it is the user.
    """
    kind, place = _within(url)
    if not place.lower().startswith(("http://", "https://")):
        return url, options
    parts = urlsplit(place)
    named = {}
    who, at, host = parts.netloc.rpartition("@")
    if at:
        user, _, password = who.partition(":")
        named = {"user": unquote(user), "password": unquote(password)}
        parts = parts._replace(netloc=host)
    if kind == "reference://" and named:
        if _OF_REFERENCES & (options or {}).keys():
            return url, options  # which may lead to other hosts, that are not to be told who asks
        return kind + urlunsplit(parts), {**dict.fromkeys(_OF_HOSTS, named), **(options or {})}
    if not kind and parts.query and "query" not in (options or {}):  # two are refused
        named["query"] = parts.query
        parts = parts._replace(query="")
    if not named:
        return url, options
    return kind + urlunsplit(parts), {**named, **(options or {})}


# Options of references: of the stores that they are read from and lead to, and what sends them to
# other hosts.
_OF_HOSTS = ("target_options", "remote_options")
_OF_REFERENCES = {*_OF_HOSTS, "remote_protocol", "allow", "fo", "fs"}


def _within(url: str) -> tuple[str, str]:
    """What says how a place is read, "reference://" or "icechunk+", and the place."""
    lower = url.lower()
    for kind in ("reference://", "icechunk://", "icechunk+"):
        if lower.startswith(kind):
            return kind, url[len(kind) :]
    return "", url


def shown(text: str) -> str:
    """A URL, or a message with one, without its user and its query."""
    return re.sub(r"(://[^\s?]*)\?[^\s]*", r"\1", _USER_IN_URL.sub("", text))


# What stands behind the "?" of an Icechunk repository is its snapshot.
_QUERY_IN_URL = re.compile(r"(?<!icechunk\+)https?://[^\s?]*\?", re.IGNORECASE)


def hides(url: str) -> bool:
    """Whether a secret may be in it."""
    return _USER_IN_URL.search(url) is not None or _QUERY_IN_URL.search(url) is not None


def named(text: str) -> str:
    """A place by which others may know it: without its user, and with a hash of its query."""
    bare = _USER_IN_URL.sub("", text)
    rest = shown(bare)
    if rest == bare:
        return rest
    return f"{rest}?{hashlib.blake2b(bare.encode(), digest_size=16).hexdigest()}"


def _is_secret(name: str, value: Any) -> bool:
    if _SECRET.search(name.lower()):
        return True
    if name == "allow" and isinstance(value, str) and hides(value):
        return True
    if isinstance(value, dict):
        return any(_is_secret(str(n), v) for n, v in value.items())
    if isinstance(value, list | tuple):
        return any(_is_secret(name, v) for v in value)
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            return _is_secret(name, json.loads(value))
        except ValueError:
            return True  # whatever it is
    return isinstance(value, str) and _USER_IN_URL.search(value) is not None


def scrubbed(text: str, url: str, options: dict[str, Any] | None) -> str:
    """What others say of a store, without what proves who asks."""
    parts = urlsplit(url)
    secrets = [parts.netloc.rpartition("@")[0], parts.query]
    secrets += [str(v) for n, v in (options or {}).items() if _is_secret(n, v)]
    for secret in secrets:
        text = text.replace(secret, "...") if secret else text
    return text


def public(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are no secrets, those within others too."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, dict) and not _SECRET.search(str(name).lower()):
            found[name] = public(value)
        elif not _is_secret(str(name), value):
            found[name] = value
    return found


def is_allowed(options: dict[str, Any]) -> bool:
    """Whether the caller said that pickles may have them."""
    return str(options.get(_OPT_OUT, "")).lower() in ("true", "1")


def set_aside(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The options that a pickle may have, and the name by which `restored` finds the others."""
    if is_allowed(options):
        return options, ""
    secrets = {name: value for name, value in options.items() if _is_secret(name, value)}
    if not secrets:
        return options, ""
    text = json.dumps(secrets, sort_keys=True, default=repr)
    name = hashlib.blake2b(text.encode(), key=_salt, digest_size=16).hexdigest()
    _kept[name] = secrets
    return {n: v for n, v in options.items() if n not in secrets}, name


def restored(options: dict[str, Any], name: str) -> dict[str, Any]:
    """All options, as far as this process has them."""
    return {**options, **_kept.get(name, {})}
