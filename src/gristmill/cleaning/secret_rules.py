"""The kinds of secrets, one row each: what the scan stops at, and the precise shape that is then checked there.

An opening is short and bounded: all of them go into one RE2 pattern that reads every text once. The pattern, matched
where the opening begins, may cost more, as it is rarely tried. Its group is the value, and a group in that the random
part of it. Earlier rows win where two values overlap. Keys for test modes (`sk_test_`) count: they open accounts too.
"""

from typing import Literal, NamedTuple

Check = Literal["token", "key_block", "jwt", "url_password", "aws_secret", "assigned", "email"]


class SecretRule(NamedTuple):
    kind: str
    opening: str
    pattern: str
    check: Check = "token"
    """What the value must pass beyond its shape; see secrets.py."""
    followed_by: str = ""
    """What must come after the opening for the scan to stop there; the scan goes on right behind the opening."""


def _token(kind: str, opening: str, rest: str, check: Check = "token", followed_by: str = "") -> SecretRule:
    # A word starts here; after an escape, as in "\nAKIA", too.
    pattern = rf"(?:\\[nrt])?({opening}({rest}))"
    return SecretRule(kind, rf"(?:\b|\\[nrt]){opening}", pattern, check, followed_by)


# Names of what is secret. `tokens` and `tokenizer` are not: 3 of 4 stops in machine learning code were theirs.
NAME = (
    r"(?:(?i:passw(?:or)?d|passphrase|[_-]pass|pwd|secret|credential"
    r"|(?:api|access|auth|private|signing|encryption|account|master|service|storage|shared)[_-]?key)[A-Za-z0-9_.-]{0,24}"
    r"|(?i:token)(?:[A-HJ-RT-Z0-9_.-][A-Za-z0-9_.-]{0,24})?)"
)
VALUE = r"[A-Za-z0-9+/=_.~!@#$%^&*?:-]"
BARE_VALUE = r"[A-Za-z0-9+/=_.~!@#$%^*?:-]"
NAME_END = r"""\\?["'`]?\]?[ \t]{0,8}"""
TYPE = r"""[ \t]?[A-Za-z_&'][A-Za-z0-9_.&' |\[\]]{0,30}"""
# `name = "`, `"name": "`, `name => '`, `name: str = "`, `define('NAME', '`, `setName("`, `NAME "`, `name" value="`
QUOTE = (
    rf"""(?:{NAME_END}(?:[=:][=>]?|:{TYPE}=|[,(]|["'][ \t]value=)|[ \t])"""
    r"""[ \t]{0,8}[A-Za-z@&]{0,2}\\?["'`]{1,3}"""
)
# `NAME=`, `name: ` and `<name>` without quotes: only where the value ends with its line, string, field or tag.
BARE = rf"""{NAME_END}(?:=[ \t]?|:[ \t]|>)"""
BARE_END = r"""(?:["'`;&\s\\]|</|\z)"""
GIVEN = rf"(?:{QUOTE}|{BARE}{BARE_VALUE}{{8}})"
URL_PART = r"""[^\s/:@"'`<>?#\\,;(){}\[\]|]"""
PEM_BEGIN = "-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"

SECRET_RULES = (
    SecretRule("private-key", PEM_BEGIN, PEM_BEGIN, "key_block"),
    _token("age-key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}\b"),
    _token("aws-access-key", "A[KS]IA", r"[0-9A-Z]{16}\b"),
    _token("github-token", "gh[pousr]_", r"[A-Za-z0-9]{36,255}"),
    _token("github-token", "github_pat_", r"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _token("gitlab-token", "gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas)-", r"[A-Za-z0-9_-]{20,100}"),
    _token("slack-token", "xox[abeoprs]-", r"[A-Za-z0-9]{6,}-[A-Za-z0-9-]{10,200}"),
    _token("slack-token", "xapp-", r"[0-9]-[A-Z0-9]+-[0-9]+-[A-Za-z0-9]{20,}"),
    SecretRule(
        "slack-webhook", r"hooks\.slack\.com/", r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/]{30,120})"
    ),
    SecretRule("discord-webhook", "/api/webhooks/", r"/api/webhooks/[0-9]{15,22}/([A-Za-z0-9_-]{60,80})"),
    _token("google-api-key", "AIza", r"[A-Za-z0-9_-]{35}"),
    _token("google-client-secret", "GOCSPX-", r"[A-Za-z0-9_-]{28}"),
    _token("stripe-key", "[rs]k_(?:live|test)_", r"[A-Za-z0-9]{16,250}"),
    _token("stripe-webhook", "whsec_", r"[A-Za-z0-9+/]{32,}=?"),
    _token("npm-token", "npm_", r"[A-Za-z0-9]{36}\b"),
    _token("pypi-token", "pypi-Ag", r"E[A-Za-z0-9_-]{60,}"),
    _token("anthropic-key", "sk-ant-", r"[A-Za-z0-9_-]{32,200}"),
    _token("openrouter-key", "sk-or-v1-", r"[0-9a-f]{64}"),
    _token("openai-key", "sk-(?:proj|svcacct|admin)-", r"[A-Za-z0-9_-]{40,250}"),
    _token("openai-key", "sk-[A-Za-z0-9]{8}", r"[A-Za-z0-9]{12}T3BlbkFJ[A-Za-z0-9]{20}\b"),
    _token("openai-key", "sk-[A-Za-z0-9]{8}", r"[A-Za-z0-9]{24}(?:[A-Za-z0-9]{16})?\b"),
    _token("huggingface-token", "hf_", r"[A-Za-z0-9]{34,40}\b"),
    _token("replicate-token", "r8_", r"[A-Za-z0-9]{37}\b"),
    _token("groq-key", "gsk_", r"[A-Za-z0-9]{52}\b"),
    _token("xai-key", "xai-", r"[A-Za-z0-9]{80}\b"),
    _token("sendgrid-key", r"SG\.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _token("twilio-key", "SK[0-9a-f]{8}", r"[0-9a-f]{24}\b"),
    _token("digitalocean-token", "do[opr]_v1_", r"[0-9a-f]{64}\b"),
    _token("docker-token", "dckr_pat_", r"[A-Za-z0-9_-]{27}"),
    _token("databricks-token", "dapi[0-9a-f]{8}", r"[0-9a-f]{24}(?:-[0-9])?\b"),
    _token("shopify-token", "shp(?:at|ca|pa|ss)_", r"[0-9a-fA-F]{32}\b"),
    _token("square-token", "sq0(?:atp|csp)-", r"[A-Za-z0-9_-]{22,43}"),
    _token("atlassian-token", "ATATT3", r"[A-Za-z0-9_=-]{60,250}"),
    _token("grafana-token", "glsa_", r"[A-Za-z0-9]{32}_[0-9a-f]{8}\b"),
    _token("linear-key", "lin_api_", r"[A-Za-z0-9]{40}\b"),
    _token("vault-token", r"hv[sb]\.", r"[A-Za-z0-9_-]{24,250}"),
    _token("telegram-token", "[0-9]{8,10}:AA", r"[A-Za-z0-9_-]{33}\b"),
    _token("newrelic-key", "NRAK-", r"[A-Z0-9]{27}\b"),
    SecretRule(
        "azure-key",
        "(?:Account|SharedAccess)Key=",
        "(?:Account|SharedAccess)Key=([A-Za-z0-9+/]{43}(?:=|[A-Za-z0-9+/]{43}==))",
    ),
    _token(
        "jwt",
        "eyJ",
        r"[A-Za-z0-9_-]{8,500}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}",
        check="jwt",
        followed_by="[A-Za-z0-9_-]{8}",
    ),
    SecretRule(
        "url-password",
        "://",
        rf"""://{URL_PART}{{0,64}}:({URL_PART}{{5,200}})@[A-Za-z0-9\[${{<%_-]""",
        check="url_password",
        followed_by=rf"{URL_PART}{{0,64}}:{URL_PART}",
    ),
    SecretRule(
        "aws-secret-key",
        NAME,
        rf"{NAME}(?:{QUOTE}|{BARE}|[ \t,])([A-Za-z0-9+/]{{40}})(?:[^A-Za-z0-9+/=]|\z)",
        check="aws_secret",
        followed_by=GIVEN,
    ),
    SecretRule(
        "assigned-secret",
        NAME,
        rf"""{NAME}(?:{QUOTE}(?:Bearer |token )?({VALUE}{{12,256}})\\?["'`]"""
        rf"""|{BARE}({BARE_VALUE}{{16,256}}){BARE_END})""",
        check="assigned",
        followed_by=GIVEN,
    ),
    SecretRule("email", r"@[A-Za-z0-9-]{1,63}\.[a-z]", r"(@(?:[A-Za-z0-9-]{1,63}\.){1,4}[a-z]{2,6})\b", "email"),
)

# Words that no random value holds: 4 letters turn up in one of 30,000 tokens.
PLACEHOLDER = (
    r"(?i)example|sample|placeholder|change.?(?:me|it)|your|x{4}|dummy|fake|foobar|test|insert|replace|redact|secret"
    r"|pass(?:wd|word)?$|^pass|passw|pwd|abcdef|012345|123456|qwerty|oauth|\.\.\.|aaaaa|00000000"
)
NO_SECRET_NAME = r"(?i)hash|digest|sha[0-9]|md5|checksum|integrity|fingerprint|public|regex|pattern|charset|alphabet"
NO_SECRET_VALUE = r"^[$@%#/~.&]|://|^(?i:sha[0-9]+|md5)[-:]"
# Behind one of these names even plain hex is a credential; elsewhere it is a hash.
CREDENTIAL_NAME = r"(?i)api[_-]?key|secret[_-]?key|(?:client|app)[_-]?secret|(?:access|auth|bot)[_-]?token"
EXAMPLE_HOST = r"(?i)(?:^|\.)(?:example(?:\.[a-z]+)?|test|invalid)$"
NO_EMAIL = (
    r"@(?:.*\.)?example\.|\.(?:example|test|invalid|png|jpg|jpeg|gif|svg|js|ts|py|css|html|json|md|sh|so)$"
    r"|(?i:^(?:no-?reply|do-?not-?reply|git|user|username|you|your[a-z]*|me|foo|bar|name|email|someone)@)|users\.noreply"
)
