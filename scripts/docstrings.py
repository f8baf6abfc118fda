"""Docstrings as Markdown for the documentation: an extension of griffe, named in mkdocs.yml.

Our docstrings hold doctests and shapes such as ``[N, m] [M14]``. Markdown would read the first as
quotations and the second as links.
"""

import re
from typing import Any

import griffe


class DocstringsAsMarkdown(griffe.Extension):
    """Put doctests into code blocks and escape what looks like a link."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    r"""Return a docstring with doctests fenced and pairs of brackets that are no links.

    >>> to_markdown("Sums [N, m] [M14].\n\n>>> 1 + 1\n2\n").splitlines()
    ['Sums [N, m] \\[M14].', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    parts = re.split(r"(^[ ]*>>> (?:.|\n(?!\s*\n|\Z))*)", text.rstrip(), flags=re.MULTILINE)
    for place, part in enumerate(parts):
        if place % 2:
            indent = re.match(" *", part)[0]  # type: ignore[index]
            parts[place] = f"{indent}```pycon\n{part}\n{indent}```"
        else:
            parts[place] = re.sub(r"\](\s?)\[", r"]\1\\[", part)
    return "".join(parts)
