"""What came out, for people."""

from __future__ import annotations

import io
from collections.abc import Iterator

from localspec.tools.verify.judge import Control
from localspec.tools.verify.run import CaseResult, Checked, Compared

#: Differences that are told one by one.
_TOLD = 6


def terminal(checked: Checked, width: int) -> str:
    """A row a case, the differences, the control, the rules and the verdict."""
    from rich.console import Console
    from rich.table import Table

    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("drafter", "shape", "sampler", "same", "tokens", "guesses held", "verdict"):
        table.add_column(name)
    for one in checked.cases:
        table.add_row(*_row(one))
    console.print(table)
    for line in lines(checked):
        console.print(line, markup=False)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _row(one: CaseResult) -> tuple[str, ...]:
    same = len(one.prompts) - one.differences
    return (
        " + ".join(one.case.drafters),
        one.case.shape,
        one.case.sampler,
        f"{same}/{len(one.prompts)}",
        str(sum(prompt.tokens for prompt in one.prompts)),
        str(sum(prompt.accepted for prompt in one.prompts)),
        one.verdict,
    )


def lines(checked: Checked) -> Iterator[str]:
    """What stands below the table."""
    found = [(one, prompt) for one in checked.cases for prompt in one.prompts if prompt.difference is not None]
    found.sort(key=lambda pair: pair[1].verdict != "fault")
    for one, prompt in found[:_TOLD]:
        yield _difference(one, prompt)
    if len(found) > _TOLD:
        yield f"… and {len(found) - _TOLD} more; --json has them all"
    for one in checked.cases:
        if one.differences > one.allowed:
            yield f"{one.case.name}, {one.case.sampler}: the control allows {one.allowed:.1f} differences"
    yield _control(checked.control)
    for test in checked.chances:
        yield (
            f"rule {test.rule}: {test.answers} answers, {test.accepted} guesses held, chi-square {test.statistic:.1f}"
            f" with {test.freedom} degrees of freedom, p = {test.p_value:.3g}"
        )
    yield f"verdict: {checked.verdict}"


def _control(control: Control) -> str:
    if not control.positions:
        return "no control: with --exact nothing may differ"
    return (
        f"control (no guesses, moved cells): {control.flips} of {control.positions} tokens flip, logits move by up to"
        f" {control.moved:.2g}"
    )


def _difference(one: CaseResult, prompt: Compared) -> str:
    found = prompt.difference
    assert found is not None
    return (
        f"{one.case.name}, {one.case.sampler}, prompt {prompt.prompt}: position {found.position} has {found.token!r}"
        f" for {found.plain_token!r}; the best two lie {found.plain_gap:.2g} apart plainly and {found.gap:.2g} in the"
        f" tree, the rows {found.moved:.2g}: {found.verdict}, {found.why}"
    )
