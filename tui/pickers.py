"""Choosing a model: a list that fills while folders are looked through, narrowed by typing."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from localspec.talk.catalogue import Catalogue, Model
from localspec.talk.verdicts import Grade, Judge, Verdict
from localspec.text.printable import one_line

#: What stands before a verdict, so that no colour has to tell it.
SIGNS = {Grade.GOOD: "+", Grade.FAIR: "~", Grade.BAD: "-"}
STYLES = {Grade.GOOD: "$text-success", Grade.FAIR: "$text-warning", Grade.BAD: "$text-error"}
#: Models are put into the list in batches of this many, so that a large folder does not sort it again each time.
BATCH = 8
#: Stands beside the model that is loaded.
IN_USE = "● in use"
#: What removes the draft model.
OFF = "off"


@dataclass(frozen=True, slots=True)
class _Entry:
    model: Model
    verdict: Verdict
    used: bool

    @property
    def words(self) -> str:
        """What a filter looks into."""
        return f"{self.model.name} {self.model.facts} {self.verdict.text} {IN_USE if self.used else ''}".lower()

    @property
    def prompt(self) -> Content:
        """Name, facts, and the parts of the verdict below each other; names are no markup."""
        first, *others = one_line(self.verdict.text).split("; ")
        said = [f"  {SIGNS[self.verdict.grade]} {first}", *(f"    {part}" for part in others)]
        return Content("\n").join(
            [
                Content.assemble((one_line(self.model.name), "bold"), f"  {IN_USE}" if self.used else ""),
                Content(f"  {one_line(self.model.facts)}"),
                Content.styled("\n".join(said), STYLES[self.verdict.grade]),
            ]
        )


class ModelPicker(ModalScreen[str | None]):
    """Ends with what to give to /model or /draft, or ``None`` where nothing was chosen.

    Args:
        catalogue: where models come from.
        judge: what is said of them.
        target: for a draft model, the target it should guess for; else ``None``.
        used: the file of the model, or draft model, that is loaded.
    """

    DEFAULT_CSS = """
    ModelPicker { align: center middle; }
    ModelPicker > Vertical {
        width: 90; max-width: 100%; height: 90%; border: round $primary; background: $surface;
    }
    ModelPicker OptionList { height: 1fr; border: none; }
    ModelPicker .said { padding: 0 1; height: auto; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", id="picker.close"),
        Binding("down", "move('down')", "Next", show=False, id="picker.down"),
        Binding("up", "move('up')", "Previous", show=False, id="picker.up"),
    ]

    def __init__(
        self, catalogue: Catalogue, judge: Judge, target: Model | None = None, *, used: Path | None = None
    ) -> None:
        super().__init__()
        self._catalogue = catalogue
        self._judge = judge
        self._target = target
        self._used = None if used is None else realpath(used)
        self._placed = used is None  # the highlight: on what is in use, or by somebody
        self._found: list[_Entry] = []
        self._over = False

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = "Model" if self._target is None else "Draft model"
            yield Input(placeholder="Part of a name, quant or verdict", compact=True)
            yield OptionList(markup=False)
            yield Static(classes="said", markup=False)

    def on_mount(self) -> None:
        self.set_focus(self.query_one(Input))
        self._list()
        self._scan()

    @work(thread=True, exclusive=True)
    def _scan(self) -> None:
        worker = get_current_worker()
        batch: list[_Entry] = []
        for model in self._catalogue.scan():
            if worker.is_cancelled:
                return
            batch.append(self._entry(model))
            if len(batch) == BATCH:
                self.app.call_from_thread(self._add, batch)
                batch = []
        if not worker.is_cancelled:
            self.app.call_from_thread(self._add, batch, over=True)

    def _entry(self, model: Model) -> _Entry:
        used = self._used is not None and realpath(model.path) == self._used
        return _Entry(model, self._verdict(model), used)

    def _verdict(self, model: Model) -> Verdict:
        return self._judge.target(model) if self._target is None else self._judge.draft(model, self._target)

    def _add(self, entries: list[_Entry], *, over: bool = False) -> None:
        self._over = over
        self._found += entries
        self._found.sort(key=lambda one: one.verdict.grade)  # stable: else as they were found
        self._list()

    @on(Input.Changed)
    def _narrowed(self) -> None:
        self._placed = True
        self._list()

    def _list(self) -> None:
        """Those that have every word that was typed. What was highlighted stays so; at first it is what is in use, and
        nothing until that is found."""
        words, listed = self.query_one(Input).value.lower().split(), self.query_one(OptionList)
        before = listed.highlighted_option
        shown = [one for one in self._found if all(word in one.words for word in words)]
        unused = f"no draft model{'' if self._used else f'  {IN_USE}'}"
        off = [] if self._target is None or words else [Option(Content(unused), id=OFF)]
        listed.set_options([*off, *(Option(one.prompt, id=one.model.name) for one in shown)])
        names = [*(option.id for option in off), *(one.model.name for one in shown)]
        wanted = None if before is None else before.id
        if not self._placed:
            wanted = next((one.model.name for one in shown if one.used), None)
            self._placed = wanted is not None or self._over
        listed.highlighted = names.index(wanted) if wanted in names else (0 if names and self._placed else None)
        still = "" if self._over else ", still looking"
        self.query_one(".said", Static).update(
            f"{len(shown)} of {len(self._found)} models{still} · enter takes one · escape leaves"
        )

    def action_move(self, way: str) -> None:
        self._placed = True
        listed = self.query_one(OptionList)
        (listed.action_cursor_down if way == "down" else listed.action_cursor_up)()

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.query_one(OptionList).action_select()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        used = [one.model.name for one in self._found if one.used] if self._used else [OFF]
        self.dismiss(None if event.option.id in used else event.option.id)
