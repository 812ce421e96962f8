"""Syntax trees come one at a time, whichever threads ask."""

import ast
import time
from concurrent.futures import ThreadPoolExecutor

from gllm_lib.book import syntax


def test_two_threads_never_parse_at_once(monkeypatch):
    inside, most = [], []

    def watched(parse):
        def call(text):
            inside.append(text)
            most.append(len(inside))
            time.sleep(0.005)
            inside.remove(text)
            return parse(text)

        return call

    monkeypatch.setattr(ast, "parse", watched(ast.parse))
    monkeypatch.setattr(ast, "literal_eval", watched(eval))
    with ThreadPoolExecutor(max_workers=4) as pool:
        trees = list(pool.map(syntax.tree, [f"x = {k}" for k in range(8)]))
        values = list(pool.map(syntax.literal, map(str, range(8))))
    assert [node.body[0].value.value for node in trees] == values == list(range(8))
    assert max(most) == 1
