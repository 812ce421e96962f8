"""Evidence: a check that receives what it checks as ingredients, and mutants that the same check must reject.

`@evidence(...)` runs the check at once, then every mutant, displays one quiet line (and the same as JSON under
`MIME_TYPE`) and raises `EvidenceError` with chapter, claim and witness if the check fails or a mutant lives.
"""

from __future__ import annotations

import hashlib
import html
import inspect
import linecache
import os
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from gllm_lib.checks import GllmError

MIME_TYPE = "application/vnd.gllm.evidence+json"
KINDS = ("exact", "property", "numeric", "simulation", "empirical", "counterexample")
NEAR = "near: "  # a mutant whose name starts so is off by at most 10% or drops one hypothesis
REPEATED = ("exact", "numeric", "counterexample")  # kinds that chance plays no part in
QUICK = 1.0  # seconds below which such a check runs a second time, to show that it keeps no state

Check = Callable[..., Any]
Mutants = Mapping[str, Mapping[str, Any]]


class Refuted(GllmError):
    """A check found a witness against what it checks; the witness is the first argument."""

    def __init__(self, witness: Any) -> None:
        super().__init__(str(witness))
        self.witness = witness


class Unknown(GllmError):
    """A solver or a simplifier could not decide: neither a proof nor a refutation."""


class EvidenceError(GllmError):
    """Evidence that does not hold: a check that failed, or a mutant that lived."""


def evidence(
    claim: str,
    *,
    kind: str,
    mutants: Mutants,
    given: Mapping[str, Any] | None = None,
    scope: str | None = None,
    cases: int = 200,
) -> Callable[[Check], Check]:
    """Run the decorated check as evidence for `claim`, then its mutants; return the check unchanged.

    `given` holds one hypothesis strategy per drawn argument, `cases` the number of examples; `mutants` maps a name to
    the ingredients (keyword arguments) that the mutant replaces. `property` evidence draws; `exact` evidence does not,
    and needs `scope`, "all" or a named part. The check may return an int, the number of cases it covered. Raises
    EvidenceError, also for a malformed declaration, and says what is missing.
    """
    from IPython.display import display

    _validate(claim, kind, mutants, given, scope, cases)

    def decorate(check: Check) -> Check:
        _validate_ingredients(claim, check, mutants, given or {})
        record = run_evidence(claim, check, kind=kind, mutants=mutants, given=given, scope=scope, cases=cases)
        display({MIME_TYPE: record, "text/html": as_html(record), "text/plain": as_line(record)}, raw=True)
        return check

    return decorate


def run_evidence(
    claim: str,
    check: Check,
    *,
    kind: str,
    mutants: Mutants,
    given: Mapping[str, Any] | None,
    scope: str | None,
    cases: int,
) -> dict[str, Any]:
    """Run a check and its mutants and return the evidence record; raises EvidenceError when it does not hold."""
    started = time.perf_counter()
    name = check.__name__
    where = f"{os.environ.get('GLLM_CHAPTER', 'this notebook')}, claim {claim}, check {name}"
    try:
        covered = _run(claim, check, {}, given, cases, mutant=False)
    except Exception as error:
        raise EvidenceError(f"{where} ({kind}) fails: {_told(error)}") from error
    again = kind in REPEATED and not given and time.perf_counter() - started < QUICK
    witnesses = {}
    for mutant, ingredients in mutants.items():
        try:
            _run(claim, check, dict(ingredients), given, cases, mutant=True)
        except (Refuted, AssertionError) as error:
            if kind == "exact" and not isinstance(error, Refuted):
                raise EvidenceError(
                    f"{where}: mutant {mutant!r} ended in a bare assertion; an exact check must raise Refuted(witness)"
                ) from error
            if foreign := _foreign(error):
                raise EvidenceError(f"{where}: mutant {mutant!r} broke in {foreign}, not in the check") from error
            witnesses[mutant] = _told(error)
        except Exception as error:
            raise EvidenceError(
                f"{where}: mutant {mutant!r} broke instead of being rejected: {_told(error)}"
            ) from error
        else:
            raise EvidenceError(f"{where}: mutant {mutant!r} lives; the check cannot tell it from the claim")
    if again:
        try:
            check()
        except Exception as error:
            raise EvidenceError(f"{where} passes once and then fails: {_told(error)}; let it keep no state") from error
    return {
        "claim": claim,
        "kind": kind,
        "name": name,
        "says": inspect.getdoc(check) or "",
        "scope": scope,
        "cases": covered,
        "seconds": round(time.perf_counter() - started, 3),
        "mutants": len(mutants),
        "mutants_rejected": len(witnesses),
        "witnesses": witnesses,
    }


def _run(
    claim: str, check: Check, ingredients: dict[str, Any], given: Mapping[str, Any] | None, cases: int, mutant: bool
) -> int:
    """Run the check once, or over hypothesis's examples if it draws arguments; return the number of cases covered."""
    if not given:
        return _count(check(**ingredients))
    import hypothesis
    from hypothesis import HealthCheck, Phase, Verbosity

    covered = 0

    def body(**drawn: Any) -> None:
        nonlocal covered
        covered += _count(check(**drawn, **ingredients))

    body.__name__ = body.__qualname__ = check.__name__
    phases = (Phase.explicit, Phase.generate)  # shrinking a kill takes thirty times longer and teaches nothing
    settings = hypothesis.settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.normal,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],  # slow is not wrong
        phases=phases if mutant else (*phases, Phase.shrink),
    )
    seed = int.from_bytes(hashlib.sha256(f"{claim} {check.__name__}".encode()).digest()[:8], "big")
    hypothesis.seed(seed)(settings(hypothesis.given(**given)(body)))()
    return covered


def _count(returned: Any) -> int:
    """Return the number of cases a check says it covered; a check that returns nothing covered one."""
    if returned is None:
        return 1
    if isinstance(returned, bool) or not isinstance(returned, int) or returned < 1:
        raise TypeError(
            f"a check returned {returned!r}; it may return nothing or the number of cases it covered, at least 1"
        )
    return returned


def _foreign(error: BaseException) -> str:
    """Return the file of an assertion that failed inside an installed package other than a testing module."""
    file = traceback.extract_tb(error.__traceback__)[-1].filename
    ours = "site-packages" not in file or "testing" in file or "gllm_lib" in file
    return "" if ours else file.split("site-packages")[-1].strip("/\\")


def _told(error: BaseException) -> str:
    """Return an exception's own words or, of a bare assert, its line, with the failing case that hypothesis noted."""
    words = str(error).strip() if isinstance(error, Refuted | AssertionError) else f"{type(error).__name__}: {error}"
    notes = [" ".join(n.split()) for n in getattr(error, "__notes__", []) if "test case" in n or "alsifying" in n]
    return " | ".join([words.strip() or _asserted(error), *notes])[:2000]


def _asserted(error: BaseException) -> str:
    """Return the source of the assert that failed, on one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    first = frame.lineno or 0
    lines = (linecache.getline(frame.filename, n) for n in range(first, (frame.end_lineno or first) + 1))
    return " ".join("".join(lines).split()) or "assertion failed"


def _validate(claim: str, kind: str, mutants: Mutants, given: Any, scope: str | None, cases: int) -> None:
    if kind not in KINDS:
        raise EvidenceError(f"claim {claim}: kind {kind!r} is unknown; use one of {', '.join(KINDS)}")
    if not mutants:
        raise EvidenceError(
            f"claim {claim}: evidence without a mutant cannot fail; give at least one in mutants={{...}}"
        )
    if kind == "exact" and not scope:
        raise EvidenceError(f"claim {claim}: exact evidence names its scope: scope='all' or a part such as 'd <= 6'")
    if (kind == "exact" and given) or (kind == "property" and not given):
        told = (
            "draws no examples; check the whole scope" if given else "draws its cases; name strategies in given={...}"
        )
        raise EvidenceError(f"claim {claim}: {kind} evidence {told}")
    if kind != "counterexample" and not any(name.startswith(NEAR) for name in mutants):
        raise EvidenceError(
            f"claim {claim}: no mutant is near; name one '{NEAR}...' that is off by at most 10% or drops one hypothesis"
        )
    if isinstance(cases, bool) or not isinstance(cases, int) or cases < 1:
        raise EvidenceError(f"claim {claim}: cases is {cases!r}; give a whole number, at least 1")


def _validate_ingredients(claim: str, check: Check, mutants: Mutants, given: Mapping[str, Any]) -> None:
    """A mutant may only replace keyword arguments that have a default and are not drawn."""
    parameters = inspect.signature(check).parameters
    allowed = {name for name, p in parameters.items() if p.default is not p.empty} - set(given)
    for mutant, ingredients in mutants.items():
        strange = sorted(set(ingredients) - allowed)
        if strange or not ingredients:
            raise EvidenceError(
                f"claim {claim}: mutant {mutant!r} replaces {', '.join(strange) or 'nothing'}; "
                f"the check {check.__name__} has the ingredients {', '.join(sorted(allowed)) or 'none'}"
            )
    missing = sorted(n for n, p in parameters.items() if p.default is p.empty and n not in given)
    if missing:
        raise EvidenceError(
            f"claim {claim}: {check.__name__} draws {', '.join(missing)}; name a strategy in given={{...}}"
        )


def kind_and_scope(record: Mapping[str, Any]) -> str:
    """Return "exact (d <= 6)" for a record; a scope that begins with a bracket gets no other."""
    scope = record["scope"] or ""
    return f"{record['kind']} {scope if scope.startswith('(') else f'({scope})'}" if scope else str(record["kind"])


def as_line(record: Mapping[str, Any]) -> str:
    """Return the quiet line of a record: kind, cases, seconds, mutants rejected."""
    return (
        f"{kind_and_scope(record)}: {record['cases']:,} {_plural(record['cases'], 'case')} in "
        f"{record['seconds']:.1f} s, {record['mutants_rejected']} of {record['mutants']} "
        f"{_plural(record['mutants'], 'mutant')} rejected"
    )


def as_html(record: Mapping[str, Any]) -> str:
    """Return the same line as HTML, with what the check says and its mutants behind it."""
    mutants = "".join(
        f"<li><b>{html.escape(name)}</b>: {html.escape(witness[:300])}</li>"
        for name, witness in record["witnesses"].items()
    )
    return (
        f'<div class="evidence" data-claim="{html.escape(record["claim"])}" data-kind="{record["kind"]}">'
        f"<details><summary>{html.escape(as_line(record))}</summary>"
        f"<p>{html.escape(record['says'])}</p><ul>{mutants}</ul></details></div>"
    )


def _plural(number: int, noun: str) -> str:
    return noun if number == 1 else noun + "s"
