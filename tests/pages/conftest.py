"""How the tests look at the real book: each page is opened once per configuration and asked everything there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT

QUESTIONS = Path(__file__).with_name("questions.js")
COLOURS = ["color-contrast", "link-in-text-block"]  # what dark can change for axe

Answers = dict[str, dict[str, list[str]]]  # question -> page -> complaints


class Visitor:
    """A browser window without a network that opens pages, asks them, and notes the complaints."""

    def __init__(self, browser: Any, pages: Path, width: int, **options: Any) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, offline=True, reduced_motion="reduce", **options
        )
        self.context.add_init_script(path=QUESTIONS)
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self._request(request.url))
        self.page.on("console", lambda said: self._note(said.text) if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.folder, self.name = pages, ""
        self.answers: Answers = defaultdict(dict)
        self.judged: dict[str, list[str]] = defaultdict(list)  # the pairs of colours that axe has seen
        self.loaded: dict[str, list[str]] = defaultdict(list)  # page -> addresses it asked for

    def _request(self, url: str) -> None:
        self.loaded[self.name].append(url)
        if not url.startswith(("file:", "data:")):
            self._note(f"asks for {url}")

    def _note(self, trouble: str) -> None:
        self.answers["errors"].setdefault(self.name, []).append(trouble)

    def open(self, name: str) -> Any:
        """Open a page of the book, such as `chapters/05-minimax.html`, and return it."""
        self.name = name
        self.answers["errors"].setdefault(name, [])
        self.page.goto((self.folder / name).as_uri())
        return self.page

    def ask(self, *questions: str, under: str = "") -> None:
        """Put questions to the open page; `under` is added to the name they are noted by."""
        for question in questions:
            self.answers[question + under][self.name] = self.page.evaluate(f"questions.{question}()")

    def resize(self, width: int, height: int) -> None:
        """Give the window another size and the page's scripts the two frames in which they fold formulas for it."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.page.wait_for_timeout(50)

    def axe(self, under: str = "", rules: list[str] | None = None) -> None:
        """Note what axe finds on the open page, by its default rules or by some, after `thin`.

        The contrast of two colours is judged once, where they first meet. Nothing is preloaded: a page opened from disk
        may not fetch its style sheet, which axe would search for a lock of the screen's orientation.
        """
        known = self.judged[under]
        new = self.page.evaluate("known => questions.mark(known)", known)
        known += new
        self.answers["axe" + under][self.name] = []
        if rules and not new:
            return
        if self.page.evaluate("typeof axe === 'undefined'"):
            self.page.evaluate(AXE_SCRIPT)
            self.page.evaluate("axe.configure({rules: [{id: 'color-contrast', selector: '[data-judged]'}]})")
        options = {"resultTypes": ["violations"], "preload": False, **({"runOnly": rules} if rules else {})}
        self.answers["axe" + under][self.name] = self.page.evaluate(
            "async (options) => (await axe.run(options)).violations.flatMap("
            "({id, nodes}) => nodes.map(({html, failureSummary}) => `${id}: ${html.slice(0, 200)} ${failureSummary}`))",
            options,
        )


@pytest.fixture(scope="session")
def names(pages: Path) -> list[str]:
    """The pages of the book, as paths from its folder."""
    return sorted(path.relative_to(pages).as_posix() for path in pages.rglob("*.html"))


@pytest.fixture(scope="module")
def visitor(browser: Any, pages: Path) -> Iterator[Callable[..., Visitor]]:
    """A function that opens a window on the book: `visitor(width, **options of a playwright context)`."""
    opened: list[Visitor] = []

    def make(width: int, **options: Any) -> Visitor:
        opened.append(Visitor(browser, pages, width, **options))
        return opened[-1]

    yield make
    for window in opened:
        window.context.close()


def complaints(found: dict[str, list[str]], only: Iterable[str] | None = None) -> dict[str, list[str]]:
    """Return the pages with complaints, ten of each at most."""
    return {name: said[:10] for name, said in found.items() if said and (only is None or name in only)}
