"""Remove secrets from text before it is shown, logged, journaled or reported.

When in doubt, the text is cut: a message without its tail is a nuisance, a message with a password is a
leak. No function raises, whatever the text, and each takes time linear in the length of the text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

from downloader.core.invisible import INVISIBLE
from downloader.core.issued_keys import ISSUED

__all__ = [
    "NAMING",
    "SHORTEST",
    "credentials_in",
    "forms_of",
    "is_secret_param",
    "pattern_of",
    "precedes_host",
    "redact",
    "redact_url",
    "spellings",
    "without_secrets",
]

NAMING: Final = 9
"""The rules for names of a job that begins now (``storage.records.JobSpec``); earlier jobs keep theirs."""
SHORTEST: Final = 4
"""Characters of a secret that is cut wherever it stands."""
_MORE_SECRETS: Final = 4  # from these rules on, more parameters count as secrets
_BY_THE_RFC: Final = 5  # from these on, a login is where RFC 3986 has it
_STILL_MORE_SECRETS: Final = 7  # from these on, further parameters count as secrets
_BY_WORDS: Final = 8  # from these on, the last words of a name count
_BY_EXPIRY: Final = 9  # from these on, what looks like a signature beside an expiry is one

_CUT: Final = "***"
_ROUNDS: Final = 4
_LONGEST_NAME: Final = 64  # characters of a parameter's name that is cached
_LAYERS: Final = 8  # of percent-encoding that are decoded
_LONGEST: Final = 65536  # characters of a message; the rest is cut

# Names as `_plain_name` returns them: lower case, `_` for `-`, without a leading `x_`.
_NAMES: Final = frozenset(
    {
        "key",
        "pwd",
        "auth",
        "credential",
        "credentials",
        "code",
        "session",
        "sid",
        "jwt",
        "amz_signature",
        "amz_credential",
        "goog_signature",
        "goog_credential",
        "awsaccesskeyid",
        "googleaccessid",
        "cookie",
        "session_id",
        "sessionid",
        "jsessionid",
        "phpsessid",
    }
)
_PARTS: Final = ("token", "secret", "passw", "api_key", "apikey", "authorization")
# Those that jobs begun by earlier versions have in the names of their files.
_MORE_NAMES: Final = frozenset(
    {"pass", "passcode", "ticket", "otp", "sas", "hdnea", "hdnts", "hdntl", "__gda__"}
)
_MORE_PARTS: Final = ("signature", "hmac", "passphrase")
_MORE_ENDS: Final = tuple(
    f"{kind}{mark}key"
    for kind in ("access", "auth", "private", "subscription", "shared")
    for mark in ("_", "")
)
# Signatures and keys of stores and of single sign-on that have names of their own.
_STILL_MORE_NAMES: Final = frozenset(
    {
        *("tempauth", "rlkey", "tok", "bearer", "creds", "sessid", "mac"),
        *("samlresponse", "samlrequest", "assertion", "client_assertion"),
        *("ossaccesskeyid", "q_ak"),
    }
)
_STILL_MORE_PARTS: Final = ("csrf", "xsrf")
# Short ones of their own: the signature of Discord, keys and tokens of Zoom.
_SHORT_NAMES: Final = frozenset({"hm", "zak", "tk", "sess"})
_STILL_MORE_ENDS: Final = ("license_key", "access_key_id", "accesskeyid")
_ANY_SIG: Final = "sig"  # at the end of a name with the rules that do not look at words
# With which words a name ends, joined: `service_ticket`, `pass-phrase`, `oobCode`, `sessionkey`.
_LAST_WORDS: Final = frozenset(
    {
        *("pass", "passphrase", "ticket", "otp", "totp", "hotp", "tkn", "tok", "jwt", "authn", "authz"),
        *("assertion", "verifier", "sid", "sessid", "sessionid", "cfclearance"),
        *("cred", "creds", "credential", "credentials"),
        *("auth", "oauth", "cookie", "session", "sess", "bearer", "pw", "pat"),
    }
    # `compass`, `bypass` and their like are words of their own.
    | {
        f"{kind}pass"
        for kind in (
            *("user", "db", "ftp", "smtp", "mail", "proxy", "admin", "root", "login"),
            *("new", "old", "my", "last", "one", "cur", "current", "tmp", "temp", "confirm", "master"),
            *("sql", "mysql", "pg", "redis", "mongo", "rpc", "ssh", "sftp", "http", "web", "auth", "api"),
            *("app", "account", "acct", "client", "server", "host", "email", "imap", "pop", "vpn", "wifi"),
            *("key", "cert", "zip", "rar", "pdf", "archive", "guest", "member", "torrent", "store"),
        )
    }
    | {
        f"{kind}pw"
        for kind in ("user", "db", "ftp", "smtp", "mail", "proxy", "admin", "root", "login", "bind")
    }
    | {"psk", "sas", "loginticket"}
    | {f"{kind}auth" for kind in ("http", "basic", "proxy", "user", "web", "api", "db", "login")}
    | {f"{kind}{what}" for kind in ("user", "auth", "login", "web") for what in ("session", "cookie")}
    | {"sessioncookie"}
    # Keys that name a row or an object (`sort_key`, `object_key`) are none, nor are public ones.
    | {
        f"{kind}key"
        for kind in (
            *("session", "encryption", "decryption", "enc", "aes", "rsa", "ssh", "mac", "signing"),
            *("master", "webhook", "app", "api", "access", "secret", "private", "shared", "pass"),
            *("license", "licence", "auth", "sso", "jwt", "account", "client", "server", "stream"),
            *("unlock", "download", "subscription", "fastly", "kaggle"),
            *("priv", "gpg", "pgp", "ssl", "tls", "pem", "psk", "crypt", "crypto", "cipher", "hmac"),
            *("preshared", "wep", "wpa", "wifi", "wrapping", "validation", "vault"),
            *("deploy", "share", "sharing", "recovery", "activation", "rss", "feed", "dl", "login"),
            *("consumer", "oauth", "invite", "invitation", "reset", "verify", "verification"),
            *("confirm", "confirmation", "magic", "admin", "read", "write", "edit", "dev", "developer"),
            *("service", "serial", "cd", "functions", "otp", "totp"),
            *("mfa", "bearer", "storageaccount", "root", "authorized", "announce"),
            *("preview", "registration", "sess", "encrypt", "decrypt", "wallet", "seal", "unseal"),
            *("function", "unsubscribe"),
        )
    }
    # What lets somebody in who has it: by mail, once, or as a place that nobody else knows.
    | {
        f"{kind}link"
        for kind in (
            *("magic", "reset", "invite", "invitation", "activation", "verification", "confirmation"),
            *("share", "private", "secret"),
        )
    }
    | {f"{kind}{what}" for kind in ("sas", "presigned", "webhook") for what in ("url", "uri", "link")}
    | {"connectionstring", "connstring", "connstr"}
    | {f"{kind}phrase" for kind in ("recovery", "seed", "backup", "mnemonic")}
    | {f"{kind}pin" for kind in ("user", "login", "card", "sms", "unlock", "access", "security")}
    # Signatures. Signs of roads, stars and numbers are none.
    | {"sig"}
    | {
        f"{kind}{what}"
        for kind in (
            *("api", "app", "user", "url", "uri", "auth", "req", "request", "client", "server", "file"),
            *("download", "dl", "access", "cdn", "query", "param", "params", "body", "data"),
            *("login", "pay"),
            *("temp", "tempurl", "oauth", "hub", "md5", "sha1", "sha256", "gpg", "pgp", "web"),
            *("my", "video", "h", "link", "session", "image", "img", "media", "play", "stream"),
            *("secure", "hash", "new"),
        )
        for what in ("sig", "sign")
    }
    # Those of countries, posts, errors are none; some have one that is called `pin_code`.
    | {
        f"{kind}code"
        for kind in (
            *("user", "device", "verify", "verification", "reset", "activation", "confirm", "confirmation"),
            *("otp", "totp", "oob", "mfa", "sms", "auth", "login", "access", "unlock", "recovery"),
            *("backup", "invite", "invitation", "oauth", "sso", "pass", "onetime"),
            *("singleuse", "magic", "2fa", "tfa", "twofactor", "email", "validation", "recover", "restore"),
            *("pairing", "redeem", "redemption", "extract", "wifi", "join", "authn", "cvv", "cvc"),
            *("download",),
        )
    }
)
_PLURALS: Final = ("keys", "codes", "links", "pins", "cookies")
_LAST_LETTERS: Final = ("pwd", "pswd")  # of the last word, which may be several: `userpwd`
_FIRST_LETTERS: Final = ("saml", "aspsessionid")
# Words that only begin with, or have in them, the letters of one that counts.
_ORDINARY: Final = re.compile(
    r"secretar[a-z]*|secretions?|secretes?|secreted"
    r"|signals?|signal(?:ing|strength)|sigmas?|sigmoids?|signif[a-z]+|sign(?:up|in|out|off|on|age|post)s?"
    r"|sig(?:[xyz]|fig|figs|min|max|clip|thresh|threshold|int|term|kill|il|ils)|sigh(?:t[a-z]*|s|ed|ing)?"
    r"|signets?|signor[aei]?|signee"
    r"|(?:de)?tokeni[sz](?:e|es|ed|er|ers|ing|ation)"
).fullmatch
# Together with the word before them: numbers of tokens, tickets of travellers, steps and filters.
_ORDINARY_PAIRS: Final = frozenset(
    {f"sign {what}" for what in ("up", "in", "out", "off", "on", "language", "time")}
    | {f"sig {what}" for what in ("x", "y", "z", "fig", "figs", "min", "max", "clip", "digits", "thresh")}
    | {f"{kind} sig" for kind in ("min", "max", "n", "num")}
    | {
        f"{kind} tokens"
        for kind in (
            *("max", "min", "num", "n", "total", "count", "new", "prompt", "completion", "input", "output"),
            *("budget", "reasoning", "thinking", "cached", "stop", "special"),
        )
    }
    | {
        f"{kind} pass"
        for kind in (
            *("boarding", "season", "day", "week", "month", "travel", "rail", "train", "bus", "ski"),
            *("lift", "mountain"),
            *("low", "high", "band", "all", "first", "second", "third", "two", "single"),
            *("multi", "forward", "backward", "render", "shadow", "by"),
        )
    }
)
# Of names that end so, the value says something about a secret, and is none.
_ABOUT: Final = frozenset(
    {
        *("count", "counts", "limit", "limits", "length", "len", "size", "type", "version", "method"),
        *("algorithm", "algo", "alg", "expires", "expiry", "ttl", "budget", "usage"),
        *("protection", "policy", "strength", "required", "enabled", "disabled", "status"),
        *("expired", "expiration", "lifetime", "timeout", "age", "quota", "attempts", "retries"),
        *("min", "max"),
        *("rule", "rules", "format", "encoding", "name", "names", "scope", "scopes"),
        *("kind", "mode", "issuer", "provider", "manager", "endpoint", "generator", "checker", "meter"),
        *("updated", "changed", "created", "remaining", "cost", "price", "prices"),
    }
)
# Too common in prose and in reprs (`code=404`) to be cut unless a `?` or `&` precedes them.
_WEAK: Final = frozenset(
    {
        *("code", "key", "session", "sid", "pass", "ticket", "otp", "mac", "tok", "bearer", "assertion"),
        *("verifier", "cred", "hm", "tk"),
    }
)

_INVISIBLE: Final = re.compile(f"[{INVISIBLE}]+")
_NAME_JUNK: Final = re.compile(r"[\x00-\x20\x7f\"'\\]+")
# What ends a word of a name: a separator, or the case of its letters.
_BETWEEN_WORDS: Final = re.compile(r"[\[\]._:\- ]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_KEPT_BETWEEN_WORDS: Final = re.compile(f"({_BETWEEN_WORDS.pattern})")
_DIGITS: Final = "0123456789"
_BRACKETS: Final = re.compile(r"[\[\]]+")
_SEPARATOR: Final = re.compile(r"([?&;#])")
# A link that holds until a time is signed, under whatever name: `md5=…&expires=…` (nginx's secure_link),
# `st=…&e=…`, `verify=TIME-…` (Cloudflare).
_EXPIRY: Final = re.compile(
    r"(?:^|[?&;])(?:e|exp|expires?|expiry|expiration|valid_?(?:to|until|thru)|until|deadline)=\d{10}(?!\d)",
    re.I,
).search
_BASE64: Final = r"(?:[\w+/~-]|%2[BbFf]){16,}(?:=|%3[Dd]){0,2}"
_MAC: Final = re.compile(rf"(?=.*\d)(?=.*[A-Za-z]){_BASE64}", re.A).fullmatch
_DATED_MAC: Final = re.compile(rf"\d{{10}}-{_BASE64}", re.A).fullmatch
_SHORTEST_MAC: Final = 16
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
# The origin of a URL which, without @, = and %, has no place for a secret. Most have none.
_PLAIN_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/|\Z)").match
_PREFIX: Final = re.compile(r"[\x00-\x20]*(?:[A-Za-z][A-Za-z0-9+.\-]*://|https?:)?[/\\]*", re.I)
_AUTHORITY_END: Final = re.compile(r"[/?#]|$")
_HOST_PORT: Final = re.compile(r"(?:\[[^\]@]*\]|[^:@%\[\]]*)(?::[0-9]+)?")
# The host of a URL with a login, if it cannot be a part of a password that has an @ and a slash.
_CLEAR_HOST: Final = re.compile(
    r"(?:[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+\.?|[A-Za-z0-9.-]+(?=:)|localhost|\[[0-9A-Fa-f:.]*[0-9A-Fa-f]\])"
    r"(?::[0-9]+)?"
)
_NESTED: Final = re.compile(r"(?<=:)//+|(?<=https:)/|(?<=http:)/", re.I)  # precedes a host within a URL
_BEFORE_HOST: Final = re.compile(r"(?::/|https?:)/+\Z", re.I)
_TARGET_QUERY: Final = re.compile(r"[?#]|$")
_VALUES: Final = re.compile(r"(?=&[^&=]*=)")
_MANY_LAYERS: Final = re.compile(r"%(?:25)+(?=[0-9A-Fa-f]{2})")
_EQUALS: Final = re.compile(r"%3D", re.I)
_EQUAL_SIGN: Final = re.compile(r"=|%3D", re.I)
_MOST_NAMES: Final = 8  # of parameters that a secret may seem to have
_TAIL: Final = re.compile(r"[)\]>}\"',.:;!]+$")
_BEFORE_NAME: Final = re.compile(r"[/,\s\"'({]")
_WORD: Final = re.compile(r"\S+")
_BEFORE_USER: Final = re.compile(r"[/\\\"'(<\[{,=;&?#]")

# A quoted string, its quote in group 3, to its end or to the end of the text. It may contain white
# space; an unquoted header value extends to the end of the line.
_STRING: Final = r"([\"'])(?:\\.|(?!\3)[^\\])*(?:\3|\Z)"
_HEADER: Final = re.compile(
    # Not `invalid_token: it has expired`: that is a code of OAuth's errors.
    r"(authorization|cookie2?|(?<!missing)(?<!invalid)(?<!expired)[\-_]"
    r"(?:token|secret|password|api[\-_]?key|key))"
    rf"(?:([\"']\s*[:,=]\s*[bu]?|\s*[:=]\s*[bu]?){_STRING}|([\"']?\s*:\s*)[^\n]*)",
    re.I | re.S,
)
_QUOTED: Final = re.compile(
    r"((?:token|secret|passw|pwd|api[\-_]?key|signature)[A-Za-z0-9_\-]{0,40})"
    rf"([\"']?\s*[:=]\s*[bu]?){_STRING}",
    re.I | re.S,
)
# A message begins with the path of a file, which may be called so: `d/.downloader/name-key: no space left`.
_FILE: Final = re.compile(r"/[A-Za-z0-9_\-]*\Z").search
_SCHEME_VALUE: Final = re.compile(r"\b(Bearer|Basic)((?:\s|[:=+]|%20)+)[^\s,;]+", re.I)


def _unquoted(text: str) -> str:
    """Return ``text`` without its layers of percent-encoding, unless there are too many."""
    for _ in range(_LAYERS):
        if "%" not in text:
            break
        before = text
        text = unquote(_MANY_LAYERS.sub("%", text) if "%25" in text else text)
        if text == before:
            break
    return text


def _clean_name(name: str) -> str:
    return _NAME_JUNK.sub("", _unquoted(name).replace("+", " "))


def _seen_name(name: str) -> str:
    """Return ``name`` as it is read: without what nobody sees, each wide letter as the usual one."""
    if name.isascii() and "%" not in name:
        return name
    decoded = _unquoted(name)
    return name if decoded.isascii() else unicodedata.normalize("NFKC", _INVISIBLE.sub("", decoded))


def _plain_name(name: str) -> str:
    name = _clean_name(name).lower().replace("-", "_")
    return name[2:] if name.startswith("x_") else name


def _ends_secretly(name: str) -> bool:
    """Return whether the last word of the name of a parameter, or the last two or three, count as secret.

    See ``_LAST_WORDS``. A number behind the last word makes no difference, nor does a plural of some.
    """
    words = [word.lower() for word in _BETWEEN_WORDS.split(_clean_name(name)) if word]
    if not words:
        return False
    words[-1] = words[-1].rstrip(_DIGITS) or words[-1]
    if words[-1].endswith(_PLURALS):
        words[-1] = words[-1].removesuffix("s")
    ends = ("".join(words[-count:]) for count in (1, 2, 3))
    return words[-1].endswith(_LAST_LETTERS) or not _LAST_WORDS.isdisjoint(ends)


def _without_ordinary(name: str) -> str:
    """Return the name of a parameter with ``w`` for its ordinary words; "" if it only is about a secret.

    Ordinary ones have the letters of one that counts: `signal`, `tokenizer`, `max_tokens`, `boarding_pass`.
    """
    clean = _clean_name(name)
    pieces = _KEPT_BETWEEN_WORDS.split(clean)
    words = [piece.lower() for piece in pieces[::2]]
    if len(words) > 1 and words[-1] in _ABOUT and "[" not in clean:
        return ""
    for at, (before, word) in enumerate(pairwise(("", *words))):
        if f"{before} {word}" in _ORDINARY_PAIRS:
            pieces[2 * at] = pieces[2 * at - 2] = "w"
        elif _ORDINARY(word):
            pieces[2 * at] = "w"
    return "".join(pieces)


def is_secret_param(name: str, naming: int = NAMING) -> bool:
    """Return whether a query parameter (or header) of this name carries a secret.

    Case, percent-encoding, white space, ``-`` for ``_`` and a leading ``X-`` make no difference.
    A name is secret if it is in ``_NAMES``, also within or before brackets, if it begins with ``sig`` or
    ends with the word, or if it contains ``token``, ``secret``, ``passw``, ``api_key``, ``hmac``, ``csrf``
    or ``signature``, or ends with ``access_key``, ``reset_code`` or other ``_LAST_WORDS``, also in camel
    case.
    Words that only have those letters are not (``signal``, ``max_tokens``), nor is what ends with one that
    says something about a secret (``token_type``), nor Azure's sv, se, sp and sr.
    """
    # Cached: the URLs of a list share a few names.
    return _is_secret(name, naming) if len(name) <= _LONGEST_NAME else _is_secret.__wrapped__(name, naming)


@lru_cache(1024)
def _is_secret(name: str, naming: int) -> bool:
    name = _seen_name(name) if naming >= _BY_WORDS else name
    found = _counts(name, naming)
    if found and naming >= _BY_WORDS and (rest := _without_ordinary(name)) != name:
        return _counts(rest, naming)
    return found


def _counts(name: str, naming: int) -> bool:
    plain = _plain_name(name)
    if plain in _NAMES or plain.startswith("sig") or any(part in plain for part in _PARTS):
        return True
    names = _NAMES
    if naming >= _MORE_SECRETS:
        if plain.endswith(_MORE_ENDS) or any(part in plain for part in _MORE_PARTS):
            return True
        names |= _MORE_NAMES
    if naming >= _STILL_MORE_SECRETS:
        if plain.endswith(_STILL_MORE_ENDS) or (naming < _BY_WORDS and plain.endswith(_ANY_SIG)):
            return True
        if any(part in plain for part in _STILL_MORE_PARTS):
            return True
        names |= _STILL_MORE_NAMES
    if naming >= _BY_WORDS:
        if plain.startswith(_FIRST_LETTERS) or _ends_secretly(name):
            return True
        names |= _SHORT_NAMES
    return plain in names or ("[" in plain and not names.isdisjoint(_BRACKETS.split(plain)))


def _is_strong(name: str, naming: int) -> bool:
    """Return whether ``name=`` carries a secret even outside a query."""
    plain = _plain_name(name)
    if plain.startswith("sig") or (plain.endswith("sig") and "_" not in plain):
        return plain in ("sig", "signature")
    if plain in _WEAK:
        return False
    # A name in lower case has other words.
    return is_secret_param(name, naming) or (naming < _BY_WORDS and is_secret_param(plain, naming))


def _piece(
    piece: str, parameter: bool, query: bool, naming: int, strict: bool, whole: str
) -> tuple[str, bool]:
    """Return a piece between separators, redacted, and whether a secret was cut at its end.

    ``parameter``: it has a name and a value, in a path or a ``query``. ``strict``: it is of a URL whose
    host is certain. ``whole``: what it is a piece of.
    """
    parts = piece.split("=")
    if parameter and naming >= _BY_EXPIRY and len(piece) - len(parts[0]) > _SHORTEST_MAC:
        value = piece[len(parts[0]) + 1 :]
        if _DATED_MAC(value) or (_MAC(value) and _EXPIRY(whole)):
            return f"{parts[0]}={_CUT}", True
    secret = is_secret_param if parameter else _is_strong
    for index, part in enumerate(parts[:-1]):
        seen = _seen_name(part) if naming >= _BY_WORDS else part
        name = _BEFORE_NAME.split(seen.rstrip("\"' "))[-1]
        if secret(name, naming) or (
            naming >= _BY_WORDS and parameter and " " in seen and is_secret_param(seen, naming)
        ):
            return "=".join(parts[: index + 1]) + "=" + _CUT, True
    if naming >= _BY_WORDS and len(parts) > 1 and _has_quoted(piece):
        return f"{parts[0]}={_CUT}", True
    if "%" in piece and _hides(piece, parameter, query, naming, strict):
        if strict and not query:
            segments = [_segment(segment, naming) for segment in piece.split("/")]
            less = _unquoted("/".join(segments))
            if _logins(less, alone=False) == less:
                return "/".join(segments), segments[-1].endswith(_CUT)
        return (parts[0] + "=" if len(parts) > 1 and "%" not in parts[0] else "") + _CUT, True
    return piece, False


def _has_quoted(piece: str) -> bool:
    """Return whether a value is text, such as JSON, with the name of a secret and a quoted value."""
    decoded = _unquoted(piece) if "%2" in piece else piece
    return ('"' in decoded or "'" in decoded) and _QUOTED.search(decoded) is not None


def _hides(piece: str, parameter: bool, query: bool, naming: int, strict: bool) -> bool:
    """Return whether there is a secret in ``piece`` that percent-encoding hides.

    As in a URL within the URL: its own separators are encoded.
    """
    decoded = _unquoted(piece)
    if decoded == piece:
        return False
    if _unquoted(decoded) != decoded:
        return True  # nobody encodes so often, and no depth is enough for those who do
    if strict:
        return _target(decoded, parameter, naming, query=query) != decoded
    return _rest(decoded, parameter, naming) != decoded


def _segment(segment: str, naming: int) -> str:
    """Return a segment of the path of a URL without the secret that it hides, if it does."""
    if "%" not in segment or not _hides(segment, False, False, naming, True):
        return segment
    name = _EQUALS.split(segment, 1)[0]
    return f"{name}%3D{_CUT}" if name != segment and not _hides(name, False, False, naming, True) else _CUT


def _parameters(rest: str, parameter: bool, query: bool, naming: int, strict: bool = False) -> str:
    """Return ``rest`` without the values of secret parameters.

    A value extends to the next ``&name=``: a raw ``;``, ``#``, ``?`` or a lone ``&`` may belong to it.
    """
    tokens = _SEPARATOR.split(rest)
    first, cut = _piece(tokens[0], parameter, query, naming, strict, rest)
    out = [first]
    for separator, piece in zip(tokens[1::2], tokens[2::2], strict=True):
        query = query or separator in "?#"
        if cut and not (separator == "&" and "=" in piece):
            continue
        kept, cut = _piece(piece, True, query, naming, strict, rest)
        out += (separator, kept)
    return "".join(out)


def _userinfo(text: str) -> str:
    """Return ``text`` without ``user:password`` (or anything after ``//``) before its last ``@``."""
    left, at, right = text.rpartition("@")
    if not at:
        return text
    slashes = left.find("//")
    colon = left.find(":")
    if slashes >= 0:
        start = slashes + 2
    elif colon >= 0:
        start = 0
        for match in _BEFORE_USER.finditer(left, 0, colon):
            start = match.end()
    else:
        return text
    return f"{left[:start]}{_CUT}@{right}"


def _rest(rest: str, parameter: bool = False, naming: int = NAMING) -> str:
    """Return ``rest`` redacted: path, query and fragment of a URL, or a word of free text."""
    if "@" in rest:
        end = re.search(r"[?#]|$", rest)
        cut = end.start() if end else len(rest)
        rest = _userinfo(rest[:cut]) + rest[cut:]
    if "=" in rest or "%" in rest:
        rest = _parameters(rest, parameter, True, naming)
    return _userinfo(rest) if "@" in rest else rest


def _target(
    target: str, parameter: bool = False, naming: int = NAMING, *, query: bool | None = None
) -> str:
    """Return ``target`` redacted: path, query and fragment of a URL whose host is certain.

    The userinfo of a URL ends at the first slash behind it (RFC 3986 §3.2): so of the path, in which ``:``
    and ``@`` are characters like others, only URLs within it have a login. A query may also have one alone.
    ``parameter``: it begins with one, in the ``query`` unless that is said not to be so.
    """
    begins_in_query = parameter if query is None else query
    if "=" in target or "%" in target:
        target = _parameters(target, parameter, begins_in_query, naming, strict=True)
    if "@" not in target:
        return target
    at = 0 if begins_in_query else _query_start(target)
    path, (first, *values) = target[:at], _VALUES.split(target[at:])
    if _NESTED.search(path):  # a password that is not encoded may have a ? in it
        less = _logins(path + first, alone=False)
        at = _query_start(less)
        path, first = less[:at], less[at:]
    return path + "".join(_logins(value, alone=True) for value in (first, *values))


def _query_start(target: str) -> int:
    match = _TARGET_QUERY.search(target)
    return match.start() if match else len(target)


def _logins(text: str, *, alone: bool) -> str:
    """Return ``text`` without the logins of the URLs in it, and without one ``alone``, before them."""
    if "@" not in text:
        return text
    ends = [*(match.end() for match in _NESTED.finditer(text)), len(text)]
    first = text[: ends[0]]
    out = [_userinfo(first) if alone else first]
    for start, end in pairwise(ends):
        found = _authority(text[start:end])
        out.append(f"{found[0]}{found[1]}" if found[2] else f"{found[0]}{_userinfo(found[1])}")
    return "".join(out)


def _authority(url: str) -> tuple[str, str, bool]:
    """Return the authority with which ``url`` begins, redacted; what follows; and if that is a target.

    Else it may have a part of a password. The authority of none is "***", or "" if there may be an ``@``.
    """
    end_match = _AUTHORITY_END.search(url)
    end = end_match.start() if end_match else len(url)
    authority, rest = url[:end], url[end:]
    if "@" in authority:
        host = authority.rpartition("@")[2]
        if "=" in host or "%" in host or not _HOST_PORT.fullmatch(host):
            host = _CUT
        is_clear = _CLEAR_HOST.fullmatch(host) is not None
        if "@" in rest and not is_clear:  # or the password contained an `@` and then a `/`
            host, rest = "", rest.rpartition("@")[2]
        return f"{_CUT}@{host}", rest, is_clear
    is_host = "=" not in authority and _HOST_PORT.fullmatch(authority.removesuffix(":"))
    if is_host and not (authority.endswith(":") and "@" in rest):
        return authority, rest, True
    # Neither a host nor host:port. A password may contain `/`, `?` or `#` unencoded.
    if "@" in rest:
        return f"{_CUT}@", rest.rpartition("@")[2], False
    return _CUT, rest, False


def redact_url(url: str) -> str:
    """Return the URL without its secrets: ``***@`` for the userinfo, ``***`` for secret values.

    Covers query, fragment, path parameters (``;sid=…``) and URLs within the URL, encoded or not. A
    malformed URL loses everything that may be a secret. Never raises.
    """
    if not ("@" in url or "=" in url or "%" in url) and _PLAIN_ORIGIN(url):
        return url
    prefix = _PREFIX.match(url)
    start = prefix.end() if prefix else 0
    if url[:1] == "/" and url[1:2] not in ("/", "\\"):  # the path and query alone
        return _target(url)
    shown, rest, is_target = _authority(url[start:])
    authority = "" if is_target else _AUTHORITY_END.split(url[start:], maxsplit=1)[0]
    if authority and "@" not in authority and not _HOST_PORT.fullmatch(authority.removesuffix(":")):
        if "=" in authority and ":" not in authority and "@" not in url:
            return url[:start] + _rest(url[start:])
        if _is_plain(url, start):
            return redact(_rest(url))
    rest = _target(rest) if is_target and "://" in url[:start] else _rest(rest)
    return f"{url[:start]}{shown}{rest}"


def _is_plain(text: str, start: int) -> bool:
    """Return whether ``text``, whose host would begin at ``start``, is no URL: it has no scheme and no @.

    A line of `aws s3 ls`, `C:\\Users`, or a time: a colon alone makes no password.
    """
    if ":" in text[:start] or "/" in text[:start] or "\\" in text[:start]:
        return False
    decoded = _unquoted(text)
    return "@" not in decoded and "%" not in decoded


def precedes_host(text: str) -> bool:
    """Return whether the host of a URL follows ``text``, a part of a path."""
    return _BEFORE_HOST.search(_unquoted(text)) is not None


def without_secrets(text: str, naming: int, *, query: bool = False) -> str:
    """Return a path segment (or a ``query``) without the secrets that ``redact_url`` cuts, for a name.

    The secrets are removed without a replacement, so ``redact_url`` finds nothing in the result. A text
    without secrets is returned unchanged. Never raises.
    """
    for _ in range(_ROUNDS):
        cut = (_rest if naming < _BY_THE_RFC else _target)(text, query, naming)
        if cut == text:
            return text
        text = cut.replace(f"{_CUT}@", "").replace(f"={_CUT}", "").replace(_CUT, "")
    return ""  # each removal produced another secret


def _word(match: re.Match[str]) -> str:
    word = match[0]
    scheme = _SCHEME.search(word)
    if scheme is None:
        return _rest(word) if "=" in word or "@" in word or "%" in word else word
    before, url = word[: scheme.start()], word[scheme.start() :]
    shown_before = _rest(before)
    if shown_before != before:  # a secret whose value is, or contains, a URL
        return shown_before
    if redact_url(url) == url:
        return word
    tail = _TAIL.search(url)
    if tail and redact_url(url[: tail.start()]) == url[: tail.start()]:
        return word
    return before + redact_url(url)


def spellings(secret: str) -> set[str]:
    """Return the spellings of a secret in URLs, in reprs and in JSON."""
    raw = secret.encode("utf-8", "surrogatepass")
    quoted = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    lower = {re.sub(r"%[0-9A-F]{2}", lambda hit: hit[0].lower(), text) for text in quoted}
    return {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], *quoted, *lower}


@lru_cache(1024)
def forms_of(secret: str) -> tuple[str, ...]:
    """Return what ``pattern_of`` looks for of one secret: nothing, if it has too few characters.

    Its spellings, and what ``redact`` leaves where it has taken the beginning for the name of a parameter.
    """
    if len(secret) < SHORTEST:
        return ()
    whole = spellings(secret)
    return (
        *whole,
        *(
            f"{form[: sign.start()]}{mark}{_CUT}"
            for form in whole
            for sign in islice(_EQUAL_SIGN.finditer(form, SHORTEST), _MOST_NAMES)
            for mark in ("=", "%3D")
        ),
    )


@lru_cache(256)
def pattern_of(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return a pattern of ``secrets`` in their usual spellings and any case, the longest first.

    Also where ``redact`` has taken the beginning of one for the name of a parameter, and has cut the rest.
    Those of fewer than SHORTEST characters do not count; None if none does.
    """
    forms = {form for secret in secrets for form in forms_of(secret)}
    if not forms:
        return None
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))), re.I)


def _cut_value(hit: re.Match[str]) -> str:
    if hit[3]:
        return f"{hit[1]}{hit[2]}{hit[3]}{_CUT}{hit[3]}"
    end = hit.end(1)
    if _FILE(hit.string[max(0, end - _LONGEST_NAME) : end]):
        return hit[0]
    return f"{hit[1]}{hit[4]}{_CUT}"


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """Return free text, such as the message of an exception, without its secrets.

    These are cut: secrets in URLs, as by ``redact_url``; secrets in paths with a query, as urllib3 prints
    them; the values of Authorization, Proxy-Authorization, Cookie, Set-Cookie and ``…-Token``, ``…-Key``
    headers, to the end of the line or of the quoted string; the word after Bearer and Basic;
    ``user:password@``; keys as services issue them, see ``issued_keys``; each string of ``secrets`` of
    at least 4 characters, longest first, in its usual spellings and any case; and everything after 64
    KiB. Never raises.
    """
    # First: a part of one may look like the name of a parameter, whose value is cut, and the rest not.
    if (pattern := pattern_of(tuple(secrets))) is not None:
        text = pattern.sub(_CUT, text)
    if len(text) > _LONGEST:  # cut between words: a secret in half a URL might not be recognized
        text = text[:_LONGEST].rpartition(" ")[0] + " " + _CUT
    text = ISSUED.sub(_CUT, text)
    text = _HEADER.sub(_cut_value, text)
    text = _QUOTED.sub(_cut_value, text)
    text = _SCHEME_VALUE.sub(lambda hit: f"{hit[1]}{hit[2]}{_CUT}", text)
    if "=" in text or "@" in text or "%" in text or "://" in text:
        text = _WORD.sub(_word, text)
    return text


def credentials_in(url: str) -> list[str]:
    """Return the password in ``url``, or a user name without a password, which may be a token."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    secret = parts.password or parts.username or ""
    return [secret, unquote(secret)] if secret else []
