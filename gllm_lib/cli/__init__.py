"""The `gllm` command: render | verify | claims | check | new | diff | study | test."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from gllm_lib import __version__
from gllm_lib.book.html.linear import linear_text
from gllm_lib.book.project import PROFILES, open_project, read_notebooks, read_registry
from gllm_lib.checks import GllmError
from gllm_lib.cli import study
from gllm_lib.cli.words import counted, relative

DIFF = """Compare two builds in substance: claims, their statements and status, evidence, values in prose, outputs and
figures. Times, machines and prose without values are no differences."""
EXITS = "Exit code: 0 where nothing differs, 1 where something does, 2 where a build cannot be read."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or 1 after printing what is wrong and how to mend it."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends a build ends its kernels, as Ctrl-C does
    try:
        code = int(options.run(options) or 0)
        sys.stdout.flush()
        return code
    except GllmError as error:
        print(f"gllm: {error}", file=sys.stderr)
        return int(getattr(options, "trouble", 1))
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        print(f"gllm: {error.filename or 'the disk'}: {error.strerror or error}; nothing was replaced", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gllm: interrupted; what was finished is kept", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gllm", description="Execute, check and render the book.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    render = _command(
        commands, "render", "execute what is stale and render the pages: all to _book/, a part to build/preview/"
    )
    render.add_argument("chapters", nargs="*", metavar="CHAPTER", help="a chapter's name or number; none means all")
    _add_profile(render)
    render.add_argument("--to", choices=("html", "pdf", "epub"), default="html", help="what to make (default html)")
    render.add_argument("--no-quarto", action="store_true", help="use the built-in renderer though Quarto is here")
    render.set_defaults(run=_render)

    claims = _command(commands, "claims", "list every claim with its computed status; executes nothing")
    form = claims.add_mutually_exclusive_group()
    form.add_argument("--graph", metavar="LABEL", help="print what one claim rests on, as a tree")
    form.add_argument("--json", action="store_true", help="print a list with one object per claim")
    _add_profile(claims)
    claims.set_defaults(run=_claims)

    verify = _command(commands, "verify", "execute a claim's chapter up to its checks, and show them")
    verify.add_argument("label", help="such as prp-fourth-root")
    _add_profile(verify)
    verify.set_defaults(run=_verify)

    check = _command(commands, "check", "lint the chapters without executing them")
    check.add_argument("--fix", action="store_true", help="rewrite notebooks in canonical form first")
    check.set_defaults(run=_check)

    _add_new(commands)
    study.add(commands)

    diff = commands.add_parser(
        "diff", help="compare claims, evidence, numbers and figures of two builds", description=DIFF, epilog=EXITS
    )
    diff.add_argument("old", metavar="A", help="_book, build/preview or build/site of a clone, or the clone itself")
    diff.add_argument("new", metavar="B", help="the same of another build; a clone means its newest build")
    diff.add_argument("--json", action="store_true", help="print a list with one object per difference")
    diff.set_defaults(run=_diff, trouble=2)

    test = _command(commands, "test", "run linters, types and tests, as 'make test' does")
    test.set_defaults(run=_test)
    return parser


def _command(commands: Any, name: str, told: str) -> Any:
    return commands.add_parser(name, help=told, description=f"{told[0].upper()}{told[1:]}.")


def _add_new(commands: Any) -> None:
    new = commands.add_parser("new", help="begin a chapter, or an experiment in one, that passes as it stands")
    kinds = new.add_subparsers(required=True, metavar="chapter|experiment")
    chapter = kinds.add_parser("chapter", help="write a notebook and list it in _quarto.yml")
    chapter.add_argument("title", help='such as "Ties between grades"')
    chapter.add_argument("--number", type=int, help="its number; by default the lowest neither taken nor planned")
    chapter.set_defaults(run=_new_chapter)
    experiment = kinds.add_parser("experiment", help="write a block of cells into a chapter's notebook")
    experiment.add_argument("chapter", help="the chapter's name or number, such as 07 or 07b")
    experiment.add_argument("name", help='such as "Ties between grades"')
    experiment.set_defaults(run=_new_experiment)


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=PROFILES, default="default", help="the size to execute at")
    parser.add_argument(
        "--smoke", action="store_const", const="smoke", dest="profile", help="short for --profile smoke"
    )


# Each command imports what it needs: drawing, solvers and kernels take seconds to load, and a list needs none of them.


def _render(options: argparse.Namespace) -> None:
    from gllm_lib.book import build

    project = open_project()
    quarto = not options.no_quarto
    out = build.build_book(project, options.profile, options.chapters, to=options.to, quarto=quarto)
    names = {project.find(name) for name in options.chapters}
    page = f"chapters/{names.pop()}.html" if len(names) == 1 else "index.html"
    without = build.not_executed(project)
    if without:
        print(
            f"{counted(len(without), 'chapter')} without a current run: shown without outputs, and what they claim as "
            f"'stated'. 'gllm render{_size(options.profile)}' executes every chapter.",
            file=sys.stderr,
        )
    print(f"The book is ready: open {relative(out / page if options.to == 'html' else out)}")


def _size(profile: str) -> str:
    return {"default": "", "smoke": " --smoke"}.get(profile, f" --profile {profile}")


def _claims(options: argparse.Namespace) -> None:
    from gllm_lib.book.claim_graph import tree
    from gllm_lib.book.run import current_runs, evidence_by_claim
    from gllm_lib.proofs.status import claim_rows, statuses

    project = open_project()
    notebooks = read_notebooks(project)
    registry = read_registry(project, notebooks)
    runs = current_runs(project, options.profile, notebooks)
    rows = claim_rows(registry, evidence_by_claim(runs))
    if options.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    if options.graph is not None:
        for line in tree(registry, statuses(registry, evidence_by_claim(runs)), options.graph):
            print(line)
    else:
        wide = max((len(row["id"]) for row in rows), default=0)
        for row in rows:
            print(f"{row['id']:{wide}}  {row['status']:24}  {linear_text(row['title'])}")
    stale = [name for name in project.notebooks if name not in runs]
    if stale:
        size = _size(options.profile)
        one = f" {stale[0]}" if len(stale) == 1 < len(project.notebooks) else ""
        does = f"'gllm render{size}{one}'" if size or one else "'make book'"
        print(f"\nNo current run of {', '.join(stale)}: {does} mends that.", file=sys.stderr)


def _verify(options: argparse.Namespace) -> None:
    from gllm_lib.book import build
    from gllm_lib.proofs.evidence import as_line

    claim, records = build.verify(open_project(), options.label, options.profile)
    for record in records:
        print(f"{record['name']}: {as_line(record)}")
        print(f"    {record['says']}")
        for mutant, witness in record["witnesses"].items():
            print(f"    rejected {mutant!r}: {textwrap.shorten(str(witness), 160, placeholder='…')}")
    mutants, rejected = (sum(record[key] for record in records) for key in ("mutants", "mutants_rejected"))
    print(
        f"{claim.id} ({linear_text(claim.title)}): {len(records)} of {counted(len(records), 'check')} passed, "
        f"{rejected} of {counted(mutants, 'mutant')} rejected"
    )


def _check(options: argparse.Namespace) -> int:
    from gllm_lib.book import lint

    project = open_project()
    if options.fix:
        for name in lint.fix(project):
            print(f"rewritten: {name}")
    notebooks = read_notebooks(project)
    registry = read_registry(project, notebooks)
    found = lint.findings(project, notebooks, registry)
    for finding in found:
        print(finding)
    told = [(len(found), "finding"), (len(notebooks), "chapter"), (len(registry.claims), "claim")]
    print("{} in {}, {}".format(*(counted(*each) for each in told)))
    return 1 if found else 0


def _new_chapter(options: argparse.Namespace) -> None:
    from gllm_lib.book import scaffold

    project = open_project()
    path = scaffold.new_chapter(project, options.title, options.number)
    print(f"{relative(path)} is ready and has its line in _quarto.yml; delete both to be rid of it.")
    print(f"'gllm render --smoke {path.stem}' executes and shows it.")
    number = int(path.stem[:2])
    if plan := scaffold.planned(project).get(number):
        print(
            f"chapters/sources.toml plans chapter {number} as {plan!r}: 'gllm check' lists what it then has to treat. "
            "Without --number a chapter gets a number that is not planned."
        )


def _new_experiment(options: argparse.Namespace) -> None:
    from gllm_lib.book import experiment

    project = open_project()
    chapter, ids = experiment.new_experiment(project, options.chapter, options.name)
    label = ids[0].removeprefix("exp-").removesuffix("-1")
    print(f"{relative(project.notebook_path(chapter))} has {len(ids)} new cells before 'What was checked':")
    print(f"    {ids[0]} to {ids[-1]}, with the claim prp-{label} and the figure fig-{label}.")
    print(f"See it:       gllm render --smoke {chapter.split('-')[0]}")
    print("Make it yours: open the notebook (reload it if it is open), replace what the comments say, and add a line")
    print("              to 'What was checked'.")
    print("Be rid of it: delete those cells; git diff shows whether anything else changed.")


def _diff(options: argparse.Namespace) -> int:
    from gllm_lib.book import compare

    found = compare.compare(options.old, options.new)
    print(compare.as_json(found) if options.json else compare.as_text(found))
    return 1 if found else 0


def _test(options: argparse.Namespace) -> None:
    from gllm_lib.cli import suite

    suite.run(open_project().root)
