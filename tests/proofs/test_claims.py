"""The registry: what a notebook's text says, read without executing it, and every way it can be wrong."""

import pytest

from gllm_lib.proofs.claims import ClaimError, divs, parse_attributes, registry


def md(text):
    return {"cell_type": "markdown", "source": text}


def code(text):
    return {"cell_type": "code", "source": text}


def block(label, uses="", classes="", extra="", title="A name", source="new"):
    return md(f'::: {{#{label} .claim {classes} source="{source}" uses="{uses}" {extra}}}\n## {title}\nBody $x$.\n:::')


CHECK = code(
    '@evidence("prp-a", kind="exact", scope="all", mutants={"near: x": {"k": 1}})\ndef check(k=0): raise SystemExit'
)


def test_attributes():
    assert parse_attributes('{#prp-a .claim .refuted source="GLLM Prop. 7(iii); x" uses=def-b}') == (
        "prp-a",
        ("claim", "refuted"),
        {"source": "GLLM Prop. 7(iii); x", "uses": "def-b"},
    )


def test_nested_divs_and_code_fences():
    text = "::: {.outer}\n```\n::: {.not}\n```\n:::: {#in .inner}\ntext\n::::\n:::\n"
    found = divs(text)
    assert [(div.id, div.classes, div.closes) for div in found] == [("in", ("inner",), 6), ("", ("outer",), 7)]
    assert found[0].body == "text"


@pytest.mark.parametrize(("text", "message"), [("::: {.a}\nx", "never closed"), ("x\n:::", "never opened")])
def test_unbalanced_divs(text, message):
    with pytest.raises(ClaimError, match=message):
        divs(text)


def test_a_claim_and_its_evidence_are_read_without_running_anything():
    read = registry({"04-x": [md("intro"), block("def-b"), block("prp-a", uses="def-b"), CHECK]})
    claim = read.claims["prp-a"]
    assert (claim.kind, claim.title, claim.uses, claim.chapter, claim.cell) == ("prp", "A name", ("def-b",), "04-x", 2)
    assert claim.statement == "Body $x$."
    (declared,) = read.evidence_of["prp-a"]
    assert (declared.kind, declared.name, declared.scope, declared.mutants) == ("exact", "check", "all", ("near: x",))


def test_ancestors_are_transitive_and_cross_chapters():
    read = registry({"01-a": [block("def-b"), block("lem-c", uses="def-b")], "02-b": [block("prp-a", uses="lem-c")]})
    assert read.ancestors("prp-a") == ("def-b", "lem-c")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([block("prp-a"), block("prp-a")], "stands already in"),
        ([block("def-bb"), block("prp-a", uses="def-b")], "uses def-b, which no chapter states; did you mean def-bb"),
        ([block("prp-a", uses="lem-b"), block("lem-b", uses="prp-a")], "in a circle"),
        ([block("prp-a", uses="prp-a")], "in a circle"),
        ([block("prp-b", classes=".refuted"), block("prp-a", uses="prp-b")], "a refuted statement"),
        ([block("prp-b"), block("prp-a", extra='corrects="prp-b"')], "not marked .refuted"),
        ([block("prp-a", extra='color="red"')], "attribute 'color' is unknown"),
        ([block("prp-a", source="")], "names no source item"),
        ([md('::: {#prp-a .claim source="new"}\nno heading\n:::')], "has no name"),
        ([md("::: {#prp-a}\n## T\nx\n:::")], "is a claim; write"),
        ([md('::: {#foo-a .claim source="new"}\n## T\nx\n:::')], "needs one of the prefixes"),
        ([block("cnj-a", classes=".assumption")], "'Assumption' in its name"),
        ([CHECK], "is for prp-a, which no chapter states"),
        ([CHECK, block("prp-a")], "stands above its claim"),
        ([block("prp-a"), CHECK, CHECK], "two checks named check"),
        ([block("prp-a", classes=".refuted"), CHECK], "needs kind='counterexample'"),
        ([block("prp-a"), code("def f(:\n    pass")], "line 1"),
        ([code("x = 1\n%matplotlib inline")], "cell 1, line 2: a notebook command"),
        ([code("x = '\0'")], "null"),
        ([md('::: {#prp-a .claim source="new"}\n## A'), md("x\n:::")], "never closed"),
        ([md('::: {#prp-a .claim source="new"}\nwords\n\n## A\nx\n:::')], "begin the block with a line"),
        ([md('- item\n\n    ::: {#prp-a .claim source="new"}\n    ## A\n    :::')], "inside other text"),
        ([md('> ::: {#prp-a .claim source="new"}\n> ## A\n> :::')], "inside other text"),
        ([md('::: {#prp-a .claim source="a "b""}\n## A\n:::')], "the attributes hold"),
        ([md('::: {#prp-a .claim source="a" source="b"}\n## A\n:::')], "source is given twice"),
        ([block("prp-a", uses="def-b,")], "def-b,, which no chapter states"),
        ([block("prp-a"), code(CHECK["source"].replace("near: x", "x"))], "no near mutant"),
        ([block("prp-a"), code(CHECK["source"].replace('scope="all", ', ""))], "names no scope"),
        ([block("prp-a"), code(CHECK["source"].replace('"exact"', '"proof"'))], "has kind 'proof'"),
        ([block("prp-a"), code(CHECK["source"].replace('"prp-a"', "LABEL"))], "not a plain string"),
        ([block("prp-a"), code(CHECK["source"].replace('{"near: x": {"k": 1}}', "MUTANTS"))], "declares no mutants"),
    ],
)
def test_each_mistake_has_its_own_message(cells, message):
    with pytest.raises(ClaimError, match=message):
        registry({"04-x": cells})


def test_evidence_may_not_stand_in_another_chapter():
    with pytest.raises(ClaimError, match="in another chapter"):
        registry({"01-a": [block("prp-a")], "02-b": [CHECK]})


def test_code_that_shows_a_div_opens_none():
    for text in ("````\n```\n::: {.a}\n````", "~~~\n```\n::: {.a}\n~~~", "text `::: {.a}` text", "```x``` y"):
        assert divs(text) == [], text
    assert [div.classes for div in divs("```x``` y\n\n:::: {.a}\r\nx\r\n::::\r\n")] == [("a",)]


def test_attributes_with_other_quotes_and_signs():
    assert parse_attributes("""{#prp-a source='say "x"' uses="a=b, .c #d"}""") == (
        "prp-a",
        (),
        {"source": 'say "x"', "uses": "a=b, .c #d"},
    )
