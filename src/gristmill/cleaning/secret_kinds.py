"""Table of secret kinds. Each row has an opening, at which the scan stops, and a precise pattern to match there.

An opening is a short pattern with which a secret, or the text before a secret, begins. All openings, except that of
e-mail addresses, are combined into one RE2 pattern, which searches every text once. The pattern of a row is matched
where the opening begins. It may be slow, because it is rarely tried. The first group that matches is the value, and a
group inside the value is the random part. If two values overlap, the earlier row decides the kind. Test keys
(`sk_test_`) are secrets too, because they give access to accounts.
"""

from typing import Literal, NamedTuple

Check = Literal[
    "token", "key_block", "jwt", "url_password", "aws_secret", "assigned", "password", "basic_login", "email"
]


class SecretRule(NamedTuple):
    """A kind of secret, and the patterns that find it."""

    kind: str
    opening: str
    pattern: str
    check: Check = "token"
    """Check in secret_checks.py that a match must pass."""
    followed_by: str = ""
    """Pattern that must follow the opening. The bytes that it matches may contain further openings."""


# The start of a word. It may follow `_`, an escape as in "\nAKIA", or an encoded character as in `%3DAKIA`.
ESCAPED = r"\\[nrt]|%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}"
WORD_START = rf"(?:\b|_|{ESCAPED})"


def _token(kind: str, opening: str, rest: str, check: Check = "token", followed_by: str = "") -> SecretRule:
    return SecretRule(kind, WORD_START + opening, f"{WORD_START}({opening}({rest}))", check, followed_by)


def _token_anywhere(kind: str, opening: str, rest: str) -> SecretRule:
    """Return a rule that also finds the opening after letters (`tokenghp_…`). `hf_` is too common for this."""
    return SecretRule(kind, opening, f"({opening}({rest}))")


# Placeholder of a redacted secret (`placeholder` in secrets.py). The scan skips placeholders, so that their words are
# not read as the name of a secret.
PLACEHOLDER_PATTERN = "<SECRET:[a-z0-9-]{1,32}>|__SECRET:[a-z0-9-]{1,32}__"
# Names of secrets. `tokens` and `tokenizer` are excluded: in machine learning code, the scan stopped at them in 3 of 4
# cases.
NAME = (
    r"(?:(?i:passw(?:or)?d|passphrase|[_-]pass|(?:db|user|smtp|mail|ftp|admin|root)pass|pwd|secret|credential|[_-]salt"
    r"|(?:api|access|auth|private|signing|encryption|account|master|service|storage|shared|jwt|hmac|nonce)[_.-]?key)"
    r"[A-Za-z0-9_.-]{0,48}"
    r"|(?i:token)(?:[A-HJ-RT-Z0-9_.-][A-Za-z0-9_.-]{0,48})?|\bPASS|\bpass|(?i:git(?:hub|lab)|azure|devops)_(?:PAT|pat))"
)
VALUE = r"[A-Za-z0-9+/=_.~!@#$%^&*?:-]"
BARE_VALUE = r"[A-Za-z0-9+/=_.~!@#$%^*?:-]"
PUNCTUATED_VALUE = r"[!#-&(-\[\]-~]"
QUOTED_PASSWORD = r"[!#-&(-\[\]-_a-~]"
# In code aligned in columns, a value may be far from its name.
SPACES = r"[ \t]{0,40}"
NAME_END = rf"""\\?["'`]?(?:\]|\[[0-9]{{0,4}}\]|\))?{SPACES}"""
TYPE = r"""[ \t]?[A-Za-z_&'][A-Za-z0-9_.&' |\[\]]{0,30}"""
# `- name: NAME⏎  value: `, `{"name": "NAME", "value": `, `variable "name" { default = `
PAIRED = (
    r"""["']?(?:,?\s{1,60}|,)["']?(?i:value)["']?[ \t]{0,4}[:=][ \t]{0,4}"""
    rf"""|"[ \t]{{0,4}}\{{\s{{1,60}}(?:[a-z]{{4,11}}[ \t]{{1,9}}=[ \t]{{1,9}}[a-z]{{4,6}}\s{{1,60}})?default{SPACES}="""
)
# `=`, `:`, `=>`, `:=`, `<-`, `||=`, `?? `, `or`, `: str =`, ` string =`, ` As String =`, `("NAME", `, `" value=`
ASSIGNS = (
    rf"""[=:][=>]?|<-|\|\|=?|\?\?=?|or\b|:{TYPE}=|(?:As[ \t])?[A-Za-z]{{3,12}}[ \t]{{0,8}}=|[,(]|["'][ \t]value="""
    rf"""|{PAIRED}"""
)
WRAPPER = r"(?:(?:\[\]byte|String::from|Some|bytes|SecretStr|Buffer\.from)?\()?"
# `name = "`, `"name": "`, `define('NAME', '`, `setName("`, `NAME "`
QUOTE = rf"""(?:{NAME_END}(?:{ASSIGNS})|[ \t]){SPACES}{WRAPPER}[A-Za-z@&]{{0,2}}\\?["'`]{{1,3}}"""
# `NAME=`, `name: `, `${NAME:-` and `<name>` without quotes. The value must end with its line, string, field or tag.
# After only a space (`ENV NAME value`), the value must end with its line or word.
BARE = rf"""{NAME_END}(?:=|:-?|>|{PAIRED}|</key>\s{{0,60}}<string>){SPACES}"""
BARE_END = r"""(?:["'`;&\s\\,)}\]>|]|</|\z)"""
# A field of a connection string: `Password=value;Port=1`, `password=value dbname=grist`
FIELD = r"""[ \t]?=[ \t]?"""
FIELD_END = r"""(?:;[ \t]?[A-Za-z][A-Za-z _]{1,30}=|;["']|[ \t][a-z_]{2,20}=)"""
ASSIGNED = rf"(?:{QUOTE}|{BARE}{VALUE}{{8}}|[ \t]{{1,4}}{BARE_VALUE}{{16}})"
URL_PART = r"""[^\s/:@"'`<>?#\\,;(){}\[\]|]"""
URL_PASSWORD = r"""[^\s/:@"'`<>?#\\;{}\[\]|]"""
PEM_BEGIN = "-----BEGIN[A-Z0-9 +%]{0,40}PRIVATE(?: |[+]|%20)KEY(?:(?: |[+]|%20)BLOCK)?-----"
# `-----BEGIN RSA PRIVATE` in base64, also with a word other than RSA, or with no word.
PEM_BEGIN_BASE64 = (
    "LS0tLS1CRUdJTiB(?:QUklWQVRF|SU0EgUFJJVkFUR|FQyBQUklWQVRF|EU0EgUFJJVkFUR|PUEVOU1NIIFBSSVZBVEUg"
    "|FTkNSWVBURUQgUFJJVkFUR|QR1AgUFJJVkFUR)"
)
# Keys in a WordPress configuration can contain any character, including spaces.
WORDPRESS_NAME = rf"(?:AUTH|LOGGED_IN|NONCE)_(?:KEY|SALT)',{SPACES}'"
WORDPRESS_VALUE = r"[!#-&(-\[\]-~ ]{64}"
# `Authorization: Bearer `
HEADER = r"""(?i:authorization)\\?["']?\]?[ \t]{0,4}[:=,][ \t]{0,4}\\?["'`]?"""
AUTHORIZATION = rf"{HEADER}(?i:bearer|token|bot|apikey)[ \t]"
# `Authorization: Basic `, and `"auth": "` or `_auth=` in Docker and npm settings: user and password in base64.
BASIC_LOGIN = rf"""(?:{HEADER}(?i:basic)[ \t]|["']auth["'][ \t]{{0,4}}:\s{{0,20}}["']|:_auth[ \t]?=[ \t]?"?)"""
# `login name password `, on one or two lines of a .netrc file.
NETRC = r"\blogin[ \t]"
NETRC_PASSWORD = r"[^\s]{1,64}\s{1,20}password[ \t]{1,8}"
# `curl -u name:`
LOGIN = r"""[ \t](?:-u|--user)[ \t=]["']?[A-Za-z0-9_.@-]{1,64}:"""
# Top-level domains of more than 6 letters. Other long words are attributes, as in `weights@x.flatten`.
LONG_DOMAINS = (
    "academy|capital|center|community|company|computer|consulting|digital|education|energy|engineering|foundation"
    "|holdings|institute|international|management|marketing|network|photography|services|software|solutions|support"
    "|systems|technology|university|ventures"
)
JWT_PART = "[A-Za-z0-9_-]"
BASE64 = "[A-Za-z0-9+/]"
# Three digits in base64. A Discord token begins with several of these groups.
DIGITS_BASE64 = "[MNO][DTjz][AEIMQUYcgk][0-5w-z]"

SECRET_RULES = (
    SecretRule("private-key", PEM_BEGIN, PEM_BEGIN, "key_block"),
    SecretRule(
        "private-key",
        PEM_BEGIN_BASE64,
        rf"({PEM_BEGIN_BASE64}{BASE64}{{20,}}\s{{0,20}}({BASE64}{{40}}){BASE64}*={{0,2}}"
        rf"(?:\s{{1,20}}{BASE64}{{60,}}={{0,2}})*(?:\s{{1,20}}{BASE64}{{1,75}}={{1,2}})?)",
    ),
    SecretRule(
        "private-key",
        "Private-Lines: [0-9]",
        rf"Private-Lines: [0-9]{{1,3}}\r?\n(({BASE64}{{20}})(?:{BASE64}{{44}}\r?\n{BASE64}{{20}})*{BASE64}*={{0,2}}"
        rf"(?:\r?\n{BASE64}{{1,19}}={{0,2}})?)(?:\s|\z)",
    ),
    SecretRule(
        "private-key",
        "<(?:D|P|Q|DP|DQ|InverseQ)>",
        rf"<(?:D|P|Q|DP|DQ|InverseQ)>\s{{0,20}}(({BASE64}{{24}}){BASE64}{{16,}}={{0,2}})\s{{0,20}}</",
    ),
    SecretRule(
        "private-key",
        r"""["'](?:d|p|q|dp|dq|qi|k)\\?["'][ \t]{0,4}:[ \t]{0,4}\\?["']""",
        r"""["'](?:d|p|q|dp|dq|qi|k)\\?["'][ \t]{0,4}:[ \t]{0,4}\\?["']([A-Za-z0-9_-]{40,})\\?["']""",
        "assigned",
        followed_by="[A-Za-z0-9_-]{24}",
    ),
    _token("age-key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}\b"),
    _token_anywhere("aws-access-key", "A[KS]IA", r"[0-9A-Z]{16}\b"),
    _token_anywhere("github-token", "gh[pousr]_", r"[A-Za-z0-9]{36,255}"),
    _token_anywhere("github-token", "github_pat_", r"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _token_anywhere(
        "gitlab-token",
        "gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas)-",
        r"[A-Za-z0-9_-]{20,100}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
    ),
    _token_anywhere("slack-token", r"xoxe(?:\.xox[bp])?-[0-9]-", r"[A-Za-z0-9-]{40,}"),
    _token_anywhere("slack-token", "xox[abeoprs]-", r"[A-Za-z0-9]{6,}-[A-Za-z0-9-]{10,200}"),
    _token("slack-token", "xapp-", r"[0-9]-[A-Z0-9]+-[0-9]+-[A-Za-z0-9]{20,}"),
    SecretRule(
        "slack-webhook", r"hooks\.slack\.com/", r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/]{30,120})"
    ),
    SecretRule("discord-webhook", "/api/webhooks/", r"/api/webhooks/[0-9]{15,22}/([A-Za-z0-9_-]{60,80})"),
    _token(
        "discord-token",
        f"(?:{DIGITS_BASE64}){{2}}",
        rf"(?:{DIGITS_BASE64}){{4}}[A-Za-z0-9]{{0,4}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,38}}",
    ),
    _token_anywhere("google-api-key", "AIza", r"[A-Za-z0-9_-]{35}"),
    _token_anywhere("google-client-secret", "GOCSPX-", r"[A-Za-z0-9_-]{28}"),
    _token("google-oauth-token", r"ya29\.", r"[A-Za-z0-9_.-]{50,}"),
    _token("google-oauth-token", "1//0", r"[A-Za-z0-9_-]{40,120}"),
    _token_anywhere("stripe-key", "[rs]k_(?:live|test)_", r"[A-Za-z0-9]{16,250}"),
    _token_anywhere("stripe-webhook", "whsec_", r"[A-Za-z0-9+/]{32,}=?"),
    _token_anywhere("npm-token", "npm_", r"[A-Za-z0-9]{36}\b"),
    _token_anywhere("pypi-token", "pypi-Ag", r"E[A-Za-z0-9_-]{60,}"),
    _token_anywhere("anthropic-key", "sk-ant-", r"[A-Za-z0-9_-]{32,200}"),
    _token_anywhere("openrouter-key", "sk-or-v1-", r"[0-9a-f]{64}"),
    _token_anywhere("openai-key", "sk-(?:proj|svcacct|admin|None)-", r"[A-Za-z0-9_-]{40,250}"),
    _token("openai-key", "sk-[A-Za-z0-9]{8}", r"[A-Za-z0-9]{12}T3BlbkFJ[A-Za-z0-9]{20}\b"),
    _token("openai-key", "sk-[A-Za-z0-9]{8}", r"[A-Za-z0-9]{24}(?:[A-Za-z0-9]{16})?\b"),
    _token("huggingface-token", "hf_", r"[A-Za-z0-9]{34,40}\b"),
    _token("replicate-token", "r8_", r"[A-Za-z0-9]{37}\b"),
    _token("groq-key", "gsk_", r"[A-Za-z0-9]{52}\b"),
    _token("xai-key", "xai-", r"[A-Za-z0-9]{80}\b"),
    _token("sendgrid-key", r"SG\.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _token("twilio-key", "SK[0-9a-f]{8}", r"[0-9a-f]{24}\b"),
    _token_anywhere("digitalocean-token", "do[opr]_v1_", r"[0-9a-f]{64}\b"),
    _token_anywhere("docker-token", "dckr_[po]at_", r"[A-Za-z0-9_-]{27,36}"),
    _token("databricks-token", "dapi[0-9a-f]{8}", r"[0-9a-f]{24}(?:-[0-9])?\b"),
    _token_anywhere("shopify-token", "shp(?:at|ca|pa|ss)_", r"[0-9a-fA-F]{32}\b"),
    _token("square-token", "sq0(?:atp|csp)-", r"[A-Za-z0-9_-]{22,43}"),
    _token_anywhere("atlassian-token", "ATATT3", r"[A-Za-z0-9_=-]{60,250}"),
    _token_anywhere("grafana-token", "glsa_", r"[A-Za-z0-9]{32}_[0-9a-f]{8}\b"),
    _token("grafana-token", "glc_", r"[A-Za-z0-9+/]{40,}={0,2}"),
    _token_anywhere("rubygems-key", "rubygems_", r"[0-9a-f]{48}\b"),
    _token("pulumi-token", "pul-", r"[0-9a-f]{40}\b"),
    _token_anywhere("sentry-token", "sntry[su]_", r"[A-Za-z0-9+/=_-]{60,}"),
    _token("bedrock-key", "ABSK[A-Za-z0-9+/]{8}", r"[A-Za-z0-9+/]{100,}={0,2}"),
    _token_anywhere("linear-key", "lin_api_", r"[A-Za-z0-9]{40}\b"),
    _token("vault-token", r"hv[sb]\.", r"[A-Za-z0-9_-]{24,250}"),
    _token("telegram-token", "[0-9]{8,10}:AA", r"[A-Za-z0-9_-]{33}\b"),
    _token("newrelic-key", "NRAK-", r"[A-Z0-9]{27}\b"),
    # Rows above match tokens by their prefix. Rows below match values by the text before the value.
    SecretRule(
        "azure-key",
        "(?:Account|SharedAccess)Key=",
        "(?:Account|SharedAccess)Key=([A-Za-z0-9+/]{43}(?:=|[A-Za-z0-9+/]{43}==))",
    ),
    SecretRule(
        "azure-key",
        r"\bsig=",
        rf"\bsig=((?:{BASE64}|%2[BFbf]){{43}}(?:=|%3[Dd]))",
        followed_by="[A-Za-z0-9+/%]{24}",
    ),
    _token(
        "jwt",
        "eyJ",
        rf"{JWT_PART}{{8,500}}\.(?:{JWT_PART}{{8,}}\.{JWT_PART}{{16,}}(?:\.{JWT_PART}{{4,}}\.{JWT_PART}{{16,}})?"
        rf"|\.{JWT_PART}{{8,}}\.{JWT_PART}{{4,}}\.{JWT_PART}{{16,}})",
        check="jwt",
        followed_by="[A-Za-z0-9_-]{8}",
    ),
    *(
        SecretRule(
            "url-password",
            "://",
            rf"""://{URL_PART}{{0,64}}:({password})@[A-Za-z0-9\[${{<%_-]""",
            check="url_password",
            followed_by=rf"{URL_PART}{{0,64}}:{URL_PASSWORD}",
        )
        # Passwords with a slash or an @ (they should be encoded, but often are not), then passwords without them.
        for password in (
            f"{URL_PASSWORD}(?:{URL_PASSWORD}|[/@]){{4,200}}",
            f"{URL_PASSWORD}(?:{URL_PASSWORD}|@){{4,200}}",
            f"{URL_PASSWORD}{{5,200}}",
        )
    ),
    SecretRule(
        "assigned-secret", WORDPRESS_NAME, f"{WORDPRESS_NAME}({WORDPRESS_VALUE})'", followed_by=f"{WORDPRESS_VALUE}'"
    ),
    SecretRule(
        "aws-secret-key",
        NAME,
        rf"{NAME}(?:{QUOTE}|{BARE}|[ \t,])([A-Za-z0-9+/]{{40}})(?:[^A-Za-z0-9+/=]|\z)",
        check="aws_secret",
        followed_by=ASSIGNED,
    ),
    SecretRule(
        "assigned-secret",
        NAME,
        rf"""{NAME}(?:{QUOTE}(?:Bearer |token )?({VALUE}{{12,}})\\?["'`]|{QUOTE}({PUNCTUATED_VALUE}{{32,256}})["']"""
        rf"""|{BARE}({BARE_VALUE}{{16,}}){BARE_END}|{FIELD}({BARE_VALUE}{{8,15}}){FIELD_END}"""
        rf"""|[ \t]{{1,4}}({BARE_VALUE}{{16,}})(?:\s|\z))""",
        check="assigned",
        followed_by=ASSIGNED,
    ),
    SecretRule(
        "assigned-secret",
        NAME,
        rf"""{NAME}(?:{QUOTE}({QUOTED_PASSWORD}{{10,64}})\\?["'`]|{BARE}({VALUE}{{10,64}})(?:["'\s\\]|</|\z))""",
        check="password",
        followed_by=ASSIGNED,
    ),
    SecretRule(
        "assigned-secret",
        NETRC,
        rf"{NETRC}{NETRC_PASSWORD}({PUNCTUATED_VALUE}{{8,64}})(?:\s|\z)",
        check="password",
        followed_by=NETRC_PASSWORD,
    ),
    SecretRule(
        "basic-login",
        BASIC_LOGIN,
        rf"""{BASIC_LOGIN}([A-Za-z0-9+/_-]{{8,512}}={{0,2}})(?:["'`\s\\]|\z)""",
        check="basic_login",
        followed_by="[A-Za-z0-9+/_-]{8}",
    ),
    SecretRule(
        "assigned-secret",
        AUTHORIZATION,
        rf"{AUTHORIZATION}({BARE_VALUE}{{16,}}){BARE_END}",
        check="assigned",
    ),
    SecretRule(
        "assigned-secret",
        LOGIN,
        rf"""{LOGIN}({BARE_VALUE}{{12,}})["'\s]""",
        check="assigned",
    ),
    SecretRule(
        "email",
        r"(?:@|%40)[A-Za-z0-9-]{1,63}\.[A-Za-z]",
        rf"((?:@|%40)(?:[A-Za-z0-9-]{{1,63}}\.){{1,12}}(?:[a-z]{{2,6}}|[A-Z]{{2,6}}|[A-Z][a-z]{{1,2}}|(?i:{LONG_DOMAINS})))\b",
        "email",
    ),
)
