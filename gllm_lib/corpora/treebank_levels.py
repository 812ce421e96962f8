"""Four levels and the scalar targets of a Universal Dependencies treebank.

shape      length, case, affixes, morphological features, part of speech, frequency
syntax     relation to the head, distance and direction, depth, subtree, ancestors
semantics  argument role, scope of negation and quantifiers, enhanced dependencies, entity type
discourse  coreference, information status, rhetorical relation, place of the sentence, genre

The division is that of GLLM Sec. 7.1, which puts the part of speech at the first level and coreference at the last.
What a treebank does not annotate gives no column and no target.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gllm_lib.corpora.annotated import AnnotatedCorpus, LevelBuilder, Target, resolve_own
from gllm_lib.corpora.discourse import Mentions, discourse_units, genres, mentions_of
from gllm_lib.corpora.sentence import Sentence

LEVELS = ("shape", "syntax", "semantics", "discourse")
ROLES = ("nsubj", "csubj", "obj", "iobj", "obl", "ccomp", "xcomp", "advcl", "acl", "nmod", "vocative", "dislocated")
SUFFIX_SHARE = 0.004  # an affix class is wider than one word: rarer endings are words in disguise


def annotate(name: str, sentences: Sequence[Sentence], share: float) -> AnnotatedCorpus:
    """Return the corpus of `sentences` with its four levels and every target they annotate."""
    words = [word for sentence in sentences for word in sentence.words]
    documents = list(dict.fromkeys(sentence.document for sentence in sentences))
    number = {document: j for j, document in enumerate(documents)}
    sizes = [len(sentence.words) for sentence in sentences]
    document = np.repeat([number[sentence.document] for sentence in sentences], sizes).astype(np.int64)
    trees = {key: np.concatenate(parts) for key, parts in _trees(sentences).items()}
    mentions = mentions_of(sentences)
    builders = {
        "shape": _shape(words, share),
        "syntax": _syntax(words, sentences, trees, share),
        "semantics": _semantics(words, sentences, trees, mentions, share),
        "discourse": _discourse(sentences, sizes, document, mentions, share),
    }
    columns = {level: tuple(builders[level].names) for level in LEVELS}
    levels = {level: builders[level].matrix(len(words)) for level in LEVELS}
    corpus = AnnotatedCorpus(
        name=name,
        tokens=tuple(str(word["form"]) for word in words),
        document=document,
        sentence=np.repeat(np.arange(len(sentences)), sizes).astype(np.int64),
        spaced=np.array([flag for sentence in sentences for flag in sentence.spaced], dtype=bool),
        document_names=tuple(documents),
        levels=levels,
        columns=columns,
        targets=_targets(words, trees, levels, columns),
        notes=_notes(sentences, documents, columns, mentions),
    )
    return corpus


def _trees(sentences: Sequence[Sentence]) -> dict[str, list[NDArray[np.float64]]]:
    """Per sentence: depth, subtree size, signed distance, number of dependents, scope of negation and quantifier."""
    parts: dict[str, list[NDArray[np.float64]]] = {
        key: [] for key in ("depth", "subtree", "distance", "dependents", "negation", "quantifier", "place")
    }
    for sentence in sentences:
        size, heads = len(sentence.heads), (0, *sentence.heads)
        depth = [-1] * (size + 1)  # the artificial root stands one above the root word
        for word in range(1, size + 1):
            path, at = [], word
            while at and depth[at] < 0:
                path.append(at)
                at = heads[at]
            for each in reversed(path):
                depth[each] = depth[heads[each]] + 1
        subtree, dependents = [1] * (size + 1), [0] * (size + 1)
        for word in sorted(range(1, size + 1), key=lambda each: -depth[each]):
            if heads[word]:
                subtree[heads[word]] += subtree[word]
                dependents[heads[word]] += 1
        parts["depth"].append(np.array(depth[1:], dtype=float))
        parts["subtree"].append(np.array(subtree[1:], dtype=float))
        parts["dependents"].append(np.array(dependents[1:], dtype=float))
        parts["distance"].append(np.array([w - heads[w] if heads[w] else 0 for w in range(1, size + 1)], dtype=float))
        parts["place"].append((np.arange(size) + 0.5) / size)
        order = sorted(range(1, size + 1), key=lambda each: depth[each])
        parts["negation"].append(_scope(heads, order, [_negates(word) for word in sentence.words]))
        parts["quantifier"].append(_scope(heads, order, [_quantifies(word) for word in sentence.words]))
    return parts


def _scope(heads: Sequence[int], order: Sequence[int], operators: Sequence[bool]) -> NDArray[np.float64]:
    """Return 1 for words in the subtree of an operator's governor, the operator itself excepted, shape (n,)."""
    inside = [False] * len(heads)
    for word, operates in enumerate(operators, start=1):
        if operates and heads[word]:
            inside[heads[word]] = True
    for word in order:
        inside[word] = inside[word] or (heads[word] != 0 and inside[heads[word]])
    return np.array([inside[w] and not operators[w - 1] for w in range(1, len(heads))], dtype=float)


def _features_of(word: Mapping[str, Any]) -> Mapping[str, str]:
    return word["feats"] or {}


def _negates(word: Mapping[str, Any]) -> bool:
    return _features_of(word).get("Polarity") == "Neg" or _features_of(word).get("PronType") == "Neg"


def _quantifies(word: Mapping[str, Any]) -> bool:
    return _features_of(word).get("PronType") in ("Tot", "Neg") or _features_of(word).get("NumType") == "Card"


def _relation(word: Mapping[str, Any]) -> str:
    return str(word["deprel"]).split(":")[0]


def case_of(form: str) -> str:
    """Return the orthographic case of a form: none (no letter), lower, upper, title, initial (one capital) or mixed."""
    letters = [each for each in form if each.isalpha()]
    if not letters:
        return "none"
    if len(letters) == 1 and letters[0].isupper():
        return "initial"
    return "lower" if form.islower() else "upper" if form.isupper() else "title" if form.istitle() else "mixed"


def _shape(words: Sequence[Mapping[str, Any]], share: float) -> LevelBuilder:
    level = LevelBuilder()
    forms = [str(word["form"]) for word in words]
    lowered = [form.lower() for form in forms]
    counts = Counter(lowered)
    level.add("length", [len(form) for form in forms])
    level.add("log_length", [math.log(len(form)) for form in forms])
    level.add("log_frequency", [math.log(counts[form]) for form in lowered])
    level.add("digit", [any(each.isdigit() for each in form) for form in forms])
    level.add("hyphen", ["-" in form[1:-1] for form in forms])
    level.add_categories("case", [case_of(form) for form in forms], share=0.0)
    level.add_categories("upos", [str(word["upos"]) for word in words], share=0.0)
    for size in (2, 3):
        endings = [form[-size:] if form.isalpha() and len(form) >= size + 2 else "" for form in lowered]
        level.add_categories(f"suffix{size}", endings, share=max(share, SUFFIX_SHARE))
    names = sorted({name for word in words for name in _features_of(word)})
    for name in names:
        level.add_categories(f"feat:{name}", [_features_of(word).get(name, "") for word in words], share=share)
    segments = [(word["misc"] or {}).get("MSeg", "") for word in words]
    if any(segments):
        level.add("segments", [each.count("-") + 1 for each in segments])
    return level


def _syntax(
    words: Sequence[Mapping[str, Any]],
    sentences: Sequence[Sentence],
    trees: Mapping[str, NDArray[np.float64]],
    share: float,
) -> LevelBuilder:
    level = LevelBuilder()
    level.add("depth", trees["depth"])
    level.add("log_subtree", np.log2(trees["subtree"]))
    level.add("dependents", trees["dependents"])
    level.add("signed_distance", np.sign(trees["distance"]) * np.log1p(np.abs(trees["distance"])))
    level.add("log_distance", np.log1p(np.abs(trees["distance"])))
    level.add("head_direction", np.sign(trees["distance"]))
    level.add("place_in_sentence", trees["place"])
    level.add_categories("deprel", [_relation(word) for word in words], share=share)
    level.add_categories("subtype", [str(w["deprel"]) if ":" in str(w["deprel"]) else "" for w in words], share=share)
    parents, grandparents = [], []
    for sentence in sentences:
        heads, relations = sentence.heads, [_relation(word) for word in sentence.words]
        above = [heads[h - 1] if h else 0 for h in heads]
        parents += [relations[h - 1] if h else "" for h in heads]
        grandparents += [relations[h - 1] if h else "" for h in above]
    level.add_categories("parent_deprel", parents, share=share)
    level.add_categories("grandparent_deprel", grandparents, share=share)
    return level


def _semantics(
    words: Sequence[Mapping[str, Any]],
    sentences: Sequence[Sentence],
    trees: Mapping[str, NDArray[np.float64]],
    mentions: Mentions,
    share: float,
) -> LevelBuilder:
    level = LevelBuilder()
    level.add("negation_scope", trees["negation"])
    level.add("quantifier_scope", trees["quantifier"])
    roles: list[str] = []
    for sentence in sentences:
        relations = ["", *(_relation(word) for word in sentence.words)]
        for word in range(1, len(relations)):
            at = word
            while at and relations[at] not in ROLES:
                at = sentence.heads[at - 1]
            roles.append(relations[at])
    level.add_categories("argument", roles, share=share)
    enhanced = [word["deps"] if isinstance(word["deps"], list) else [] for word in words]
    if any(enhanced):
        level.add("enhanced_heads", [len(each) for each in enhanced])
        names = [next((rel for rel, _ in each if rel.count(":") and rel != word["deprel"]), "")
                 for each, word in zip(enhanced, words, strict=True)]  # fmt: skip
        level.add_categories("enhanced", names, share=share)
    if mentions.annotated:
        level.add("mention_depth", mentions.depth)
        level.add_categories("entity", mentions.kind, share=share)
    return level


def _discourse(
    sentences: Sequence[Sentence],
    sizes: Sequence[int],
    document: NDArray[np.int64],
    mentions: Mentions,
    share: float,
) -> LevelBuilder:
    level = LevelBuilder()
    owner = [sentence.document for sentence in sentences]
    totals, running = Counter(owner), Counter[str]()
    position = []
    for name in owner:
        position.append((running[name] + 0.5) / totals[name])
        running[name] += 1
    level.add("sentence_position", np.repeat(position, sizes))
    level.add("log_document_length", np.log(np.repeat([totals[name] for name in owner], sizes)))
    for key, label in (("s_type", "sentence_type"), ("transition", "transition")):
        kinds = np.repeat([sentence.metadata.get(key) or "" for sentence in sentences], sizes).tolist()
        if any(kinds):
            level.add_categories(label, kinds, share=share)
    named = genres(sentences)
    if named:
        level.add_categories("genre", np.repeat(named, sizes).tolist(), share=share)
    if mentions.annotated:
        level.add("coreferent", mentions.coreferent)
        level.add("log_chain", np.log1p(mentions.chain))
        level.add("log_earlier_mentions", np.log1p(mentions.earlier))
        level.add_categories("status", mentions.status, share=share)
    relations, depths = discourse_units(sentences)
    if any(relations):
        level.add("rst_depth", depths)
        level.add_categories("rst", relations, share=share)
    return level


def _targets(
    words: Sequence[Mapping[str, Any]],
    trees: Mapping[str, NDArray[np.float64]],
    levels: Mapping[str, NDArray[np.float32]],
    columns: Mapping[str, tuple[str, ...]],
) -> dict[str, Target]:
    """Every scalar target that is annotated; own columns take whole groups of indicators, which sum to one."""
    forms = [str(word["form"]) for word in words]
    found: dict[str, Target] = {}

    def add(name: str, values: Any, level: str, family: str, *own: str) -> None:
        found[name] = Target(np.asarray(values, dtype=np.float64), level, family, resolve_own(own, columns))

    def column(level: str, name: str) -> NDArray[np.float32] | None:
        return levels[level][:, columns[level].index(name)] if name in columns[level] else None

    distance = trees["distance"]
    add("depth", trees["depth"], "syntax", "hierarchical", "depth")
    add("subtree", np.log2(trees["subtree"]), "syntax", "hierarchical", "log_subtree", "dependents")
    add("headdir", np.sign(distance), "syntax", "hierarchical", "head_direction", "signed_distance")
    add("logdist", np.log1p(np.abs(distance)), "syntax", "hierarchical", "log_distance", "signed_distance")
    subject = [_relation(word) == "nsubj" for word in words]
    add("nsubj", subject, "syntax", "hierarchical", "deprel=*", "subtype=*", "argument=*", "enhanced=*")
    add("negscope", trees["negation"], "semantics", "hierarchical", "negation_scope", "quantifier_scope")
    position = column("discourse", "sentence_position")
    add("sentpos", position, "discourse", "hierarchical", "sentence_position")
    chain_columns = ("coreferent", "log_chain", "log_earlier_mentions", "status=*")
    coreferent, depth = column("discourse", "coreferent"), column("discourse", "rst_depth")
    if coreferent is not None:
        given = sum(levels["discourse"][:, j] for j, each in enumerate(columns["discourse"])
                    if each.startswith("status=giv"))  # fmt: skip
        add("coref", coreferent, "discourse", "hierarchical", *chain_columns)
        add("given", given + np.zeros(len(words)), "discourse", "hierarchical", *chain_columns)
    if depth is not None:
        add("rstdepth", depth, "discourse", "hierarchical", "rst_depth")
    counts = Counter(form.lower() for form in forms)
    add("noun", [word["upos"] == "NOUN" for word in words], "shape", "lexical", "upos=*")
    plural = [_features_of(word).get("Number") == "Plur" for word in words]
    add("plural", plural, "shape", "lexical", "feat:Number=*")
    add("freq", [math.log(counts[form.lower()]) for form in forms], "shape", "lexical", "log_frequency")
    add("wlen", [len(form) for form in forms], "shape", "lexical", "length", "log_length")
    add("capital", [form[:1].isupper() for form in forms], "shape", "lexical", "case=*")
    add("first_am", ["a" <= form[:1].lower() <= "m" for form in forms], "shape", "lexical")
    return found


def _notes(
    sentences: Sequence[Sentence], documents: Sequence[str], columns: Mapping[str, Sequence[str]], mentions: Mentions
) -> tuple[str, ...]:
    notes = []
    if not any("newdoc" in key for sentence in sentences for key in sentence.metadata):
        notes.append(f"No `# newdoc` line: each of the {len(documents)} files counts as one document.")
    if not mentions.annotated:
        notes.append("No entity mentions: level semantics has no entity type, level discourse no coreference, "
                     "and the targets coref and given are absent.")  # fmt: skip
    elif mentions.unmatched:
        notes.append(f"{mentions.unmatched} entity brackets have no partner and were left out.")
    if "rst_depth" not in columns["discourse"]:
        notes.append("No rhetorical relations: level discourse has none, and the target rstdepth is absent.")
    return tuple(notes)
