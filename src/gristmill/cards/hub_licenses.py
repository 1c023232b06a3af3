"""Conversion of SPDX expressions to license identifiers of the Hugging Face Hub and to web pages."""

import re
from collections.abc import Iterable
from typing import Any

from gristmill.cleaning.licenses import NOASSERTION

OTHER = "other"
UNKNOWN = "unknown"
SPDX_ID = re.compile(r"[A-Za-z0-9.+-]+")
# Hub identifiers (huggingface.co/docs/hub/repositories-licenses) that are SPDX ids in lower case.
SAME_NAME = frozenset(
    {
        *("afl-3.0", "apache-2.0", "artistic-2.0", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear", "bsl-1.0"),
        *("cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0"),
        *(
            "cc-by-nc-nd-3.0",
            "cc-by-nc-nd-4.0",
            "cc-by-nc-sa-2.0",
            "cc-by-nc-sa-3.0",
            "cc-by-nc-sa-4.0",
            "cc-by-nd-4.0",
        ),
        *("cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0", "cdla-sharing-1.0"),
        *("ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0", "eupl-1.1", "eupl-1.2", "isc", "lppl-1.3c", "mit", "mpl-2.0"),
        *("ms-pl", "ncsa", "ofl-1.1", "osl-3.0", "postgresql", "unlicense", "wtfpl", "zlib"),
    }
)
OTHER_NAME = {"c-uda-1.0": "c-uda", "odbl-1.0": "odbl", "odc-by-1.0": "odc-by", "pddl-1.0": "pddl"}
"""Hub identifiers that differ from the SPDX id, keyed by SPDX id in lower case."""
GNU = re.compile(r"(agpl-3\.0|lgpl-2\.1|lgpl-3\.0|gpl-2\.0|gpl-3\.0)(-only|-or-later|\+)?")
GNU_DOCS = re.compile(r"gfdl-1\.[123](-.+)?")


def hub_license(spdx: str) -> str:
    """Return the Hub's identifier of a license, such as `gpl-3.0` for `GPL-3.0-or-later`.

    Returns `unknown` for NOASSERTION, and `other` for an SPDX expression or a license without a Hub identifier.
    """
    name = spdx.lower()
    if spdx == NOASSERTION:
        return UNKNOWN
    if gnu := GNU.fullmatch(name):
        return gnu[1]
    if GNU_DOCS.fullmatch(name):
        return "gfdl"
    if name in OTHER_NAME:
        return OTHER_NAME[name]
    return name if name in SAME_NAME else OTHER


def license_entries(spdx_ids: Iterable[str]) -> dict[str, Any]:
    """Return the license entries of the front matter: one license, or a list of all licenses.

    A single license without a Hub identifier is described by its name and a link.
    """
    spdx_ids = list(spdx_ids)
    names = list(dict.fromkeys(map(hub_license, spdx_ids)))
    if not names:
        return {"license": UNKNOWN}
    if names == [OTHER] and len(spdx_ids) == 1 and SPDX_ID.fullmatch(spdx_ids[0]):
        return {
            "license": OTHER,
            "license_name": spdx_ids[0].lower(),
            "license_link": f"https://spdx.org/licenses/{spdx_ids[0]}.html",
        }
    return {"license": names[0] if len(names) == 1 else names}


def license_page(spdx: str) -> str:
    """Return the URL of a license at spdx.org, or `spdx` itself if it is not a single SPDX id."""
    is_listed = SPDX_ID.fullmatch(spdx) and spdx != NOASSERTION and not spdx.startswith("LicenseRef-")
    return f"https://spdx.org/licenses/{spdx}.html" if is_listed else spdx
