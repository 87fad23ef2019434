"""No secret is shown, whatever surrounds it; harmless text stays readable."""

from __future__ import annotations

import base64
import html
import json
import re
import time
from collections.abc import Callable
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.echoes import Echoes, secrets_of_headers
from downloader.core.redact import NAMING, is_secret_param, redact, redact_url, without_secrets

SECRET = "hunter2Zq"
URLISH = st.text(
    st.sampled_from(list(":/?#[]@&=;%. \t\n'\"<>)(a1\\*,-_")) | st.characters(max_codepoint=0x2FF)
)
# None of its characters occurs in what the tests put around it; so every leak is visible.
ALIEN = st.text(st.sampled_from("ΑΒΓΔΕΖΗΘ"), min_size=3, max_size=12)
WORDS = """
token access_token id_token key apikey api_key secret password passwd pwd auth authorization
credential sig signature code session sid jwt X-Amz-Signature X-Amz-Credential X-Amz-Security-Token
X-Goog-Signature AWSAccessKeyId GoogleAccessId TOKEN Sig signed_by client_secret refresh_token
passwort x-api-key to%6ben to%256ben user[password] key[0] a[code] %20token
hmac oauth_signature access_key accesskey auth_key private-key Subscription-Key url_signature passphrase
sas hdnts hdnea x[hmac]
temp_url_sig hsig tempauth SAMLResponse assertion license_key sessid mac csrf xsrf-value
OSSAccessKeyId q-ak rlkey
SAMLart saml_response session_key sessionkey Session-Key passkey pass_key pass-phrase jwt_assertion
oauth_verifier code_verifier ASPSESSIONIDQQABCDEF ASP.NET_SessionId encryption_key encryptionKey enc_key
otp_code verify_code verificationCode reset_code activation_code user_code device_code authcode oobCode
oobcode totp tkn x_tkn cred aws.creds service_ticket loginTicket connect.sid cf_clearance authn appkey
AppKey app_key master_key masterkey webhook_key webhookkey license-key user_pass
data[session_key] session%5Fkey mySessionKey AWSMasterKey user[otp]
db_pwd userPwd userpwd oldpwd pswd http_auth proxy_auth proxyAuth basicauth auth2 oauth user_session
auth.session login_session sess session_cookie auth-cookie sessionCookie my_bearer pw user_pw dbpw pat
github_pat dbpass userpass ftp_pass pass1 new_pass2 sign signed_url user_session_id token_id max_token
secretary_token signal_token tokenizer_secret passkeyhash_token boarding_password sign_up_token
access_tokens password[type] token[count] tokens
oauth_code access_keys privkey priv_key deploy_key share_key recovery_key activation_key
rss_key pass_code lastPass one_pass userSign app_sign sas_url consumer_key login_key feed_key
dl_key gpgkey newpass one_time_code magic_link client_keys api_keys ssh_keys backup_codes
recoveryCodes deployKey shareKey recoverykey rssKey feedkey invite_key admin_key developer_key
write_key service_key serialKey preshared_key wifi_key gpg_key tls_key magic_key otp_key
sso_code twoFactorCode two_factor_code emailCode pairing_code redeem_code oauthCode oneTimeCode
passCode invitation_code validation_code old_pass myPass my_pass wifi_pass zippass torrent_pass
keypass masterpass redispass emailpass lastpass onePass sasUrl sas_uri presigned_url
preSignedUrl webhook_url reset_link invite_link connection_string connStr card_pin app_sig
apiSign appSign requestSign urlsig usersig tempurlsig temp_url_sig request_sig sig1 sig hub_sig
urlSign
psk wifi_psk sesskey sess_key storepass keyStorePass loginticket decrypt_key unseal_key wallet_key
function_key functionKey bindpw download_code recovery_phrase seedPhrase share_link private_link
session_cookies x-ms-sas unsubscribe_key
"""
# As stores, CDNs and services spell them: Amazon, Google, Azure, Akamai, CloudFront, Fastly, Bunny,
# Alibaba, Tencent, OAuth 1 and 2, Firebase, Discord, Slack, Zoom, GitHub, GitLab,
# Bitbucket, Hugging Face, Kaggle.
SERVICES = """
X-Amz-Signature X-Amz-Credential X-Amz-Security-Token x-amz-s3session-token AWSAccessKeyId Signature
X-Goog-Signature X-Goog-Credential GoogleAccessId access_token sig code subscription-key
hdnea hdnts hdntl __gda__ __token__ hmac token Fastly-Key AccessKey auth_key
X-Oss-Signature X-Oss-Credential OSSAccessKeyId security-token q-signature q-ak x-cos-security-token
txSecret oauth_token oauth_verifier oauth_signature client_secret refresh_token id_token code_verifier
client_assertion device_code user_code auth oobCode apiKey hm pub_secret pwd zak tk jwt
private_token job_token rss_token feed_token deploy_token PRIVATE-TOKEN JOB-TOKEN X-Xet-Access-Token
kaggle_key api_sig auth_token
"""
# What names a row, a place or a kind; what limits a secret; signs; words with the letters of others.
ORDINARY = """
passwordLimit minsig asig locksig sigX csrf_protection security_code share_code
grant_code session_code license_code factor_code join_key product_key merchant_key
device_pin cache_key partition_key foreign_key error_code page_key row_key group_key
hash_key index_key routing_key idempotency_key item_key data_key map_key project_key
issue_key public_key file_key translation_key natural_key composite_key storage_key
message_key event_key view_key viewkey user_key area_code language_code lang_code
currency_code airport_code color_code source_code product_code item_code promo_code
coupon_code postal_code phone_code dialing_code exchange_code timecode time_code
qr_code class_code region_code state_code reason_code response_code exit_code pincode
road_sign star_sign call_sign plus_sign zodiacSign traffic_sign dollar_sign minus_sign
trespass overpass render_pass two_pass first_pass msig sig_y sigma_x sigfigs sighting
min_sig sigclip password_policy token_expiration tokenLifetime secret_name token_name
session_name password_required token_price signature_format password_attempts keys
codes links pins hotkeys sortKeys cache_keys country_codes sublink symlink image_link
download_link login_url return_url base_url image_url spin hairpin key_name page_size
"""
SECRET_NAMES = st.sampled_from(f"{WORDS} {SERVICES}".split())


@pytest.mark.parametrize("name", sorted({*WORDS.split(), *SERVICES.split()}))
def test_secret_parameter_names(name: str) -> None:
    assert is_secret_param(name)
    for separator in "?&;#":
        assert redact_url(f"http://h/a{separator}{name}=abc") == f"http://h/a{separator}{name}=***"
        assert redact(f"url: /a{separator}{name}=abc x") == f"url: /a{separator}{name}=*** x"


@pytest.mark.parametrize(
    "name",
    [
        *("", "sv", "se", "sp", "sr", "a", "q", "keyword", "author", "next-marker", "design"),
        *("sort_key", "bypass", "passenger", "compass", "exp", "acl", "tickets"),
        *("config", "temp_url_expires", "macro", "stock", "design-by", "q-sign-time", "etag"),
        *("country_code", "zip_code", "postalCode", "pin_code", "status_code", "preset_code", "barcode"),
        *("primary_key", "object_key", "partition-key", "publicKey", "site_key", "monkey", "mapKey"),
        *("side", "residence", "inside", "insider", "presider", "passage", "surpass", "pass_count"),
        *("ticket_id", "otp_length", "code_challenge", "client_assertion_type", "session_date"),
        *("sample", "samples", "same", "credits", "accredited", "verified", "clearance", "total"),
        *(
            "author",
            "authority",
            "authors",
            "tokenizer",
            "tokenize",
            "keyword",
            "monkey",
            "passage",
            "assign",
        ),
        *(
            "signup",
            "sign_up",
            "signIn",
            "sign-out",
            "signal",
            "signals",
            "signalStrength",
            "sigma",
            "sigmoid",
        ),
        *(
            "significance",
            "pattern",
            "path",
            "patch",
            "pats",
            "pwdx",
            "secretary",
            "secretariat",
            "secretion",
        ),
        *(
            "max_tokens",
            "maxTokens",
            "max_new_tokens",
            "maxOutputTokens",
            "max_tokens_to_sample",
            "num-tokens",
        ),
        *("token_count", "tokenCount", "token_type", "token_limit", "signature_version", "SignatureMethod"),
        *("oauth_signature_method", "sign_type", "password_length", "boarding_pass", "boardingPass"),
        *(
            "low_pass",
            "season_pass",
            "underpass",
            "pawn",
            "spawn",
            "cookies_accepted",
            "sessions",
            "auth_type",
        ),
        *("bearers", "pw_length", "obsession", "possession", "session_count", "cookie_policy", "assess"),
        *("client_id", "redirect_uri", "response_type", "grant_type", "scope", "oauth_version", "nonce"),
        *("oauth_timestamp", "code_challenge_method", "X-Amz-Algorithm", "X-Amz-Date", "X-Amz-Expires"),
        *(
            "X-Amz-SignedHeaders",
            "X-Goog-SignedHeaders",
            "response-content-disposition",
            "versionId",
            "alt",
        ),
        *ORDINARY.split(),
        *("skoid", "sktid", "ske", "Expires", "Policy", "Key-Pair-Id", "ex", "is", "generation", "w", "x_"),
    ],
)
def test_harmless_parameter_names(name: str) -> None:
    assert not is_secret_param(name)
    for separator in "?&/":
        assert redact_url(f"http://h/a{separator}{name}=5") == f"http://h/a{separator}{name}=5"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://u:p@h/x", "http://***@h/x"),
        ("http://token@h:8080/x?a=1", "http://***@h:8080/x?a=1"),
        ("http://u:p@w@h/x", "http://***@h/x"),
        ("http://h/x?token=abc&a=1", "http://h/x?token=***&a=1"),
        ("http://h/x?a=1&sig=a;b=c&d=e", "http://h/x?a=1&sig=***&d=e"),
        ("http://h/x?a=1;TOKEN=abc", "http://h/x?a=1;TOKEN=***"),
        ("http://h/#access_token=abc&x=1", "http://h/#access_token=***&x=1"),
        ("http://h/#/r?token=abc", "http://h/#/r?token=***"),
        ("http://h/x?password=a&b", "http://h/x?password=***"),
        ("http://h/x;jsessionid=abc", "http://h/x;jsessionid=***"),
        ("http://h/?sv=1&se=2&sp=r&sr=b&sig=ab%3D", "http://h/?sv=1&se=2&sp=r&sr=b&sig=***"),
        ("http://h/?u=http%3A%2F%2Fa%3Ab%40c%2F", "http://h/?u=***"),
        ("http://h/?u=http%3A%2F%2Fc%2F%3Ftoken%3Dabc", "http://h/?u=***"),
        ("/get/x?token=abc", "/get/x?token=***"),
        ("//u:p@h/x", "//***@h/x"),
        ("u:p@h/x", "***@h/x"),
        # userinfo ends at the first slash (RFC 3986); a URL within the path may have one, too
        ("http://u:p@h.example/2024:01/i@2x.png", "http://***@h.example/2024:01/i@2x.png"),
        ("http://u:p@127.0.0.1:80/a:b/@c", "http://***@127.0.0.1:80/a:b/@c"),
        ("http://h/web/http://u:p@a.example/i@2x.png", "http://h/web/http://***@a.example/i@2x.png"),
        ("http://h/web/http:/u:p@a.example/x", "http://h/web/http:/***@a.example/x"),
        ("http://h/ftp://u:p@a.example/x?y=http://v:w@h", "http://h/ftp://***@a.example/x?y=http://***@h"),
        ("http://h/http://u:p?w@a/x", "http://h/http://***@a/x"),
        ("http://h/http%3A%2F%2Fu:p%40a/i.png", "http://h/***/i.png"),
        ("http://h/http://u%3Ap%40a/i.png", "http://h***"),
        ("http://h/x?t=10:30&p=u:p@a&m=a@b", "http://h/x?t=10:30&p=***@a&m=a@b"),
        # a secret that is encoded takes its segment
        ("http://h/a/token%3Dabc/b.jpg", "http://h/a/token%3D***/b.jpg"),
        ("http://h/a/b/sig%253Dabc.jpg", "http://h/a/b/***"),
        ("http://h/a/to%6ben%3Dabc%2Fd;x=1/c", "http://h/a/to%6ben%3D***"),
        # malformed: a password with a raw `/`, `?`, `#`, or an encoded `@`
        ("http://user:pa/ss@h/x", "http://***@h/x"),
        ("http://user:pa?ss@h/x", "http://***@h/x"),
        ("http://user:#pass@h/x", "http://***@h/x"),
        ("http://user:pass%40h/x", "http://***/x"),
        ("http:/u:p@h", "http:/***@h"),
        ("user:pass%2540h/x", "***/x"),
        ("user:pa/ss%40h/x", "***/ss%40h/x"),
        ("http://user:pass/x", "http://***/x"),
        # no URL at all
        ("Authorization: Bearer abc", "Authorization: ***"),
        ("x: token=abc def", "x: token=***"),
        ("a:b http://u:p@h/x", "***@h/x"),
        ("http:///u:p@h", "http:///***@h"),
        ("http://u:p\\@h/", "http://***@h/"),
    ],
)
def test_redact_url(url: str, expected: str) -> None:
    assert redact_url(url) == expected
    assert redact_url(expected) == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "http://h/2024-01-01T10:30/photo@2x.jpg",
        "https://web.archive.example/web/2010/http://example.com/blog/img@3x.png",
        "http://h/a:b/npm/@scope/pkg/index.js",
        "http://h/wiki/File:Me@home.png",
        "http://h/a:b/i@2x.png?t=10:30&mail=me@b.example#at@10:30",
        "http://h/x?u=http://cdn.example/a:b/i@2x.png",
        "http://h/x?u=http%3A%2F%2Fcdn.example%2Fa%3Ab%2Fi%402x.png",
        "http://h/a%3Ab/i%402x.png",
        "http://h/design%3Dblue/sign%3D1/i.png",
        "https://h.example:8443/a/b.txt?x=1&y=%20z#frag",
        "http://[::1]:8080/a",
        "http://bücher.example/ü",
        "https://medium.com/@user/a",
        "http://h:80/img@2x.png?mail=a@b.example",
        "/list?next-marker=abc%26d",
        "http://h:80:",
        "2024-01-01 10:00:00       123 echo/0.txt",
        "C:\\Users\\me\\a.txt",
        "12:30",
        "s3:bucket/key a:b",
        "magnet:?xt=urn:btih:c12fe1",
        "",
        "http://",
    ],
)
def test_harmless_urls_stay(url: str) -> None:
    assert redact_url(url) == url
    assert redact(f"see {url} there") == f"see {url} there"


MAC = "Xy3_aVn0fGk1Zq-8sdKw2A"
SIGNED = [
    f"md5={MAC}&expires=1700000000",
    f"expires=1700000000&md5={MAC}",
    f"st={MAC}&e=1700000000",
    f"verify=1700000000-{MAC}%3D",
    f"hash={'0123456789abcdef' * 2}&validto=1700000000",
    f"secure={MAC}==&expires=1700000000",
    f"h={MAC}&Expires=1700000000&x=1",
]


@pytest.mark.parametrize("query", SIGNED)
def test_what_signs_a_link_until_a_time_is_cut_under_any_name(query: str) -> None:
    for url in (f"https://h/a.jpg?{query}", f"https://h/a?u={quote(f'https://i/b?{query}', safe='')}"):
        cut = redact_url(url)
        assert MAC not in cut
        assert "0123456789abcdef" not in cut
        assert MAC not in redact(f"403 for url: {url}")
    plain = f"/a.jpg?{query}"
    assert without_secrets(plain, 8) == plain  # a job that has begun keeps its names
    assert without_secrets(plain, NAMING) != plain


@pytest.mark.parametrize(
    "query",
    [
        f"md5={MAC}",
        "expires=1700000000&size=large&page=12",
        "e=1700000000&name=summer-holidays-of-the-family",
        f"id={MAC}&e=5",
        "v=1700000000-12",
    ],
)
def test_without_an_expiry_or_a_signature_a_query_stays(query: str) -> None:
    assert redact_url(f"https://h/a.jpg?{query}") == f"https://h/a.jpg?{query}"


def test_a_path_alone_is_that_of_a_url_if_it_is_said_to_be() -> None:
    path = "/2024-01-01T10:30/photo@2x.jpg"
    assert redact_url(path) == path
    assert "10:30" not in redact(f"see {path} there")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # as requests and urllib3 print them
        (
            "HTTPConnectionPool(host='h', port=80): Max retries exceeded with url: "
            "/get/x?token=abc (Caused by ResponseError('too many 500 error responses'))",
            "HTTPConnectionPool(host='h', port=80): Max retries exceeded with url: "
            "/get/x?token=*** (Caused by ResponseError('too many 500 error responses'))",
        ),
        (
            "403 Client Error: Forbidden for url: https://u:p@h/x?sig=abc",
            "403 Client Error: Forbidden for url: https://***@h/x?sig=***",
        ),
        ("url: /a?sig=abc", "url: /a?sig=***"),
        ("Invalid URL 'http://u:p@/x': No host supplied", "Invalid URL 'http://***@/x': No host "),
        ("Authorization: Basic dTpw\nHost: h", "Authorization: ***\nHost: h"),
        ("Proxy-Authorization: Digest a=b, c=d", "Proxy-Authorization: ***"),
        ("Cookie: a=b; c=d", "Cookie: ***"),
        ("set-cookie: a=b; Path=/", "set-cookie: ***"),
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        (
            "{'Authorization': 'Bearer abc', 'Host': 'h'}",
            "{'Authorization': '***', 'Host': 'h'}",
        ),
        ("(b'Cookie', b'a=b')", "(b'Cookie', b'***')"),
        ('{"access_token": "a b", "n": 1}', '{"access_token": "***", "n": 1}'),
        ("got Bearer abc.def back", "got Bearer *** back"),
        ("got Basic dTpw back", "got Basic *** back"),
        ("proxy user:pass@host:3128 failed", "proxy ***@host:3128 failed"),
        ("password='a b c' x", "password=*** x"),
        ("see token=abc", "see token=***"),
        ("token=http://u:p@h/", "token=***"),
        # harmless
        ("connect to http://h:80: refused", "connect to http://h:80: refused"),
        ("see (http://h/a?x=1).", "see (http://h/a?x=1)."),
        ("mail a@b.example, code=404, key=3", "mail a@b.example, code=404, key=3"),
        ("50% at 12:30", "50% at 12:30"),
        ("MissingTokenError: missing_token: no", "MissingTokenError: missing_token: no"),
        ("invalid_token: it has expired", "invalid_token: it has expired"),
        ("d/.downloader/name-key: no space left", "d/.downloader/name-key: no space left"),
        ("/proc/api-key: it cannot be made", "/proc/api-key: it cannot be made"),
    ],
)
def test_redact(text: str, expected: str) -> None:
    assert redact(text).startswith(expected)
    for leak in ("abc", "u:p", "dTpw", "pass@", "a=b"):
        assert leak not in redact(text)


def test_literal_secrets_are_removed() -> None:
    assert redact("x s3cr3t y s3cr3t-long z", ["s3cr3t", "s3cr3t-long"]) == "x *** y *** z"
    assert redact("abc is short", ["abc", ""]) == "abc is short"
    secret = "p@ss/w\"rd'ü\n"
    for form in (secret, quote(secret, safe=""), repr(secret), json.dumps(secret)):
        assert redact(f"<{form}>", [secret]).replace("'", "").replace('"', "") == "<***>"


@pytest.mark.parametrize(
    "secret",
    ["Zx9abcdefs3cr3tToken0==", "Zx9-s3cr3t/To+ken==", "my.api-key==", "ab-cd=session-token=cdef=="],
)
def test_secret_that_looks_like_a_parameter_is_cut_whole(secret: str) -> None:
    """Whichever is done first: what is known to be secret, or what looks so."""
    known, others = Echoes([secret]), Echoes(["other"])
    own = [("Authorization", f"Bearer {secret}")]
    for form in (secret, quote(secret, safe=""), quote(secret, safe="").lower(), secret.lower()):
        location = f"http://host/x/{form}/file?a={form}"
        for shown in (
            redact(f"Location: {location} is not allowed", [secret]),
            known.cut_url(location),
            others.cut_url(location, "", own),
            known.cut(redact(f"to {location}")),
            others.cut(redact_url(location), "", own),
            others.cut(redact(f"coding {form} is not known"), "", own),
        ):
            assert re.split("=|%3d", form, flags=re.I)[0].lower() not in shown.lower(), shown


@pytest.mark.parametrize(
    "spell",
    [
        lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),  # as PHP writes it
        lambda secret: quote(json.dumps(secret)[1:-1].replace("/", "\\/"), safe="/"),
        lambda secret: "".join(each if each.isalnum() else f"\\u{ord(each):04x}" for each in secret),
        html.escape,
        lambda secret: "".join(each if each.isalnum() else f"&#{ord(each)};" for each in secret),
        lambda secret: "".join(each if each.isalnum() else f"&#x{ord(each):x};" for each in secret),
        lambda secret: base64.b64encode(secret.encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(f"u:{secret}".encode()).decode().rstrip("="),
        lambda secret: base64.b64encode(f"me:{secret}:1".encode()).decode(),
        lambda secret: secret.encode().hex(),
        lambda secret: secret.encode().hex().upper(),
        lambda secret: secret.encode("utf-16-le").decode("latin-1"),
        lambda secret: repr(secret.encode("utf-16-be").decode("latin-1"))[1:-1],
    ],
)
def test_what_a_server_writes_in_another_coding_is_cut(spell: Callable[[str], str]) -> None:
    secret = "tok/En+<9f8e7d&6c5b4a>"
    coded = spell(secret)
    echoes = Echoes([secret])
    kept = base64.b64encode(b"9f8e7d&6c5b4a").decode()[:12], "9f8e7d", b"9f8e7d".hex()
    for text in (f'"{coded}"', f"http://h/x/{coded}/y.jpg", f"text/plain; a={coded}"):
        cut = echoes.cut(text)
        assert "***" in cut
        assert not any(each.lower() in cut.lower() for each in (coded, *kept)), cut
        assert echoes.has(text)
    assert Echoes(["another-secret"]).cut(f'"{coded}"') == f'"{coded}"'


@pytest.mark.parametrize("before", ["", "a", "ab"])
@pytest.mark.parametrize("after", ["", "x", "xy"])
@pytest.mark.parametrize("length", [15, 16, 17])
def test_no_group_of_base64_is_left_that_ends_with_the_secret(before: str, after: str, length: int) -> None:
    secret = "Zq8xK2mP4vTn9Lr3c"[:length]
    coded = base64.b64encode(f"{before}{secret}{after}".encode()).decode()
    for text in (coded, coded.rstrip("=")):
        rest = Echoes([secret]).cut(text).rpartition("***")[2].rstrip("=")
        at = len(coded.rstrip("=")) - len(rest)
        assert 6 * at >= 8 * len(f"{before}{secret}")  # bits


def lower(text: str) -> str:
    return re.sub("%..", lambda hit: hit[0].lower(), text)


@pytest.mark.parametrize(
    "code",
    [
        lambda secret: base64.b64encode(quote(secret, safe="").encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(f"me:{lower(quote(secret))}".encode()).decode(),
        lambda secret: base64.b64encode(
            "".join(f"%{byte:02x}" for byte in secret.encode()).encode()
        ).decode(),
        lambda secret: base64.b64encode(json.dumps({"a": secret}).encode()).decode(),
        lambda secret: base64.b64encode(base64.b64encode(f"me:{secret}".encode())).decode(),
        lambda secret: (
            base64.b64encode(b"x" + base64.urlsafe_b64encode(secret.encode())).decode().strip("=")
        ),
        lambda secret: base64.b64encode(b"xy" + secret.encode().hex().encode()).decode(),
        lambda secret: base64.b64encode(secret.encode()).hex().upper(),
        lambda secret: secret.encode().hex().title(),
        lambda secret: quote(quote(quote(quote(f"<{secret}", safe=""), safe=""), safe=""), safe=""),
    ],
)
def test_what_a_server_writes_in_codings_of_codings_is_cut_from_messages(
    code: Callable[[str], str],
) -> None:
    secret = 'Zq8"?>Lm3x>>?/+tok'
    coded, echoes = code(secret), Echoes(["first-of-them", secret])
    for text in (
        coded,
        f"http://h/x?next={quote(coded, safe='')}",
        f"page 2 of {html.escape(coded)} has no",
    ):
        assert echoes.has(text)
        found = echoes.cut_all(text)
        assert "***" in found
        assert coded not in unquote(html.unescape(found))
        assert found.startswith("http://h/") is text.startswith("http://h/")
    assert Echoes(["another-secret"]).cut_all(coded) == coded


@pytest.mark.parametrize("of_run", [True, False])
@pytest.mark.parametrize("around", [quote, html.escape, lambda text: quote(quote(text, safe=""))])
@pytest.mark.parametrize(
    "code", [lambda raw: base64.b64encode(raw).decode(), lambda raw: raw.hex(), lambda raw: raw.decode()]
)
def test_what_a_server_writes_in_a_coding_of_a_coding_is_cut(
    code: Callable[[bytes], str], around: Callable[[str], str], of_run: bool
) -> None:
    secret = "Zq8?>Lm3x>>?/+tok"
    echoes, own = (Echoes([secret]), []) if of_run else (Echoes([]), [("X-Token", secret)])
    for text in (f"http://h/x?next={around(code(secret.encode()))}", f'"{around(code(secret.encode()))}"'):
        assert "***" in echoes.cut(text, "", own)
        assert code(secret.encode()) not in unquote(html.unescape(echoes.cut(text, "", own)))
        assert not of_run or echoes.has(text)


@pytest.mark.parametrize("of_run", [True, False])
@pytest.mark.parametrize("code", [str, lambda secret: secret.encode().hex()])
def test_credential_in_the_host_of_a_redirect_is_cut(code: Callable[[str], str], of_run: bool) -> None:
    """A server with a name for every host may write it there, which is published as the final URL."""
    secret = "zq7plmn4vx9kr2tb"
    echoes, own = (
        (Echoes([secret]), []) if of_run else (Echoes([]), [("Authorization", f"Bearer {secret}")])
    )
    shown = echoes.cut_url(f"http://{code(secret)}.h.test:80/f/x", "http://h.test/a", own)
    assert code(secret) not in shown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Dataset", "imagenet"),
        ("Cookie", "theme=dark; consent=true; lang=image"),
        ("Referer", "https://site.example/gallery/7"),
    ],
)
def test_words_are_no_credentials(name: str, value: str) -> None:
    for text in ("imagenet_0001.jpg", "dark-room.jpg", "image/png", "https://site.example/gallery/7/a.png"):
        assert Echoes(secrets_of_headers([(name, value)])).cut(text) == text
        assert Echoes([]).cut(text, "", [(name, value)]) == text
    assert secrets_of_headers([("X-Session", "dark"), ("Cookie", "sid=dark; a=b7f3x")])[0] == "dark"
    assert {"dark", "b7f3x"} <= set(secrets_of_headers([("Cookie", "sid=dark; a=b7f3x")]))


@given(ALIEN, SECRET_NAMES, URLISH, URLISH, st.sampled_from("?&;#"))
def test_no_parameter_leaks(secret: str, name: str, before: str, after: str, separator: str) -> None:
    before = before.replace("#", "")
    url = f"http://h.example/a?b=c{separator}{name}={secret}"
    assert secret not in redact_url(url)
    assert secret not in redact_url(f"{url}&{after}".replace(" ", ""))
    assert secret not in redact_url(f"http://h/{before}{separator}{name}={secret}")
    assert secret not in redact(f"{before} {url} {after}")
    assert secret not in redact(f"{before} url: /a/b{separator}{name}={secret} ({after}")
    assert secret not in redact(f"{before} http://h/?next={quote(url, safe='')} {after}")


@given(ALIEN, ALIEN, URLISH, URLISH)
def test_no_userinfo_leaks(user: str, password: str, before: str, after: str) -> None:
    for info in (f"{user}:{password}", f"{user}:", f":{password}", password):
        for scheme in ("http", "https", "HTTP", "socks5"):
            url = f"{scheme}://{info}@h.example/a"
            for out in (
                redact_url(url),
                redact(f"{before} {url} {after}"),
                redact_url(url + after),
            ):
                assert user not in out
                assert password not in out


@given(ALIEN, st.text(st.sampled_from("/?#@:ΑΒΓ%&=;\\[]"), max_size=8))
def test_no_malformed_userinfo_leaks(secret: str, junk: str) -> None:
    assert secret not in redact_url(f"http://user:x{junk}{secret}@h.example/a")
    assert secret not in redact(f"<http://user:x{junk}{secret}@h.example/a>")


@given(URLISH, ALIEN)
def test_literal_secrets_never_leak(text: str, secret: str) -> None:
    if len(secret) >= 4:
        assert secret not in redact(f"{text}{secret}{text}", [secret])


@given(URLISH)
def test_redact_never_raises(text: str) -> None:
    redact_url(text)
    redact(text, [text])
    redact("http://" + text)
    redact_url("http://h.example/" + text)
    is_secret_param(text)


@pytest.mark.parametrize(
    "unit",
    ["a:", "a@", "token=", "%25", "x-", "http://", "'", "Bearer ", "\\", "token='", "[[=", "=b@"],
)
def test_redaction_is_linear(unit: str) -> None:
    started = time.process_time()
    redact(unit * 100_000)
    redact_url(unit * 100_000)
    redact_url("http://h.example/" + unit * 100_000)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("layers", ["%" + "25" * 20_000, "%2" + "%3" * 9_000 + "35", "%2%3" * 9_000])
def test_layers_of_encoding_without_end(layers: str) -> None:
    """One line of a list had them, and ended the run: each layer was a call within a call."""
    for end in ("41", "3Dabc", ""):
        assert len(redact_url(f"http://h/token{layers}{end}")) < 40_100
        assert redact(f"see http://h/a/token{layers}{end} there").startswith("see http://h/a/")
    assert redact_url("http://h/token%" + "25" * 20_000 + "3Dabc") == "http://h/***"


def test_huge_message_is_cut_between_words() -> None:
    out = redact("word " * 20_000 + f"http://u:{SECRET}@h/")
    assert len(out) < 66_000
    assert SECRET not in out
    out = redact("x" * 65_530 + f"http://u:{SECRET}@h/")
    assert SECRET[:2] not in out


@pytest.mark.parametrize(
    "name",
    [
        *("pass word", "token\u00a0", "token\u3000", "to\u00adken", "t\u200boken", "\ufefftoken"),
        *("to%C2%ADken", "t%E2%80%8Boken", "\uff34\uff2f\uff2b\uff25\uff2e", "token%C2%A0"),
    ],
)
def test_names_that_are_read_as_secret_ones(name: str) -> None:
    assert redact_url(f"http://h/a?x=1&{name}=abc&y=2") == f"http://h/a?x=1&{name}=***&y=2"


@pytest.mark.parametrize("value", ['{"password":"abc"}', '{"a": 1, "api_key" : "abc"}', "{'token': 'abc'}"])
def test_text_within_a_value_that_has_a_secret(value: str) -> None:
    for spelt in (value, quote(value), quote(quote(value))):
        assert redact_url(f"http://h/a?data={spelt}&y=2") == "http://h/a?data=***&y=2"
    ordinary = quote('{"page":"abc","note":"the token"}')
    assert redact_url(f"http://h/a?data={ordinary}") == f"http://h/a?data={ordinary}"


@pytest.mark.parametrize("start", ["https://h.test", "https://user:Zx9abcdefs3cr3t@h.test:81", "/x"])
def test_of_a_url_that_is_longer_than_servers_take_the_origin_is_left(start: str) -> None:
    """To look for credentials in 32 kB of escapes takes a second, in which nothing else goes on."""
    shown = Echoes(["Zx9abcdefs3cr3t"]).cut_url(f"{start}/token={'%3D %2F}' * 4000}")
    assert shown in ("https://h.test/***", "https://***@h.test:81/***", "***")
    assert len(Echoes([]).cut_url(f"{start}/{'a' * 8000}")) > 8000
