"""Starting a run: the presets at the left, at the right a form made from the chosen one.

The form says with every key what is wrong, what the run would take and whether it fits. The
result is the run's request; the dialog starts nothing itself.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, OptionList, Select, Static
from textual.widgets.option_list import Option

from gputui import presets
from gputui.errors import PresetError
from gputui.presets import Machine, Memory, Parameter, Preset
from gputui.protocol.frontend import StartRun
from gputui.tui.dialogs.form import Form, headless_command
from gputui.tui.dialogs.modal import Choice, Choices, Modal
from gputui.tui.rendering import format as fmt

ACTIONS = {"^r": "run", "^y": "copy", "esc": "leave"}


class ParameterRow(Horizontal):
    """One parameter: name, input, unit or mistake, and purpose."""

    def __init__(self, parameter: Parameter, default: str, value: str) -> None:
        super().__init__()
        self.parameter = parameter
        self._default = default
        self._value = value or default
        self._help = Static(markup=False, classes="help")

    def compose(self) -> ComposeResult:
        """Lay out the row; choices and truths are chosen, the rest is typed."""
        parameter = self.parameter
        choices = ("false", "true") if parameter.type is bool else parameter.choices
        yield Static(parameter.name, markup=False, classes="name")
        if choices:
            options = [(choice, choice) for choice in choices]
            yield Select(options, value=self._value, allow_blank=False, compact=True)
        else:
            yield Input(self._value, placeholder=self._default, compact=True, max_length=200)
        yield self._help

    def on_mount(self) -> None:
        """Show the parameter's purpose."""
        self.explain("")

    def explain(self, mistake: str) -> None:
        """Show the mistake, or the parameter's purpose."""
        unit, text = self.parameter.unit, self.parameter.help
        shown = text if not unit or unit in text else f"{text} [{unit}]"
        self._help.update(mistake or shown)
        self._help.set_class(bool(mistake), "wrong")


class RunDialog(Modal[StartRun | None]):
    """Choose a preset, set its parameters, run it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("ctrl+r", "run", show=False),
        Binding("ctrl+y", "copy", show=False),
    ]
    DEFAULT_CSS = """
    RunDialog > Vertical { width: 96%; max-width: 120; height: 90%; max-height: 34; }
    RunDialog #presets { width: 16; height: auto; border: none; padding: 0; }
    RunDialog #form { height: 1fr; padding: 0 1; }
    RunDialog ParameterRow { height: 1; }
    RunDialog ParameterRow .name { width: 14; color: $text-accent; }
    RunDialog ParameterRow Input { width: 20; background: $panel; }
    RunDialog ParameterRow Select { width: 20; height: 1; background: $panel; }
    RunDialog ParameterRow .help { width: 1fr; color: $text-muted; margin-left: 1; height: 1; }
    RunDialog ParameterRow .help { text-wrap: nowrap; text-overflow: ellipsis; }
    RunDialog ParameterRow .wrong { color: $text-error; }
    """

    def __init__(
        self,
        cluster: str,
        machine: Machine | None,
        preset: str = "",
        forms: Mapping[str, Mapping[str, str]] | None = None,
        *,
        editing: bool = False,
    ) -> None:
        """`forms` are what each preset's form is filled in with, by preset.

        `editing` puts the cursor into the first parameter.
        """
        super().__init__()
        self._cluster = cluster
        self._machine = machine
        self._names = presets.names()
        if preset and preset not in self._names and ":" in preset:
            self._names = (preset, *self._names)  # one of a file, that a run is repeated of
        self._editing = editing
        self._first = preset if preset in self._names else self._names[0]
        self._shown = self._first
        """The preset whose form is shown, or about to be."""
        self._forms = forms or {}
        self._form: Form | None = None
        self._hint = ""
        self._outcome = Static()

    def compose(self) -> ComposeResult:
        """Lay out the list, the form and its summary."""
        options = OptionList(*(Option(name, id=name) for name in self._names), id="presets")
        options.highlighted = self._names.index(self._first)
        with Vertical():
            with Horizontal():
                yield options
                yield VerticalScroll(id="form", can_focus=False)
            yield self._outcome
            yield Choices(
                Choice("^r", "run"), Choice("^y", "copy command"), Choice("esc", "cancel")
            )

    def on_mount(self) -> None:
        """Put the focus on the list."""
        self.query_one("#presets", OptionList).focus()

    async def fill(self) -> None:
        """Show the form of the first preset."""
        await self._show_form(self._first)
        if self._editing:
            self._focus_parameters()

    @on(OptionList.OptionHighlighted)
    async def _preset_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        name = event.option.id or ""
        if event.option_index != event.option_list.highlighted:
            return  # it was highlighted before another one was
        if name != self._shown:
            await self._show_form(name)

    @on(OptionList.OptionSelected)
    def _focus_parameters(self) -> None:
        for widget in self.query("ParameterRow Input, ParameterRow Select"):
            self.set_focus(widget)  # at once: the next key is its
            return

    async def on_key(self, event: events.Key) -> None:
        """Go to the next preset that begins with the letter typed into their list."""
        options, letter = self.query_one("#presets", OptionList), event.character or ""
        if not options.has_focus or not event.is_printable:
            return
        if not letter.isalpha():
            self._hint = "enter or tab goes to the parameters"
            self._show_outcome()
            return
        here = options.highlighted or 0
        after = [*range(here + 1, len(self._names)), *range(here)]
        found = (place for place in after if self._names[place].startswith(letter))
        options.highlighted = next(found, here)

    async def _show_form(self, name: str) -> None:
        self._shown = name
        form = self.query_one("#form")
        await form.remove_children()
        await form.mount(*self._filled_in(name))
        self._show_outcome()

    def _filled_in(self, name: str) -> Iterator[Widget]:
        """Begin a preset's form, and give its rows; where it cannot be had, why."""
        try:
            preset: Preset = presets.get(name)
        except (PresetError, ImportError) as error:
            self._form = None
            yield Static(fmt.safe(str(error)), markup=False, classes="wrong")
            return
        known = {each.name for each in preset.parameters}
        typed = self._forms.get(name, {})
        texts = {key: text for key, text in typed.items() if key in known}
        self._form = form = Form(preset, self._machine, texts)
        yield Static(preset.summary, markup=False, classes="title")
        for each in preset.parameters:
            yield ParameterRow(each, form.default_text(each), texts.get(each.name, ""))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._take(event.input, event.value)

    @on(Select.Changed)
    def _selected(self, event: Select.Changed) -> None:
        self._take(event.select, str(event.value))

    def _take(self, widget: Widget, text: str) -> None:
        row = widget.parent
        if self._form is not None and isinstance(row, ParameterRow):
            self._form = self._form.typed(row.parameter.name, text)
            self._show_outcome()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Say all there is to say of the parameter that has the focus."""
        row = event.widget.parent
        hint = ""
        if isinstance(row, ParameterRow) and self._form is not None:
            parameter = row.parameter
            default = self._form.default_text(parameter)
            hint = f"{parameter.name}: {parameter.help}; {parameter.bounds}, {default} by default"
        self._hint = hint
        self._show_outcome()

    def _show_outcome(self) -> None:
        """Show mistakes, the memory needed, and the equivalent command."""
        form = self._form
        if form is None:
            return
        mistakes = form.mistakes()
        for row in self.query(ParameterRow):
            row.explain(mistakes.get(row.parameter.name, ""))
        memory, machine = None, form.machine
        try:
            memory = form.memory()
        except Exception as error:  # the border of one preset: whatever its own reckoning raises
            mistakes[""] = f"{form.preset.name}: {type(error).__name__}: {error}"
        wrong = "" in mistakes or not fits(memory, machine)
        text = fmt.safe(mistakes.get("") or memory_text(memory, machine))
        lines = (
            (self._hint, "dim"),
            (text, "$text-error" if wrong else ""),
            (self._command(), "dim"),
        )
        self._outcome.update(Content("\n").join(Content.styled(*line) for line in lines))

    def _command(self) -> str:
        form = self._form
        if form is None:
            return ""
        return headless_command(self._cluster, form.preset.name, form.parameters())

    @on(Choice.Chosen)
    async def _chosen(self, event: Choice.Chosen) -> None:
        await self.run_action(ACTIONS[event.key])

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_run()

    def action_run(self) -> None:
        """End with the run, unless something is wrong with it."""
        form = self._form
        if form is not None and not form.mistakes() and form.machine is not None:
            self.dismiss(StartRun(0, form.preset.name, form.parameters()))
        else:
            self.app.bell()

    def action_copy(self) -> None:
        """Copy the command that does the same without a screen."""
        self.app.copy_to_clipboard(self._command())

    def action_leave(self) -> None:
        """End with nothing."""
        self.dismiss(None)


def fits(memory: Memory | None, machine: Machine | None) -> bool:
    """Return whether there is room for a run, as far as that is known."""
    return memory is None or machine is None or memory.peak_bytes <= machine.smallest_bytes


def memory_text(memory: Memory | None, machine: Machine | None) -> str:
    """Return a line about the memory that a run would need, and where.

    >>> machine = Machine("cupy", workers=8, threads=8, smallest_bytes=2**37)
    >>> memory_text(Memory(2**33, "use fewer rows"), machine)
    'on 8 workers (cupy): needs about 8G of 128G on each: fits'
    """
    if machine is None:
        return "no worker is up yet"
    where = f"on {fmt.many(machine.workers, 'worker')} ({machine.backend})"
    if memory is None:
        return where
    need, room = fmt.size(memory.peak_bytes), fmt.size(machine.smallest_bytes)
    verdict = "fits" if fits(memory, machine) else f"too large; {memory.change}"
    return f"{where}: needs about {need} of {room} on each: {verdict}"
