import ast
import base64
import hashlib
import json
import random
import re
import string
import uuid
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill.checks.secrets import scan_for_secrets
from gristmill.cleaning import secret_checks, secrets
from gristmill.cleaning.secret_checks import compile_pattern
from gristmill.cleaning.secret_kinds import PLACEHOLDER_PATTERN, SECRET_RULES
from gristmill.cleaning.secrets import (
    Secret,
    find_secrets,
    indices_with_openings,
    indices_with_secrets,
    placeholder,
    redact,
)
from gristmill.config.settings import SecretsConfig

CONFIG = SecretsConfig(salt="pepper")
KINDS = sorted({rule.kind for rule in SECRET_RULES})
UPPER = string.ascii_uppercase + string.digits
WORD = string.ascii_letters + string.digits
URL64 = WORD + "-_"
BASE64 = WORD + "+/"
HEX = "0123456789abcdef"

# Prefixes are split in two, so that a secret scanner finds no key in this file.
TOKENS = {
    "age-key": [("AGE-SECRET" + "-KEY-1", UPPER, 58)],
    "aws-access-key": [("AK" + "IA", UPPER, 16), ("AS" + "IA", UPPER, 16)],
    "github-token": [(f"gh{letter}" + "_", WORD, 36) for letter in "pousr"],
    "gitlab-token": [("glp" + "at-", URL64, 20), ("gl" + "rt-", URL64, 20)],
    "google-api-key": [("AI" + "za", URL64, 35)],
    "google-client-secret": [("GOC" + "SPX-", URL64, 28)],
    "stripe-key": [("sk_" + "live_", WORD, 24), ("rk_" + "live_", WORD, 99), ("sk_" + "test_", WORD, 24)],
    "stripe-webhook": [("wh" + "sec_", WORD, 32)],
    "npm-token": [("np" + "m_", WORD, 36)],
    "pypi-token": [("pypi-" + "AgEIcHlwaS5vcmc", URL64, 150)],
    "anthropic-key": [("sk-" + "ant-api03-", URL64, 95)],
    "openrouter-key": [("sk-" + "or-v1-", HEX, 64)],
    "openai-key": [
        ("sk-" + "proj-", URL64, 120),
        ("sk-" + "svcacct-", URL64, 120),
        ("sk-" + "None-", URL64, 60),
        ("sk-", WORD, 48),
        ("sk-", HEX, 32),
    ],
    "huggingface-token": [("h" + "f_", string.ascii_letters, 34)],
    "replicate-token": [("r" + "8_", WORD, 37)],
    "groq-key": [("gs" + "k_", WORD, 52)],
    "xai-key": [("xa" + "i-", WORD, 80)],
    "twilio-key": [("S" + "K", HEX, 32)],
    "digitalocean-token": [("dop" + "_v1_", HEX, 64)],
    "docker-token": [("dckr" + "_pat_", URL64, 27), ("dckr" + "_oat_", URL64, 32)],
    "databricks-token": [("da" + "pi", HEX, 32)],
    "shopify-token": [("shp" + "at_", HEX, 32)],
    "square-token": [("sq0" + "atp-", URL64, 22), ("sq0" + "csp-", URL64, 43)],
    "atlassian-token": [("ATA" + "TT3", URL64, 180)],
    "linear-key": [("lin_" + "api_", WORD, 40)],
    "vault-token": [("hv" + "s.", URL64, 90)],
    "newrelic-key": [("NR" + "AK-", UPPER, 27)],
    "google-oauth-token": [("ya" + "29.", URL64, 120), ("1/" + "/0", URL64, 90)],
    "rubygems-key": [("ruby" + "gems_", HEX, 48)],
    "pulumi-token": [("pu" + "l-", HEX, 40)],
    "sentry-token": [("snt" + "rys_", WORD, 120)],
    "bedrock-key": [("AB" + "SK", WORD, 128)],
}


def draw(rng, alphabet, length):
    return "".join(rng.choices(alphabet, k=length))


def jwt(rng):
    parts = [json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps({"sub": draw(rng, WORD, 20)})]
    head, payload = (base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return f"{head}.{payload}.{draw(rng, URL64, 43)}"


# Functions that make a random token of several parts, keyed by kind.
MULTIPART = {
    "jwt": jwt,
    "slack-token": lambda rng: (
        "xo" + f"xb-{draw(rng, string.digits, 12)}-{draw(rng, string.digits, 12)}-{draw(rng, WORD, 24)}"
    ),
    "discord-token": lambda rng: f"{discord_identity(rng)}.{draw(rng, URL64, 6)}.{draw(rng, URL64, 37)}a",
    "sendgrid-key": lambda rng: "S" + f"G.{draw(rng, URL64, 22)}.{draw(rng, URL64, 43)}",
    "grafana-token": lambda rng: "gl" + f"sa_{draw(rng, WORD, 32)}_{draw(rng, HEX, 8)}",
    "telegram-token": lambda rng: f"{rng.randrange(10**8, 10**10)}:" + f"AA{draw(rng, WORD, 33)}",
}


def discord_identity(rng):
    return base64.b64encode(draw(rng, string.digits, rng.choice([18, 19])).encode()).decode().rstrip("=")


def make_secret(kind, rng):  # noqa: C901
    """Return the name of a setting, the text assigned to the name, and the secret in the text."""
    name, before, after = "SETTING", "", ""
    match kind:
        case kind if kind in TOKENS:
            beginning, alphabet, length = rng.choice(TOKENS[kind])
            value = beginning + draw(rng, alphabet, length - 1) + rng.choice(WORD if alphabet == URL64 else alphabet)
        case kind if kind in MULTIPART:
            value = MULTIPART[kind](rng)
        case "slack-webhook":
            before = "https://hooks.sl" + "ack.com/services/"
            value = f"T{draw(rng, UPPER, 8)}/B{draw(rng, UPPER, 8)}/{draw(rng, WORD, 24)}"
        case "discord-webhook":
            before = f"https://discord.com/api/webhooks/{draw(rng, string.digits, 18)}/"
            value = draw(rng, URL64, 67) + "a"
        case "azure-key":
            before, after = "AccountName=mill;Account" + "Key=", ";EndpointSuffix=core.windows.net"
            value = draw(rng, BASE64, 86) + "=="
        case "url-password":
            scheme = rng.choice(["postgres", "mysql", "mongodb+srv", "redis", "amqp", "https"])
            before, after = f"{scheme}://{rng.choice(['mill', 'app_user', ''])}:", "@db.mill.internal:5432/grist"
            value = draw(rng, WORD, rng.randrange(10, 24))
        case "basic-login":
            name, before = "Authorization", "Basic "
            value = base64.b64encode(f"mill:{draw(rng, WORD, rng.randrange(10, 30))}".encode()).decode()
        case "aws-secret-key":
            name = rng.choice(["aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "secretAccessKey", "AWS_SECRET_KEY"])
            value = draw(rng, BASE64, 40)
        case "assigned-secret":
            name = rng.choice(
                ["api_key", "DB_PASSWORD", "clientSecret", "auth_token", "SECRET_KEY", "smtp_pass", "accessToken"]
            )
            value = draw(rng, WORD, rng.randrange(20, 48))
        case "email":
            value = f"{draw(rng, string.ascii_lowercase, 6)}.{draw(rng, string.ascii_lowercase, 6)}@mill.de"
        case _:
            pytest.fail(f"no sample of {kind}: add a row to TOKENS or MULTIPART, or a case here")
    return name, before + value + after, value


SURROUNDINGS = {
    "python": "import os\n\nclass Größe:\n    {name} = '{line}'\n",
    "json": '{{\n  "size": 1,\n  "{name}": "{line}"\n}}\n',
    "yaml": 'mill:\n  grist: "ä"\n  {name}: {line}\n',
    "dotenv": "# ä\nHOST=here\n{name}={line}\nPORT=1\n",
    "javascript": "const a = 1;\nexport const {name} = `{line}`;\n",
    "toml": '[mill]\n{name} = "{line}"\n',
    "shell": '#!/bin/sh\nexport {name}="{line}"\n',
}


def private_key(rng, label="RSA PRIVATE KEY", num_lines=12):
    lines = [
        "MII" + draw(rng, BASE64, 61),
        *(draw(rng, BASE64, 64) for _ in range(num_lines)),
        draw(rng, WORD, 22) + "==",
    ]
    return [f"-----BEGIN {label}" + "-----", *lines, f"-----END {label}" + "-----"]


def escaped(character, code):
    return lambda key: json.dumps({"private_key": "\n".join(key)}).replace(character, code) + "\n"


def prefixed(write):
    return lambda key: "".join(f"{write(number)}{line}\n" for number, line in enumerate(key, start=98)) + "done\n"


def python_lines(key):
    return "KEY = (\n" + "".join(f'    "{line}\\n"\n' for line in key) + ")\n"


KEY_FORMS = {
    "pem": ("text", lambda key: "\n".join(key) + "\n"),
    "crlf": ("text", lambda key: "\r\n".join(key) + "\r\n"),
    "escaped": ("json", lambda key: json.dumps({"private_key": "\n".join(key) + "\n"})),
    "escaped_twice": ("json", lambda key: json.dumps({"file": json.dumps({"private_key": "\n".join(key) + "\n"})})),
    "triple_quoted": ("python", lambda key: 'KEY = """' + "\n".join(key) + '"""\nx = 1\n'),
    "joined_lines": ("python", python_lines),
    "backslash_lines": ("python", lambda key: 'KEY = "' + "\\n\\\n".join(key) + '"\n'),
    "added_lines": ("javascript", lambda key: "const key = " + " +\n  ".join(f"'{line}\\n'" for line in key) + ";\n"),
    "comment": ("javascript", lambda key: "".join(f"// {line}\n" for line in key)),
    "tight_comment": ("python", lambda key: "".join(f"#{line}\n" for line in key) + "x = 1\n"),
    "yaml_block": ("yaml", lambda key: "key: |\n" + "".join(f"  {line}\n" for line in key) + "more: 1\n"),
    "shell": ("shell", lambda key: 'export KEY="' + "\n".join(key) + '"\n'),
    "one_line": ("dotenv", lambda key: 'KEY="' + " ".join(key) + '"\n'),
    "cut_off": ("text", lambda key: "\n".join(key[:-1])),
    "cut_off_in_line": ("python", lambda key: 'KEY = """' + "\n".join(key)[:400]),
    "escaped_slash": ("json", escaped("/", "\\/")),
    "escaped_plus": ("json", escaped("+", "\\u002B")),
    "escaped_equals": ("json", escaped("=", "\\u003d")),
    "java": ("java", lambda key: "String key = " + "\n    + ".join(f'"{line}\\n"' for line in key) + ";\n"),
    "javascript": ("javascript", lambda key: "const key = " + " +\n  ".join(f'"{line}"' for line in key) + ";\n"),
    "bytes": ("python", lambda key: "KEY = (\n" + "".join(f'    b"{line}\\n"\n' for line in key) + ")\n"),
    "array": ("javascript", lambda key: "const key = [" + ", ".join(f"'{line}'" for line in key) + "].join('\\n');\n"),
    "visual_basic": ("vb", lambda key: "key = " + " & vbCrLf & _\n  ".join(f'"{line}"' for line in key) + "\n"),
    "appended": ("java", lambda key: "".join(f'    text.append("{line}\\n");\n' for line in key)),
    "log": ("text", prefixed(lambda number: f"2024-01-02 03:04:{number} INFO mill: ")),
    "numbered": ("text", prefixed(lambda number: f"{number:>5}  ")),
    "numbered_tight": ("text", prefixed(lambda number: f"{number}:")),
    "hex_escape": ("python", lambda key: "KEY = '" + "\\x0a".join(key) + "'\n"),
    "percent": ("text", lambda key: "key=" + quote("\n".join(key), safe="/+") + "\n"),
    "all_percent": ("text", lambda key: "key=" + quote("\n".join(key), safe="") + "\n"),
    "form": ("text", lambda key: "key=" + quote_plus("\r\n".join(key)) + "\n"),
    "entities": ("xml", lambda key: '<a key="' + "&#10;".join(key) + '"/>\n'),
    "base64": ("yaml", lambda key: "tls.key: " + base64.b64encode("\n".join(key).encode()).decode() + "\nmore: 1\n"),
    "base64_lines": (
        "yaml",
        lambda key: "key: |\n" + base64.encodebytes("\n".join(key).encode()).decode() + "more: 1\n",
    ),
    "cut_off_then_code": ("text", lambda key: "\n".join(key[:-1]) + "\n\ndef mill(grist):\n    return\n"),
    "cut_off_in_quotes": ("python", lambda key: 'KEY = """' + "\n".join(key[:-1]) + '\n"""\n\nmain()\n'),
    "followed_by_code": (
        "python",
        lambda key: 'KEY = """' + "\n".join(key[:-2]) + '\n"""\ndef mill(grist):\n    return\n',
    ),
}


def redact_and_check(text, language, config=CONFIG):
    """Redact a text, and assert the properties that every redacted text must have. Return the result."""
    raw = text.encode()
    redacted = redact(raw, language, config)
    assert find_secrets(redacted.text, emails=config.emails) == []
    assert redacted.text.count(b"\n") == raw.count(b"\n")
    assert redact(redacted.text, language, config) == (redacted.text, ())
    replayed, done = b"", 0
    for one in redacted.redactions:
        value = raw[one.start : one.end]
        assert one.line == raw.count(b"\n", 0, one.start) + 1
        assert one.hash == hashlib.sha256(config.salt.encode() + b"\0" + value).hexdigest()[:4]
        replayed += raw[done : one.start] + placeholder(one.kind, language) + b"\n" * value.count(b"\n")
        done = one.end
    assert replayed + raw[done:] == redacted.text
    return redacted


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "private-key"])
def test_random_secrets_are_found_and_replaced_exactly(kind):
    rng = random.Random(kind)
    config = SecretsConfig(salt="pepper", emails=kind == "email")
    found = Counter()
    for round_number in range(140):
        language = list(SURROUNDINGS)[round_number % len(SURROUNDINGS)]
        name, line, value = make_secret(kind, rng)
        text = SURROUNDINGS[language].format(name=name, line=line)
        redacted = redact_and_check(text, language, config)
        start = text.encode().index(value.encode())
        spans = [(one.kind, one.start, one.end) for one in redacted.redactions]
        found[spans[0][0] if len(spans) == 1 and spans[0][1:] == (start, start + len(value)) else str(spans)] += 1
        if spans == [(kind, start, start + len(value))]:
            assert value.encode() not in redacted.text
        if language == "python":
            ast.parse(redacted.text)
        if language == "json":
            json.loads(redacted.text)
    assert found[kind] >= 0.95 * 140, (
        f"expected {kind} with the exact start and end in 95 % of the texts, found {found}"
    )


def test_every_sample_has_a_rule():
    assert {*TOKENS, *MULTIPART} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_placeholder_pattern_matches_every_kind(kind):
    assert re.fullmatch(PLACEHOLDER_PATTERN, f"<SECRET:{kind}>"), (
        "a kind must consist of at most 32 lowercase letters, digits and hyphens"
    )


@pytest.mark.parametrize("form", KEY_FORMS)
@pytest.mark.parametrize(
    "label", ["RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
def test_private_keys_are_found_in_every_form(form, label):
    language, write = KEY_FORMS[form]
    for seed in range(10):
        key = private_key(random.Random(seed), label, num_lines=seed)
        text = write(key)
        redacted = redact_and_check(text, language)
        for line in key[1:-1]:
            # A leading `/` of a line may remain, because the `/` may belong to a comment.
            assert line.lstrip("/").encode()[:30] not in redacted.text
            assert not [piece for piece in re.findall("[A-Za-z0-9]{6,}", line) if piece.encode() in redacted.text]
        assert {one.kind for one in redacted.redactions} == {"private-key"}
        if language == "python" and not form.startswith("cut_off"):
            ast.parse(redacted.text)
        if language == "json":
            json.loads(redacted.text)


def test_contiguous_key_is_one_redaction():
    key = private_key(random.Random(0))
    for form in ("pem", "crlf", "escaped", "escaped_slash", "percent", "triple_quoted", "yaml_block", "cut_off"):
        language, write = KEY_FORMS[form]
        assert len(redact_and_check(write(key), language).redactions) == 1


def test_headers_of_a_key_are_kept():
    key = private_key(random.Random(1))
    key[1:1] = [
        "Proc-Type: 4,ENCRYPTED",
        "DEK-Info: AES-128-CBC," + draw(random.Random(2), "0123456789ABCDEF", 32),
        "",
    ]
    for lines in (key, key[:-1]):
        text = redact_and_check("\n".join(lines), "text").text.decode()
        assert text.splitlines()[:4] == key[:4]
        assert text.splitlines()[4] == "__SECRET:private-key__"


def test_code_between_key_markers_is_kept():
    source = 'if line == "-----BEGIN PRIVATE KEY-----":\n    inside = True\n    pass\nelif line == "-----END PRIVATE KEY-----":\n    pass\n'
    assert find_secrets(source.encode()) == []
    assert find_secrets(b"-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n") == []
    assert find_secrets(b"-----BEGIN PUBLIC KEY-----\n" + draw(random.Random(0), BASE64, 64).encode()) == []


def test_hashes_ids_and_constants_are_not_secrets():
    rng = random.Random(3)
    for _ in range(300):
        hashes = [hashlib.new(name, rng.randbytes(20)).hexdigest() for name in ("md5", "sha1", "sha256", "sha512")]
        integrity = "sha512-" + base64.b64encode(rng.randbytes(64)).decode()
        constant = base64.b64encode(rng.randbytes(48)).decode()
        unique = str(uuid.UUID(bytes=rng.randbytes(16), version=4))
        text = "\n".join(
            [
                *(f'checksum = "{one}"\nCOMMIT={one}\n{one}  file.tar.gz\npassword_hash: "{one}"' for one in hashes),
                *(f"token = '{one}'" for one in hashes),
                f'"integrity": "{integrity}",\nintegrity {integrity}\n"token": "{integrity}"',
                f'id = "{unique}"\napi_key_id = "{unique}"\nVECTOR = "{constant}"\nassert decode("{constant}") == data',
                f"vector = bytes.fromhex('{rng.randbytes(200).hex()}')\nsecret = '{rng.randbytes(64).hex()}'",
                f"github.com/mill/grist v1.2.3 h1:{base64.b64encode(rng.randbytes(32)).decode()}",
            ]
        )
        assert find_secrets(text.encode(), emails=True) == []


@pytest.mark.parametrize(
    "line",
    [
        *(
            'api_key = "your-api-key-here"',
            'token = "xxxxxxxxxxxxxxxxxxxxxxxx"',
            'password = "changeme"',
            'token = "<token>"',
        ),
        *('TOKEN = "${TOKEN}"', 'token: "{{ token }}"', 'token = os.environ["TOKEN"]', "TOKEN=${SOME_OTHER_TOKEN_2}"),
        *(
            'token = "some_variable_name"',
            'token = "someVariableName2"',
            "password = getpass.getpass()",
            "token = next(it)",
        ),
        *(
            'secret = "correct horse battery staple"',
            'password_url = "https://mill.de/reset/password"',
            "pwd=/home/miller/src2",
        ),
        *(
            'token_path = "/etc/mill/token.json"',
            'secret_name = "projects/mill/secrets/db-password-2"',
            "TOKEN=$(cat token.txt)",
        ),
        *(
            "AK" + "IAIOSFODNN7EXAMPLE",
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "ghp_" + "x" * 36,
        ),
        *(
            "sk-" + "0" * 48,
            "hf_" + "a" * 34,
            "npm_config_registry_some_other_long_name_that_goes_on",
            "task-" + "a1" * 24,
        ),
        *(
            "postgres://user:password@host/db",
            "postgres://user:${PASS}@host",
            "redis://:<pw>@host",
            "mysql://root:%s@host",
        ),
        *(
            "amqp://user:***@host",
            "https://user:passwd1@example.com",
            "http://localhost:8080/@mill",
            "http://[::1]:80/a@b",
        ),
        *("git@github.com:mill/grist.git", "ssh://git@mill.de:22/grist", "mongodb://mill:mill@host", "http://a:b@c"),
        *("eyJhbGciOiJIUzI1NiJ9", "eyJub3QiOiJhIGhlYWRlciJ9.eyJzdWIiOiJtaWxsIn0.c2lnbmF0dXJlc2lnbmF0dXJl"),
        *(
            'tokenizer = load("Qwen/Qwen3-8B-A2B")',
            'TOKEN_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"',
            "max_tokens: 4096",
        ),
        *(
            "'X-Amz-Credential': '%s/%s/%s/%s/aws4_request' % x",
            "then you can pass v1beta3.SqladminV1beta3 to this",
            'i="unknown token ",l=(0,y.default)(u,6),D=l[0],p=l[1],b=l[2],m=l[3],g="P"',
            'password = "$2b$12$R9hCIPz0giURNNX3kh2OPSTaPUgxuqquiXhm3jzMFEKTluEyBzXjM"',
            'secret = "render(template,{name:[1,2,3]})+suffix(4)"',
            "HOST_PORT_PAT = '^(%s|%s|%s)(?::0*?(|0|[1-9][0-9]{0,4}))?$'",
        ),
    ],
)
def test_placeholders_and_code_are_not_secrets(line):
    for text in (line, f"  {line}\n", f"# {line}\n\n"):
        assert find_secrets(text.encode()) == []


@pytest.mark.parametrize(
    "line",
    [
        *(
            '{name} = "{value}"',
            "{name}='{value}'",
            '"{name}": "{value}",',
            "'{name}' => '{value}',",
            '{name} := "{value}"',
        ),
        *(
            '{name}: str = "{value}"',
            "const {name}: string = `{value}`",
            'config["{name}"] = "{value}"',
            '#define {name} "{value}"',
        ),
        *(
            "define('{name}', '{value}');",
            'client.set_{name}("{value}")',
            '<add key="{name}" value="{value}"/>',
            "<{name}>{value}</{name}>",
        ),
        *(
            "{name}={value}",
            "export {name}={value}",
            "{name}: {value}",
            "Server=here;{name}={value};Port=1",
            'x = b"{name}={value}"',
        ),
        *(
            '{name} = r"{value}"',
            '{{\\"{name}\\": \\"{value}\\"}}',
            "- {name}: {value}",
            '{name} = """{value}"""',
            '{name} = @"{value}";',
        ),
        *(
            '{name}                              = "{value}"',
            "define( '{name}',                   '{value}' );",
            "{name}:                             {value}",
            "- name: {name}\n  value: {value}",
            '- name: {name}\n  value: "{value}"',
            '{{"name":"{name}","value":"{value}"}}',
            "<key>{name}</key>\n    <string>{value}</string>",
            'variable "{name}" {{\n  type    = string\n  default = "{value}"\n}}',
        ),
        *(
            "{{{name}: {value}, port: 1}}",
            "{{port: 1, {name}: {value}}}",
            '{name} := []byte("{value}")',
            'var {name} string = "{value}"',
            'let {name} = String::from("{value}");',
            'char {name}[] = "{value}";',
            '{name} <- "{value}"',
            'Dim {name} As String = "{value}"',
            '{name} = ("{value}")',
        ),
        *(
            'process.env.{name} || "{value}"',
            "process.env.{name} ?? '{value}'",
            'os.getenv("{name}") or "{value}"',
            'os.environ.get("{name}", "{value}")',
            "${{{name}:-{value}}}",
            "${{{name}:{value}}}",
            '@{name} ||= "{value}"',
        ),
        *(
            "ENV {name} {value}",
            "machine mill.de login me {name} {value}",
            "mill --{name} {value} --port 1",
            'curl -u "me:{value}" https://mill.de',
            "Authorization: Bearer {value}",
            "headers = {{'Authorization': 'token {value}'}}",
        ),
        *(
            "[mill](https://mill.de/?{name}={value})",
            "<https://mill.de/?{name}={value}>",
            "https://mill.de/?{name}={value}&grist=1",
        ),
        *(
            f'{name} = "{{value}}"'
            for name in ("dbpass", "dbPass", "PASS", "JWT_KEY", "HMAC_KEY", "api.key", "GITHUB_PAT")
        ),
        '{name}_of_the_server_that_grinds_in_production = "{value}"',
    ],
)
def test_values_assigned_to_a_secret_name_are_found(line):
    rng = random.Random(4)
    values = [draw(rng, WORD, 32) for _ in range(40)]
    texts = [line.format(name="api_password", value=value).encode() for value in values]
    found = [[text[one.start : one.end].decode() for one in find_secrets(text)] for text in texts]
    assert sum(one == [value] for one, value in zip(found, values, strict=True)) >= 38


def found_fraction(line, values):
    """Return the fraction of values whose first and last six characters are both removed from the text."""
    texts = [redact(line.format(value=value).encode(), "python", CONFIG).text.decode() for value in values]
    num_left = sum(value[-6:] in text or value[:6] in text for text, value in zip(texts, values, strict=True))
    return 1 - num_left / len(values)


DJANGO = string.ascii_lowercase + string.digits + "!@#$%^&*(-_=+)"
WORDPRESS = WORD + "!@#$%^&*()-_ []{}<>~`+=,.;:/?|"


@pytest.mark.parametrize(
    ("line", "alphabet", "length", "min_fraction"),
    [
        ("SECRET_KEY = '{value}'", DJANGO, 50, 0.8),
        ("define('AUTH_KEY',         '{value}');", WORDPRESS, 64, 0.9),
        ("define( 'LOGGED_IN_SALT',  '{value}' );", WORDPRESS, 64, 0.9),
        ("aws_session_token = {value}", BASE64, 800, 0.9),
        ('AWS_SESSION_TOKEN="{value}"', BASE64, 4000, 0.9),
        ("Server=mill;User=me;Password={value};Port=1", WORD, 12, 0.7),
        ("host=mill password={value} dbname=grist", WORD, 12, 0.7),
        ('api_key = "{value}"', string.ascii_letters, 32, 0.85),
        ('totp_secret = "{value}"', string.ascii_uppercase + "234567", 32, 0.85),
        ("postgres://me:{value}@db.mill.internal/grist", WORD + "$*,()", 14, 0.9),
        ("API_KEY={value}&" + "Tail12", WORD, 24, 0.9),
    ],
)
def test_values_of_any_shape_are_found(line, alphabet, length, min_fraction):
    rng = random.Random(line)
    values = [draw(rng, alphabet, length) for _ in range(100)]
    assert found_fraction(line, values) >= min_fraction
    assert b"Tail12" not in redact(line.format(value="a1B2" + values[0]).encode(), "python", CONFIG).text


def test_uuid_is_a_secret_only_after_a_credential_name():
    value = uuid.UUID(bytes=random.Random(8).randbytes(16), version=4)
    for name in ("CLIENT_SECRET", "HEROKU_API_KEY", "x-api-key", "apiKey", "//registry.npmjs.org/:_authToken"):
        for line in (f'"{name}": "{value}"', f"{name}={value}"):
            assert [one.kind for one in find_secrets(line.encode())] == ["assigned-secret"], line
    for name in ("id", "token", "secret", "password", "api_key_id", "apiKeyId", "access_token_uuid", "public_api_key"):
        assert find_secrets(f'{name} = "{value}"'.encode()) == [], name
    for known in (
        "00000000-0000-4000-8000-000000000000",
        "550e8400-e29b-41d4-a716-446655440000",
        "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        "12345678-1234-4234-8234-123456789012",
    ):
        assert find_secrets(f'api_key = "{known}"'.encode()) == []


def basic(login):
    return base64.b64encode(login.encode()).decode()


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Basic {basic}",
        "curl -H 'Proxy-Authorization: Basic {basic}' https://mill.de",
        'headers = {{"Authorization": "Basic {basic}"}}',
        '{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{basic}"}}}}}}',
        '{{\n  "ghcr.io": {{\n    "auth":\n      "{basic}"\n  }}\n}}',
        "//registry.mill.de/:_auth={basic}",
        '//registry.mill.de/:_auth="{basic}"',
        'password = "{value}"',
        "DB_PASSWORD={value}",
        "https://mill.de/?password={value}&grist=1",
        "export PGPASSWORD='{value}'",
        "password: {value}\nport: 1",
        "<password>{value}</password>",
        "- name: DB_PASSWORD\n  value: {value}\n",
        "machine mill.de login me password {value}",
        "machine mill.de\n  login me\n  password {value}\n",
        "postgres://me:{half}/{half}@{half}@mill/grist",
        "mongodb+srv://me:{half}@{half}/{half}@db.mill.de:27017/grist?w=1",
        "https://me:{half}@{half}@mill.de/grist/@scope",
        "x{token}",
        "token{token}",
        "key1{token}",
    ],
)
def test_secrets_marked_by_a_name_or_format_are_found(line):
    rng = random.Random(line)
    num_found = num_checked = 0
    for _ in range(60):
        value = draw(rng, WORD, rng.randrange(10, 15))
        token = "gh" + "p_" + draw(rng, WORD, 36)
        half = value[:5]
        text = line.format(basic=basic(f"mill:{value}"), value=value, half=half, token=token)
        hidden = next(
            one for one in (basic(f"mill:{value}"), value, token, f"{half}@{half}", f"{half}@") if one in text
        )
        num_found += hidden not in redact_and_check(text, "text").text.decode()
        num_checked += any(True for _ in scan_for_secrets(text.encode(), emails=False))
    assert num_found >= 42  # a random value of ten letters may look like a word
    assert num_checked >= num_found


@pytest.mark.parametrize(
    "line",
    [
        *(f"Authorization: Basic {basic(login)}" for login in ("Aladdin:open sesame", "user:pass", "me:me", "a:b1c2")),
        *(f'"auth": "{basic(login)}"' for login in ("username:password", "user:changeme1", "no colon in here 12")),
        *(
            '"auth": "required"',
            '"auth": "oauth2bearer"',
            '"auth": "c29tZXRoaW5n"',
            "Authorization: Basic $CREDENTIALS",
        ),
        "Authorization: Basic " + "czZCaGRSa3F0MzpnWDFmQmF0M2JW",  # from RFC 6749
        *('password = "Password123!"', 'password = "P@ssw0rd123"', "PASSWORD=admin12345", 'password = "Winter2024!"'),
        *(
            "explicitly pass ``header=0`` to it",
            "Must pass '{err_msg[0]}' OR '{err_msg[1]}'",
            'password = "{name[0]}1"',
        ),
        *("password = newPassword1", "password=self.password1", "PASSWORD=${DB_PASS_1}", 'pwd = "C:/Users2/x1y2"'),
        *(
            '"PasswordLastUsed": "2016-09-08T21:47:36Z"',
            "you need to pass `max_buffer_size=0` here",
            "pass ``min_n=1``.",
        ),
        *("login form password reset2now please", "the login page password authentication2"),
        *("http://localhost:8080/@mill", "https://cdn.mill.de:443/npm/@scope/pkg@1.2.3", "redis://host:6379/0@x"),
        *("git+ssh://github.com:org/repo1@v1.2.3", "svn://host:trunk/x1@123", "mongodb://h1:27017,h2:27017/db@x"),
        "cvs://:pserver:anoncvs@mill.de:/cvs/src",
        "weighs_" + "AVeryLongCamelCaseIdentifierNameThatGoesOnAndOn",
        "mill/test.py,sha256=og" + "hp_xX2TRMtlwP1e93WawB9QlLW0cByINkF6HN6E,3689",
    ],
)
def test_similar_text_is_not_a_secret(line):
    for text in (line, f"  {line}\n", f"# {line}\n\n"):
        assert find_secrets(text.encode()) == []
        assert list(scan_for_secrets(text.encode(), emails=False)) == []


def test_url_password_ends_where_the_host_begins():
    for url, password in {
        "https://me:gR1st9Qx@mill.de/org/repo@main": "gR1st9Qx",
        "git+https://me:gR1st9Qx@localhost/org/repo@main": "gR1st9Qx",
        "redis://:gR1st9Qx@a.mill.de:1,redis://:gR1st8Qy@b.mill.de:1": "gR1st9Qx",
        "postgres://me:gR1st9Qx@mill:5432/grist,jo@mill.de": "gR1st9Qx",
        "postgres://me:gR/1st@9Qx@mill/grist": "gR/1st@9Qx",
    }.items():
        found = find_secrets(url.encode())
        assert url[found[0].start : found[0].end] == password


@pytest.mark.parametrize("before", ["%3D", "\\u003d", "_", "=", "id_", "\\n", "?a=1%26k%3d"])
def test_token_is_found_after_an_encoded_character(before):
    rng = random.Random(before)
    for kind in ("github-token", "aws-access-key", "google-api-key", "npm-token", "jwt"):
        _, value, _ = make_secret(kind, rng)
        text = f'x = "{before}{value}"'.encode()
        assert [(one.kind, text[one.start : one.end].decode()) for one in find_secrets(text)] == [(kind, value)]


def test_rare_token_formats_are_found_completely():
    rng = random.Random(9)
    head = base64.urlsafe_b64encode(b'{"alg":"dir","enc":"A256GCM"}').decode().rstrip("=")
    cloud = base64.b64encode(json.dumps({"o": "1", "k": draw(rng, WORD, 40)}).encode()).decode()
    values = {
        "xo" + "xe-1-" + draw(rng, WORD, 146): "slack-token",
        "xo" + "xe.xoxp-1-" + draw(rng, WORD, 166): "slack-token",
        "glp" + f"at-{draw(rng, WORD, 27)}.01.{draw(rng, HEX, 9)}": "gitlab-token",
        "gl" + f"c_{cloud}": "grafana-token",
        f"{head}.{draw(rng, URL64, 43)}.{draw(rng, WORD, 16)}.{draw(rng, WORD, 90)}.{draw(rng, WORD, 22)}": "jwt",
        f"{head}..{draw(rng, WORD, 16)}.{draw(rng, WORD, 90)}.{draw(rng, WORD, 22)}": "jwt",
    }
    for value, kind in values.items():
        assert find_secrets(f"x = '{value}'".encode()) == [Secret(kind, 5, 5 + len(value), 1)]
    signature = quote(base64.b64encode(rng.randbytes(32)).decode(), safe="")
    text = redact_and_check(f"https://mill.blob.core.windows.net/grist?sv=2024&sig={signature}&se=1", "python").text
    assert text == b"https://mill.blob.core.windows.net/grist?sv=2024&sig=<SECRET:azure-key>&se=1"


def test_private_numbers_in_other_key_formats_are_found():
    rng = random.Random(10)
    number = base64.b64encode(rng.randbytes(256)).decode()
    texts = [
        f"<RSAKeyValue><Modulus>AQAB</Modulus><D>{number}</D></RSAKeyValue>",
        json.dumps({"kty": "RSA", "d": number.rstrip("=").replace("+", "-").replace("/", "_"), "use": "sig"}),
        json.dumps({"kty": "EC", "d": draw(rng, URL64, 43)}, indent=1),
        "\n".join(
            [
                "Private-Lines: 3",
                *(draw(rng, WORD, 64) for _ in range(2)),
                draw(rng, WORD, 22) + "==",
                "Private-MAC: 1f",
            ]
        ),
    ]
    for text in texts:
        redacted = redact_and_check(text, "yaml")
        assert [one.kind for one in redacted.redactions] == ["private-key"]
        assert re.findall("[A-Za-z0-9]{14,}", redacted.text.decode()) == []


@pytest.mark.parametrize("language", ["tsx", "python"])
def test_placeholder_is_not_the_name_of_another_secret(language):
    rng = random.Random(11)
    token = "gh" + "p_" + draw(rng, WORD, 36)
    others = [draw(rng, BASE64, 40) for _ in range(9)]
    for kind in KINDS:
        mark = placeholder(kind, language).decode()
        for text in (
            f'["{mark}", "{others[0]}"]',
            f'{mark}"{others[0]}"',
            f"{mark} = '{others[0]}'",
            f"{mark}{others[0]} ",
        ):
            assert find_secrets(text.encode()) == []
    for before in ("", token + '", "'):
        text = f'const tokens = ["{before}' + '", "'.join(others) + '"];\n'
        assert len(redact_and_check(text, language).redactions) == bool(before)


def test_emails_do_not_hide_secrets():
    rng = random.Random(12)
    config = SecretsConfig(emails=True)
    for name in ("@config.password", "me@config.token", "jo@mill.secret", "@mill.api_key"):
        value = "a1B2" + draw(rng, WORD, 28)
        assert value.encode() not in redact_and_check(f'{name} = "{value}"\n', "ruby", config).text


def test_overlapping_values_are_replaced_as_one():
    rng = random.Random(13)
    token, key = "gh" + "p_" + draw(rng, WORD, 36), "AI" + "za" + draw(rng, WORD, 35)
    value = "a1B2" + draw(rng, WORD, 20)
    access, secret = "AK" + "IA" + draw(rng, UPPER, 16), draw(rng, BASE64, 40)
    for text, kind in {
        f'auth_token = "{value}.{token}"': "github-token",
        f'refresh_token: "{value}:{key}"': "google-api-key",
        f"AWS_CREDENTIALS={access}:{secret}": "aws-access-key",
        f"https://me:{value}.{token}@mill.de/": "github-token",
    }.items():
        redacted = redact_and_check(text, "python")
        assert [one.kind for one in redacted.redactions] == [kind]
        assert not [one for one in (value, token, key, access, secret) if one[-6:] in redacted.text.decode()]


def test_hex_is_a_secret_only_after_a_credential_name():
    value = random.Random(5).randbytes(16).hex()
    assert [one.kind for one in find_secrets(f'API_KEY = "{value}"'.encode())] == ["assigned-secret"]
    assert find_secrets(f'token = "{value}"'.encode()) == []


def test_token_kind_takes_precedence_over_the_name_before_the_token():
    rng = random.Random(6)
    token = "gh" + "p_" + draw(rng, WORD, 36)
    for text in (
        f'token = "{token}"',
        f"TOKEN={token}",
        f"https://{token}:x-oauth-basic@github.com",
        f"https://me:{token}@github.com",
    ):
        assert [one.kind for one in find_secrets(text.encode())] == ["github-token"]


def test_only_the_password_of_a_url_is_replaced():
    url = "db = 'postgres://mill:" + "gR1st9Qx" + "@db.mill.de:5432/grist'\n"
    assert (
        redact_and_check(url, "python").text == b"db = 'postgres://mill:<SECRET:url-password>@db.mill.de:5432/grist'\n"
    )


def test_emails_are_found_only_if_enabled():
    text = "Written by jo.miller@mill.de, see noreply@mill.de, jo@example.com, @decorator, a@b.T, x@2x.png, git@mill.de"
    assert find_secrets(text.encode()) == []
    assert find_secrets(text.encode(), emails=True) == [Secret("email", 11, 28, 1)]
    assert find_secrets(b"mailto:jo.miller@mill.de", emails=True) == [Secret("email", 7, 24, 1)]
    assert find_secrets(b"ssh://jo.miller@mill.de/grist", emails=True) == []


@pytest.mark.parametrize(
    "address",
    [
        *("jo@MILL.DE", "Jo.Miller@Mill.De", "jo@mill.technology", "j@mill.de", "jo%40mill.de", "jö@mill.de"),
        *(
            "pat.o'brien@mill.de",
            "O'Brien@mill.de",
            "x" * 100 + "@mill.de",
            "jo@a.b.c.d.e.f.mill.de",
            "jo+a_b@mill.co.uk",
        ),
    ],
)
def test_email_address_is_replaced_completely(address):
    for before, after in (("", ""), ("'", "'"), ("<", ">"), ("mailto:", ","), ("by ", ".")):
        text = before + address + after
        redacted = redact_and_check(text, "python", SecretsConfig(emails=True))
        assert redacted.text.decode() == f"{before}<SECRET:email>{after}"


def test_code_with_an_at_sign_is_not_an_address():
    for code in ("a@b.T", "x@w.sum(0)", "weights@x.flatten()", "r'@mill.de'", "@app.route", "a @ b.shape"):
        assert find_secrets(code.encode(), emails=True) == []


def test_placeholder_depends_on_the_language():
    assert placeholder("jwt", "python") == b"<SECRET:jwt>"
    for language in ("html", "xml", "svg", "vue", "shell", "dockerfile", "makefile", "text", "php", "entitlements"):
        assert placeholder("jwt", language) == b"__SECRET:jwt__"


def test_text_without_secrets_is_returned_unchanged():
    text = b"x = 1\n"
    assert redact(text, "python", CONFIG).text is text


def test_redaction_reveals_nothing_of_the_value():
    value = jwt(random.Random(7))
    assert value[10:] not in repr(redact(f"x = '{value}'".encode(), "python", CONFIG))


def test_redact_returns_none_if_a_secret_cannot_be_removed(monkeypatch):
    monkeypatch.setattr(secrets, "find_secrets", lambda text, *, emails: [Secret("jwt", 0, 3, 1)])
    assert redact(b"grist", "text", CONFIG) is None


TEXT_BYTES = 1 << 15
MAX_READS_PER_BYTE = 100
"""Texts with e-mail addresses take 62 reads, because the search reads the 256 bytes before each address."""


class ReadCounter:
    """Counter of the bytes that a search reads."""

    num_bytes = 0


class CountedText(bytes):
    """Text that adds the number of bytes read from the text to `work`."""

    def __new__(cls, text, work):
        counted = super().__new__(cls, text)
        counted.work = work
        return counted

    def __getitem__(self, key):
        part = super().__getitem__(key)
        self.work.num_bytes += len(part) if isinstance(part, bytes) else 1
        return part

    def find(self, wanted, start=0, stop=1 << 60):
        found = super().find(wanted, start, stop)
        self.work.num_bytes += (min(stop, len(self)) if found < 0 else found) - start
        return found

    def index(self, wanted, start=0):
        found = super().index(wanted, start)
        self.work.num_bytes += found - start
        return found

    def count(self, wanted, start=0, stop=1 << 60):
        self.work.num_bytes += min(stop, len(self)) - start
        return super().count(wanted, start, stop)


class CountedPattern:
    """RE2 pattern that adds the number of bytes that RE2 reads to `work`. RE2 reads each byte once."""

    def __init__(self, pattern, work):
        self._pattern, self._work = pattern, work

    def _read(self, text, start, stop, found):
        self._work.num_bytes += (found.end() if found else min(stop, len(text))) - start
        return found

    def search(self, text, start=0, stop=1 << 60):
        return self._read(text, start, stop, self._pattern.search(text, start, min(stop, len(text))))

    def match(self, text, start=0, stop=1 << 60):
        found = self._pattern.match(text, start, min(stop, len(text)))
        assert found or min(stop, len(text)) - start <= secrets.MAX_VALUE_BYTES
        return self._read(text, start, stop, found) if found else None

    def fullmatch(self, text, start=0, stop=1 << 60):
        found = self._pattern.fullmatch(text, start, min(stop, len(text)))
        return self._read(text, start, stop, found) if found else None

    def finditer(self, text, start, stop):
        for found in self._pattern.finditer(text, start, stop):
            yield self._read(text, found.start(), stop, found)

    def sub(self, replacement, text):
        self._work.num_bytes += len(text)
        return self._pattern.sub(replacement, text)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "eyJ",
            "eyJ ",
            "eyJ-",
            "eyJhbGciOiJIUzI1NiJ9.",
            "-----BEGIN PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\\n",
            'password="',
        ),
        *(
            "://a:",
            "://a:b1c2d3@",
            "token",
            "token=",
            "secret_token_",
            "\n",
            " ",
            "a",
            "sk-" + "ant-",
            "AK" + "IA",
            "A1b2C3d4" * 4 + "\n",
        ),
        *(
            "@a.b",
            "x@a.bc",
            "-----BEGIN PRIVATE KEY-----\n" + "A1b2C3d4" * 8 + "\n",
            "secret:" + "A1b2C3d4" * 3 + ";",
            "a@b.c",
            "a@b.co ",
            'token="A1b2C3d4E5f6G7h8I9"\n',
            '"abcd",',
            "password" + " " * 40,
            "login a password A1b2C3d4E5 ",
            '"auth": "bWU6QTFiMkMzZDRFNQ=="',
            "postgres://a:b/c@d",
            "gh" + "p_",
            "xgh" + "p_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8 ",
            "-----BEGIN PRIVATE KEY-----\n1: " + "A1b2C3d4" * 8 + "\n-----END PRIVATE KEY-----\n",
            "postgres://a:b1c2/d3e4@f5g6@h ",
            "api_key=A1b2C3d4E5f6G7h8I9&,",
            "LS0tLS1CRUdJTi" + "BQUklWQVRF",
            "é",
        ),
    ],
)
def test_time_is_linear_in_the_text_length(monkeypatch, piece):
    """Count the bytes that are searched, matched or sliced. Failed matches read few bytes and are not counted."""
    work = ReadCounter()
    for module in (secrets, secret_checks):
        monkeypatch.setattr(module, "compile_pattern", lambda pattern: CountedPattern(compile_pattern(pattern), work))
    monkeypatch.setattr(secrets, "_scanner", secrets._scanner.__wrapped__)
    long = (piece * (TEXT_BYTES // len(piece))).encode()
    for text, config in (
        (long, CONFIG),
        (b"-----BEGIN PRIVATE KEY-----\n" + long[: TEXT_BYTES // 2], SecretsConfig(emails=True)),
    ):
        work.num_bytes = 0
        assert redact(CountedText(text, work), "python", config) is not None
        assert work.num_bytes < MAX_READS_PER_BYTE * len(text)


@settings(max_examples=300)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_redaction_of_any_text_is_stable(text):
    redact_and_check(text, "text", SecretsConfig(emails=True))


PIECES = st.sampled_from(
    [
        "password",
        "token",
        "=",
        ":",
        " ",
        '"',
        "'",
        "\n",
        "\\n",
        "://",
        "@",
        "a",
        "-----BEGIN PRIVATE KEY-----",
        "-----END",
        "eyJ",
        ".",
        "//",
        "<",
    ]
    + [
        draw(random.Random(seed), alphabet, length)
        for seed, (alphabet, length) in enumerate([(WORD, 20), (BASE64, 64), (HEX, 32), (URL64, 40)])
    ]
    + [rows[0][0] for rows in TOKENS.values()]
)


@settings(max_examples=300)
@given(st.lists(PIECES, max_size=40))
def test_redaction_of_any_mix_of_pieces_is_stable(pieces):
    redact_and_check("".join(pieces), "python", SecretsConfig(emails=True))


def test_no_secret_is_found_in_code_without_secrets(corpus):
    files = [*Path(gristmill.__file__).parent.rglob("*.py"), *(path for path in corpus.rglob("*") if path.is_file())]
    assert len(files) > 600
    kinds = set()
    for path in files:
        kinds |= {one.kind for one in find_secrets(path.read_bytes())}
    assert kinds == set()


# Batches of texts.


def test_no_opening_depends_on_the_start_or_end_of_a_text():
    """A batch is scanned as one buffer with NUL bytes between texts, so ^ and $ would not match at every text."""
    for rule in SECRET_RULES:
        for pattern in (rule.opening, rule.followed_by):
            without_classes = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", pattern)
            assert not set("^$") & set(without_classes), pattern
            assert not re.search(r"\\[AzZ]", pattern), pattern


EDGES = st.sampled_from(
    [b"", b" ", b"x", b"_", b"'", b'"', b"=", b"pass", b"PASS", b"secret", b"password = ", b"\n", b"sk-", b"@example.o"]
)


@given(st.lists(st.tuples(EDGES, st.sampled_from(KINDS), EDGES, st.booleans()), max_size=5), st.booleans())
def test_results_for_a_batch_equal_results_for_single_texts(parts, emails):
    texts = [
        before + (sample_tokens()[kind] if has_token and kind in sample_tokens() else b"") + after
        for before, kind, after, has_token in parts
    ]
    expected = [number for number, text in enumerate(texts) if find_secrets(text, emails=emails)]
    assert indices_with_secrets(texts, emails=emails) == expected
    assert set(expected) <= set(indices_with_openings(texts, emails=emails))


@cache
def sample_tokens():
    rng = random.Random(7)
    return {
        kind: (start + "".join(rng.choices(letters, k=length))).encode()
        for kind, [(start, letters, length), *_] in TOKENS.items()
    }
