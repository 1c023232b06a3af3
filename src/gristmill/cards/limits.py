"""What a dataset does not promise, said in its cards."""

from gristmill.cards.making import setting
from gristmill.manifest import Manifest


def limits(manifest: Manifest) -> list[str]:
    """What is not guaranteed."""
    emails = ", but for e-mail addresses" if setting(manifest, "secrets", "emails") else ""
    shared = "Shared code of fewer than 50 tokens, or in other words, counts as no leakage and stays."
    return [
        "Secrets, generated code and near-duplicates are found by rules and sketches, which miss some.",
        shared if manifest.decontamination.how != "off" else "Held-out files and train may share code of any length.",
        f"Names and other personal data in comments and code are left as they are{emails}.",
        "Licences are what headers, package manifests, licence files and tables say; they are not reviewed.",
        "The code was not run, compiled or reviewed: it may be wrong, insecure or offensive.",
    ]
