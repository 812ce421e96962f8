"""The English study: energy profiles of MiniLM on two treebanks, with nulls, orders, intervals and arms (GLLM Sec. 7).

A run is one division of a corpus into documents for the basis, the penalty, the two profile halves and held-out
scoring. Records hold numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gllm_lib.analysis.bases import level_basis
from gllm_lib.checks import FileError, InputError
from gllm_lib.corpora.annotated import AnnotatedCorpus
from gllm_lib.corpora.treebank import read_treebank
from gllm_lib.studies import english_measures as report
from gllm_lib.studies.division import MULTI_CLASS, divided, factors_of, named_bases
from gllm_lib.studies.encoder import encoded_corpus, encoder_folder
from gllm_lib.studies.plan import Plan
from gllm_lib.studies.run import Job


def prepare(plan: Plan, root: Path, *, treebanks: str | Path | None = None) -> dict[str, dict[str, str]]:
    """Check the folder of treebanks and the encoder, encode what is not cached; returns where each cell's input is.

    Raises InputError without `treebanks`, FileError for a folder without the corpora, MissingEncoderError without the
    encoder's packages.
    """
    folder = treebank_folder(treebanks)
    encoder_folder()
    found = {}
    for cell in plan.fields["cells"]:
        _, vectors, key = treebank_vectors(str(folder), cell, root / "build" / "encodings")
        path = str(getattr(vectors, "filename", ""))
        found[cell["id"]] = {"treebanks": str(folder), "encoding": path, "words_sha256": key}
    return found


def treebank_folder(treebanks: str | Path | None) -> Path:
    """Return the folder of treebanks that a study was given; raises InputError without one, FileError for no folder."""
    if treebanks is None:
        raise InputError(
            "this study reads treebanks that the project does not hold; pass treebanks=DIR (--treebanks DIR), a folder "
            "with the Universal Dependencies files en_gum-ud-*.conllu and en_ewt-ud-*.conllu"
        )
    folder = Path(treebanks)
    if not folder.is_dir():
        raise FileError(f"{folder} is no folder; give the one with the CoNLL-U files")
    return folder


def treebank_vectors(
    folder: str, cell: Mapping[str, str], cache: Path
) -> tuple[AnnotatedCorpus, NDArray[np.float32], str]:
    """Return a cell's corpus, one MiniLM vector per word (n, 384) and the hash of the words; encodes if not cached."""
    corpus = treebank(folder, cell["pattern"], cell["corpus"])
    starts = np.flatnonzero(np.diff(corpus.sentence, prepend=-1))
    sentences = [list(words) for words in np.split(np.array(corpus.tokens, dtype=object), starts[1:])]
    vectors, key = encoded_corpus(sentences, cache, progress=True)
    return corpus, vectors, key


@lru_cache(maxsize=2)
def treebank(folder: str, pattern: str, name: str) -> AnnotatedCorpus:
    """Read a treebank once per process."""
    return read_treebank(folder, pattern, name=name)


def measure(job: Job, inputs: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Make one run: divide, probe, build the bases, and report every registered quantity as plain numbers."""
    given, settings = inputs[job.cell["id"]], job.settings
    corpus = treebank(given["treebanks"], job.cell["pattern"], job.cell["corpus"])
    vectors = np.load(given["encoding"], mmap_mode="r", allow_pickle=False)
    division = divided(corpus, vectors, job.seed)
    factors = factors_of(division)
    own = {
        name: level_basis(factors.without(corpus.targets[name].own), factors.covariance)
        for name in division.outputs.scalars
    }
    own |= {name: level_basis(factors.decoding, factors.covariance) for name in MULTI_CLASS}
    run = report.Run(division, factors, own, named_bases(factors, job.seed), settings, job.seed)
    values = {
        "corpus": report.corpus_facts(division, given["words_sha256"]),
        "targets": report.target_facts(division),
    } | {name: measured(run) for name, measured in report.REPORTS.items()}
    if job.seed in settings["bootstrap_seeds"]:
        values["bootstrap"] = report.bootstrapped(run)
    return values
