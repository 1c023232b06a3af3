"""Measure the search for secrets: its speed, planted secrets that it finds, and look-alikes that it reports by mistake.

python benchmarks/find_secrets.py     # prints the contents of benchmarks/find_secrets.md
"""

import base64
import hashlib
import json
import os
import random
import string
import time
import uuid
from collections import Counter

from measure import STDLIB, machine_text

from gristmill.cleaning.secrets import find_secrets, redact
from gristmill.config.settings import SecretsConfig
from gristmill.sources.decode import Decoded, decode

RUNS = 5
# Texts that are slow to search: beginnings of secrets without an end. Each text is repeated until it fills a megabyte.
SLOW_TEXTS = (
    *(b"eyJ", b"eyJ-", b"-----BEGIN PRIVATE KEY-----", b'password="', b"token=", b"://a:", b"\n", b"a@b.c", b"a@b.co "),
    *(b"login a password A1b2C3d4E5 ", b'"auth": "', b"postgres://a:b/c@d", b"password=A1b2C3d4E5 "),
    *(b'token="A1b2C3d4E5f6G7h8"\n', b"-----BEGIN PRIVATE KEY-----\n" + b'"A1b2C3d4",' * 5000),
)

DRAWS = 20
WORD = string.ascii_letters + string.digits
PASSWORD_CHARACTERS = WORD + "!@#$%^*-_+=?"
URL64 = WORD + "-_"
HEX = "0123456789abcdef"
# Lines with placeholders for random values. {password} is 10 to 14 letters and digits, {signs} is 10 to 14 letters,
# digits and symbols, {half} is 5 letters and digits. `{_}` is empty and prevents secret scanners from reporting this
# file. `⏎` is a line feed. The text of a line is also its random seed.
PLANTED = {
    "known formats": """
        AWS_KEY_ID=AK{_}IA{upper16}
        x = 'gh{_}p_{word36}'
        github{_}_pat_{word22}_{word59}
        gl{_}pat-{url20}
        xo{_}xb-{digits12}-{digits12}-{word24}
        AI{_}za{url35}
        GOC{_}SPX-{url28}
        sk_{_}live_{word24}
        wh{_}sec_{word32}
        np{_}m_{word36}
        pypi-{_}AgEIcHlwaS5vcmc{url120}
        sk-{_}ant-api03-{url95}
        sk-{_}proj-{url120}
        h{_}f_{word34}
        dop{_}_v1_{hex64}
        S{_}K{hex32}
        dckr{_}_pat_{url27}
        shp{_}at_{hex32}
        https://hooks.sl{_}ack.com/services/T{upper8}/B{upper8}/{word24}
        Account{_}Key={word86}==
        jwt: {jwt}
        S{_}G.{url22}.{url43}
    """,
    "known formats directly after other letters": """
        xgh{_}p_{word36}
        tokengh{_}p_{word36}
        keyAK{_}IA{upper16}
        tokennp{_}m_{word36}
        agl{_}pat-{url20}
    """,
    "values assigned to names like api_key": """
        api_key = "{word32}"
        API_KEY={word32}
        "clientSecret": "{word40}"
        secret_key: {word24}
        aws_secret_access_key = {base40}
        define('AUTH_TOKEN', '{word32}');
        Authorization: Bearer {word40}
        api_key = '{hex32}'
        ENV AUTH_TOKEN {word32}
        <add key='ApiKey' value='{word32}'/>
        HEROKU_API_KEY={uuid}
        api_key: "{uuid}"
        //registry.npmjs.org/:_authToken={uuid}
    """,
    "passwords of 10 to 14 characters": """
        password = "{password}"
        DB_PASSWORD={password}
        DB_PASSWORD='{signs}'
        password: {signs}
        <password>{password}</password>
        Server=mill;Password={password};Port=1
        machine mill.de login me password {password}
        machine mill.de⏎ login me⏎ password {password}
    """,
    "passwords in addresses": """
        postgres://me:{password}@db.mill.de/grist
        https://me:{password}@mill.de/grist.git
        postgres://me:{half}/{half}@{half}@db.mill.de/grist
        redis://:{half}@{half}@mill:6379
        amqp://me:{half}/{half}@mill
    """,
    "logins in base64": """
        Authorization: Basic {basic}
        headers = {{'Authorization': 'Basic {basic}'}}
        {{"auths": {{"https://index.docker.io/v1/": {{"auth": "{basic}"}}}}}}
        //registry.mill.de/:_auth={basic}
    """,
}
LOOK_ALIKES = {
    "hashes": """
        checksum = "{sha256}"
        COMMIT={sha1}
        {sha256}  file.tar.gz
        password_hash: "{sha512}"
        token = '{sha1}'
        secret = '{sha256}'
        "integrity": "sha512-{base86}=="
        mill/a.py,sha256={url43},3689
        github.com/mill/grist v1.2.3 h1:{base43}=
    """,
    "UUIDs": """
        id = "{uuid}"
        token = "{uuid}"
        password = "{uuid}"
        secret: {uuid}
        api_key_id = "{uuid}"
        api_key = "550e8400-e29b-41d4-a716-446655440000"
        api_key = "00000000-0000-0000-0000-000000000000"
    """,
    "examples and placeholders": """
        api_key = "your-api-key-here"
        password = "changeme"
        password = "Password123!"
        password = "P@ssw0rd123"
        password = "Winter2024!"
        PASSWORD=admin12345
        PASSWORD=${{DB_PASS_1}}
        token: "{{{{ token }}}}"
        AK{_}IAIOSFODNN7EXAMPLE
        gh{_}p_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
        postgres://user:password@host/db
        https://user:passwd1@example.com
        Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==
        Authorization: Basic dXNlcjpwYXNz
        "auth": "dXNlcm5hbWU6cGFzc3dvcmQ="
    """,
    "code and addresses": """
        password = newPassword1
        password=self.password1
        password = getpass.getpass()
        token = "some_variable_name"
        "PasswordLastUsed": "2016-09-08T21:47:36Z"
        pass `max_buffer_size=0` here
        pwd = "C:/Users2/x1y2"
        "auth": "required"
        http://localhost:8080/@mill
        https://cdn.mill.de:443/npm/@scope/pkg@1.2.3
        git+ssh://github.com:org/repo1@v1.2.3
        redis://host:6379/0@x
        mongodb://h1:27017,h2:27017/db@x
        git@github.com:mill/grist.git
        weighs_AVeryLongCamelCaseIdentifierNameThatGoesOnAndOn
    """,
}


def draw_values(rng: random.Random) -> dict[str, str]:
    """Draw a random value for each placeholder in the lines above."""

    def random_text(alphabet: str, length: int) -> str:
        return "".join(rng.choices(alphabet, k=length))

    def in_base64(part: dict[str, str]) -> str:
        return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")

    alphabets = {"word": WORD, "url": URL64, "hex": HEX, "upper": string.ascii_uppercase + string.digits}
    alphabets |= {"digits": string.digits, "base": WORD + "+/"}
    lengths = (8, 12, 16, 20, 22, 24, 27, 28, 32, 34, 35, 36, 40, 43, 59, 64, 86, 95, 120)
    values = {
        f"{name}{length}": random_text(alphabet, length) for name, alphabet in alphabets.items() for length in lengths
    }
    password = random_text(WORD, rng.randrange(10, 15))
    return values | {
        "password": password,
        "signs": random_text(PASSWORD_CHARACTERS, rng.randrange(10, 15)),
        "half": random_text(WORD, 5),
        "basic": base64.b64encode(f"mill:{password}".encode()).decode(),
        "uuid": str(uuid.UUID(bytes=rng.randbytes(16), version=4)),
        "jwt": ".".join(
            (in_base64({"alg": "HS256", "typ": "JWT"}), in_base64({"sub": password}), random_text(URL64, 43))
        ),
        "_": "",
        **{name: hashlib.new(name, rng.randbytes(20)).hexdigest() for name in ("sha1", "sha256", "sha512")},
    }


def lines_of(group: str) -> list[str]:
    return [line.strip().replace("⏎", "\n") for line in group.strip().splitlines()]


def count_found(line: str) -> int:
    """Redact the line DRAWS times with new random values. Return how often a secret is found and no value remains."""
    rng = random.Random(line)
    value_names = [name for _, name, _, _ in string.Formatter().parse(line) if name and name != "_"]
    num_found = 0
    for _ in range(DRAWS):
        values = draw_values(rng)
        redacted = redact(f"# grist\n{line.format(**values)}\n".encode(), "text", SecretsConfig())
        is_value_left = redacted is None or any(values[name].encode() in redacted.text for name in value_names)
        num_found += redacted is not None and bool(redacted.redactions) and not is_value_left
    return num_found


def print_counts(title: str, groups: dict[str, str]) -> None:
    print(f"| {title} | lines | found |")
    print("| --- | --- | --- |")
    num_lines = 0
    num_found = 0
    for name, group in groups.items():
        lines = lines_of(group)
        found = sum(map(count_found, lines))
        num_lines, num_found = num_lines + len(lines), num_found + found
        print(f"| {name} | {len(lines)} | {found} of {DRAWS * len(lines)} |")
    print(f"| all | {num_lines} | {num_found} of {DRAWS * num_lines} |\n")


def library_texts() -> list[bytes]:
    found = []
    for folder, folders, names in os.walk(STDLIB):
        folders[:] = sorted({*folders} - {"site-packages", "__pycache__"})
        for name in sorted(names):
            with open(os.path.join(folder, name), "rb") as file:
                decoded = decode(file.read())
            if isinstance(decoded, Decoded):
                found.append(decoded.text)
    return found


def best_seconds(texts: list[bytes], *, emails: bool = False) -> float:
    seconds = []
    for _ in range(RUNS):
        started = time.process_time()
        for text in texts:
            find_secrets(text, emails=emails)
        seconds.append(time.process_time() - started)
    return min(seconds)


def main() -> None:
    texts = library_texts()
    megabytes = sum(map(len, texts)) / 1e6
    kinds = Counter(secret.kind for text in texts for secret in find_secrets(text))
    print("# Search for secrets\n")
    print(f"`python benchmarks/find_secrets.py`. {machine_text('gristmill', 'google-re2')}.\n")
    print(
        f"Each line is tested {DRAWS} times, with new random values for its placeholders. Some short passwords look "
        "like words and are not found.\n"
    )
    print_counts("planted", PLANTED)
    print_counts("look-alikes", LOOK_ALIKES)
    print(f"The standard library: {len(texts):,} texts, {megabytes:.1f} MB. CPU time of one core, best of {RUNS}.\n")
    print("| search for | MB/s |")
    print("| --- | --- |")
    print(f"| secrets | {megabytes / best_seconds(texts):.0f} |")
    print(f"| secrets and e-mail addresses | {megabytes / best_seconds(texts, emails=True):.0f} |")
    print(
        f"\nFound in the standard library: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}.\n"
    )
    print("Seconds to redact texts that are slow to search:\n")
    print("| one megabyte of | seconds |")
    print("| --- | --- |")
    for piece in SLOW_TEXTS:
        text = piece * (1_000_000 // len(piece))
        started = time.process_time()
        redact(text, "text", SecretsConfig(emails=True))
        print(f"| `{piece[:40].decode()!r}` | {time.process_time() - started:.2f} |")


if __name__ == "__main__":
    main()
