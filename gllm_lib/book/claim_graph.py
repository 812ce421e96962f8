"""Which statements rest on which: the data of a drawing that opens on one result, the same in words, and as a tree.

The drawing shows one statement with all it rests on, or with what rests on it; never the whole book. It is made by a
script, `assets/claim-graph.js`, which stands in the page itself, so that it works wherever the page was rendered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gllm_lib.book.html.linear import linear_text
from gllm_lib.book.markdown import plain
from gllm_lib.book.project import stated
from gllm_lib.proofs.claims import Claim, Registry
from gllm_lib.proofs.status import Status

ASSETS = Path(__file__).parent / "assets"
SIGNS = {"proved": "✓", "supported": "◐", "refuted": "✗", "defined": "≔", "assumed": "△", "open": "?", "stated": "○"}


def drawing(registry: Registry, computed: Mapping[str, Status]) -> str:
    """Return the drawing as a block of HTML: its style, a place for it, its data and its script.

    It is empty where no statement rests on another.
    """
    style, script = ((ASSETS / f"claim-graph.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    found = graph_data(registry, computed)
    if not found["claims"]:
        return ""
    # no name may end the data, or begin a comment that swallows their end
    data = json.dumps(found, ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c")
    return (
        f'```{{=html}}\n<style>\n{style}</style>\n<div id="claim-graph"></div>\n'
        f'<script type="application/json" id="claim-graph-data">{data}</script>\n<script>\n{script}</script>\n```'
    )


def graph_data(registry: Registry, computed: Mapping[str, Status]) -> dict[str, object]:
    """Return what the script draws from: signs, the first statement to show, and every statement with relations.

    A statement is its label, its name, the word and the whole of its status, its page, and the places in this list of
    the statements that it uses.
    """
    used = {label for claim in registry.claims.values() for label in claim.uses}
    related = [claim for claim in registry.claims.values() if claim.uses or claim.id in used]
    place = {claim.id: number for number, claim in enumerate(related)}
    claims = [
        [
            claim.id,
            linear_text(claim.title),
            computed[claim.id].word,
            str(computed[claim.id]),
            f"{claim.chapter}.html",
            [place[label] for label in claim.uses],
        ]
        for claim in related
    ]
    return {"signs": SIGNS, "first": first_shown(registry, computed), "claims": claims}


def first_shown(registry: Registry, computed: Mapping[str, Status]) -> str:
    """Return the statement that the drawing opens on: of those proved, or else of all, the one that rests on most."""
    if not registry.claims:
        return ""
    proved = [label for label in registry.claims if computed[label].word == "proved"]
    return max(proved or registry.claims, key=lambda label: len(registry.ancestors(label)))


def in_words(registry: Registry, computed: Mapping[str, Status], title: Callable[[str], str]) -> str:
    """Return the graph as text: by chapter each statement that rests on others; `title` names a chapter."""
    parts = []
    for chapter in dict.fromkeys(claim.chapter for claim in registry.claims.values()):
        claims = [claim for claim in registry.claims.values() if claim.chapter == chapter and claim.uses]
        if claims:
            items = "\n".join(f"- {_sentence(claim, registry, computed[claim.id])}" for claim in claims)
            parts.append(f"### {title(chapter)} {{.unnumbered}}\n\n::: {{.register}}\n{items}\n:::")
    return "\n\n".join(parts) or "No statement rests on another."


def _sentence(claim: Claim, registry: Registry, status: Status) -> str:
    """Return what one statement uses directly, how many statements that are in all, and what it takes as given."""
    ancestors = registry.ancestors(claim.id)
    word = f"supported ({status.kind})" if status.word == "supported" else status.word
    direct = ", ".join(f"@{label}" for label in claim.uses)
    in_all = f"; in all it rests on {len(ancestors)} statements" if len(ancestors) > len(set(claim.uses)) else ""
    assumed = [label for label in ancestors if registry.claims[label].assumption]
    given = f" Given {' and '.join(f'@{label}' for label in assumed)}." if assumed else ""
    return f"[]{{#on-{claim.id}}}@{claim.id} {claim.title}, *{plain(word)}*, uses {direct}{in_all}.{given}"


def tree(registry: Registry, computed: Mapping[str, Status], label: str) -> Iterator[str]:
    """Yield the lines of a tree of what a claim rests on; what was shown in full above is not unfolded again.

    Raises BookError for a label that no chapter states.
    """
    stated(registry, label)
    shown: set[str] = set()

    def below(label: str) -> Iterator[str]:
        claim = registry.claims[label]
        again = label in shown and bool(claim.uses)
        shown.add(label)
        yield f"{label}, {computed[label]}: {linear_text(claim.title)}{' (as above)' if again else ''}"
        for number, used in enumerate(() if again else claim.uses, 1):
            last = number == len(claim.uses)
            first, *rest = below(used)
            yield f"{'└─ ' if last else '├─ '}{first}"
            yield from (f"{'   ' if last else '│  '}{line}" for line in rest)

    yield from below(label)
