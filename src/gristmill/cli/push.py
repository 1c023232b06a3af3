"""gristmill push"""

from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for, words_of, worker_count
from gristmill.cli.signals import signals_held

ANSWER_IS_NO = 1


def push(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "push DIR HUB-ID [--upload] [options]",
        "Check a finished dataset and show what would go to the Hugging Face Hub; with --upload, send it, in one "
        "commit. Answers 1 if anything speaks against it. Who you are is known from 'hf auth login' or HF_TOKEN.",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset that gristmill build has made")
    parser.add_argument("repo_id", metavar="HUB-ID", help="yourname/dataset, or an organisation's")
    parser.add_argument("--upload", action="store_true", help="really send it; without, nothing is sent")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--private", action="store_true", help="for you and your organisation only (default)")
    who.add_argument("--public", action="store_true", help="for everybody")
    parser.add_argument("--revision", metavar="BRANCH", help="made if it is not there (default: main)")
    parser.add_argument("--message", metavar="TEXT", help="of the commit")
    parser.add_argument(
        "--format", metavar="NAME", action="append", help="send these formats only, with a manifest of them; repeatable"
    )
    parser.add_argument("--allow-failed-check", action="store_true", help="although gristmill check fails")
    parser.add_argument("--allow-secrets", action="store_true", help="although secrets are left, or nobody looked")
    parser.add_argument("--allow-unlicensed", action="store_true", help="although nobody knows some files' licence")
    parser.add_argument("--allow-paths", action="store_true", help="although folders of this machine are named")
    parser.add_argument("--workers", metavar="auto|N", default="auto", help="processes to check with (default: auto)")
    add_output_options(parser, "what goes, and each verdict")
    given = parser.parse_intermixed_args(arguments)
    allowed = {
        "check": given.allow_failed_check,
        "secrets": given.allow_secrets,
        "licences": given.allow_unlicensed,
        "paths": given.allow_paths,
    }
    with signals_held("gristmill.publish.push"):
        from gristmill.publish.push_result import push_json, push_text  # noqa: PLC0415 - --help does without
    pushed = gristmill.push(
        given.folder,
        given.repo_id,
        upload=given.upload,
        private=not given.public,
        revision=given.revision,
        message=given.message,
        formats=words_of(given.format),
        allow=[name for name, is_allowed in allowed.items() if is_allowed],
        progress=gristmill.Progress(quiet=given.quiet or given.json),
        workers=worker_count(given.workers) or "auto",
    )
    if given.json:
        print(push_json(pushed))
    elif not (given.quiet and given.upload and pushed.ok):  # what would go is an answer, and a refusal an error
        print(push_text(pushed, upload=given.upload))
    return 0 if pushed.ok else ANSWER_IS_NO
