"""What all pages share: one style sheet, light and dark, and a policy that lets nothing else in.

The style belongs to what has the class ``sea``: a page's body, or a card in somebody's notebook.
"""

import base64
import hashlib
from functools import cache
from importlib import resources


@cache
def read_style() -> str:
    """The style sheet of reports, cards in notebooks and pages of data sets."""
    return (resources.files(__package__) / "look.css").read_text("utf-8")


def write_policy(style: str, script: str | None = None) -> str:
    """A content security policy: this style, this script, pictures in the page, nothing else."""
    allowed = "" if script is None else f"script-src '{_digest(script)}'; "
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; {allowed}"
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
