"""gristmill push"""

from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for, words_of, worker_count
from gristmill.cli.signals import delay_signals

REFUSED = 1


def push(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "push DIR HUB-ID [--upload] [options]",
        "Check a dataset and list the files that would be uploaded to the Hugging Face Hub. With --upload, upload them "
        "in one commit. The exit code is 1 if a safety check fails. Log in with 'hf auth login', or set HF_TOKEN.",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset")
    parser.add_argument("repo_id", metavar="HUB-ID", help="yourname/dataset or organization/dataset")
    parser.add_argument("--upload", action="store_true", help="upload the files; without this option, nothing is sent")
    visibility = parser.add_mutually_exclusive_group()
    visibility.add_argument(
        "--private", action="store_true", help="make the dataset visible only to you and your organization (default)"
    )
    visibility.add_argument("--public", action="store_true", help="make the dataset visible to everyone")
    parser.add_argument("--revision", metavar="BRANCH", help="branch to upload to, created if missing (default: main)")
    parser.add_argument("--message", metavar="TEXT", help="commit message")
    parser.add_argument(
        "--format",
        metavar="NAME",
        action="append",
        help="upload only this format, with a manifest that lists only this format; repeatable",
    )
    parser.add_argument("--allow-failed-check", action="store_true", help="upload even if gristmill check fails")
    parser.add_argument(
        "--allow-secrets",
        action="store_true",
        help="upload even if secrets remain, or if the build did not search for secrets",
    )
    parser.add_argument(
        "--allow-unlicensed", action="store_true", help="upload even if some files have no known license"
    )
    parser.add_argument(
        "--allow-paths", action="store_true", help="upload even if the dataset contains paths of this machine"
    )
    parser.add_argument(
        "--workers", metavar="auto|N", default="auto", help="number of processes for the checks (default: auto)"
    )
    add_output_options(parser, "the files and the result of each safety check")
    given = parser.parse_intermixed_args(arguments)
    allowed = {
        "check": given.allow_failed_check,
        "secrets": given.allow_secrets,
        "licenses": given.allow_unlicensed,
        "paths": given.allow_paths,
    }
    with delay_signals("gristmill.publish.push"):
        from gristmill.publish.push_result import push_json, push_text  # noqa: PLC0415 - not needed for --help
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
    elif not (given.quiet and given.upload and pushed.ok):  # with --quiet, dry runs and refusals are still printed
        print(push_text(pushed, upload=given.upload))
    return 0 if pushed.ok else REFUSED
