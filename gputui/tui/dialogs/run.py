"""Starting a run: the presets at the left, at the right a form made from the chosen one.

The form says with every key what is wrong, what the run would take and whether it fits. The result
is the run's request; the dialog starts nothing itself. Unchanged values are not sent, so that the
backend's own defaults hold where it runs.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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
from gputui.model.readings import Owner
from gputui.model.snapshot import Snapshot
from gputui.presets import Machine, Memory, Parameter, Preset, Value
from gputui.presets.workers import room_of_task
from gputui.protocol.frontend import StartRun
from gputui.protocol.programs import exec_words, is_program
from gputui.runs.records import is_script
from gputui.tui.dialogs import Choice, Modal
from gputui.tui.rendering import format as fmt


@dataclass(frozen=True)
class Form:
    """A preset's parameters as texts, on the way to a run."""

    preset: Preset
    machine: Machine | None
    """The workers it would run on; None while the cluster has no workers."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Typed texts by parameter; untouched ones are absent."""

    @property
    def backend(self) -> str:
        """The backend that `auto` comes to on these workers."""
        return self.machine.backend if self.machine else "cupy"

    def default_text(self, parameter: Parameter) -> str:
        """Return a parameter's default as a person would type it."""
        return written(parameter.default_for(self.backend))

    def typed(self, name: str, text: str) -> "Form":
        """Return the form with this text; a default that is typed out again is no change."""
        texts = {key: value for key, value in self.texts.items() if key != name}
        parameter = self.preset.parameter(name)
        if text.strip() not in ("", self.default_text(parameter)):
            texts[name] = text.strip()
        return replace(self, texts=texts)

    def mistakes(self) -> dict[str, str]:
        """Return the mistakes, by parameter; under "", that of parameters together."""
        parsed = presets.parse(self.preset, self.texts)
        try:
            parsed.complete(self.backend)
        except PresetError as error:
            return dict(parsed.mistakes) or {"": str(error)}
        return {}

    def memory(self) -> Memory | None:
        """Estimate the memory of the run on these workers; None where that cannot be said."""
        if self.preset.estimate is None or self.machine is None or self.mistakes():
            return None
        parsed = presets.parse(self.preset, self.texts)
        return self.preset.estimate(parsed.complete(self.backend), self.machine)

    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Return the parameters to send, in the preset's order."""
        names = [parameter.name for parameter in self.preset.parameters]
        return tuple((name, self.texts[name]) for name in names if name in self.texts)


def written(value: Value) -> str:
    """Return a value as `-p` takes it.

    >>> written(None), written(True), written(1e-06), written(500000)
    ('auto', 'true', '1e-06', '500000')
    """
    if value is None:
        return "auto"
    return str(value).lower() if isinstance(value, bool) else str(value)


def defaults(
    preset: str, given: tuple[tuple[str, str], ...], backend: str
) -> list[tuple[str, str]]:
    """Return the parameters of a preset that were not given; nothing for one that is not known.

    >>> defaults("svd", (("rows", "20000"),), "numpy")[0], defaults("no-such", (), "numpy")
    (('cols', '1000'), [])
    """
    known = dict(given)
    try:
        parameters = () if is_script(preset) else presets.get(preset).parameters
    except (PresetError, ImportError):
        return []
    return [(p.name, written(p.default_for(backend))) for p in parameters if p.name not in known]


def headless_command(
    cluster: str, preset: str, parameters: tuple[tuple[str, str], ...], backend: str = "auto"
) -> str:
    """Return the command that runs the same on the same cluster without a screen.

    >>> headless_command("lab", "svd", (("rows", "1000000"),))
    'gputui --attach lab --run svd -p rows=1000000'
    >>> headless_command("lab", "/home/me/train.py", (("arguments", "20 'a b'"),))
    "gputui --attach lab --run /home/me/train.py -- 20 'a b'"
    """
    if is_program(preset):
        return shlex.join(["gputui", "--attach", cluster, *exec_words(parameters)])
    words = ["gputui", "--attach", cluster, "--run", preset]
    if is_script(preset):
        arguments = dict(parameters).get("arguments", "")
        return f"{shlex.join(words)} -- {arguments}" if arguments else shlex.join(words)
    for name, text in parameters:
        words += ["-p", f"{name}={text}"]
    if backend != "auto":
        words += ["--backend", backend]
    return shlex.join(words)


def machine_of(snapshot: Snapshot) -> Machine | None:
    """Describe the workers that are up, for an estimate of memory."""
    up = [worker for worker in snapshot.workers if worker.state.up]
    on_gpus = [worker for worker in up if worker.device_uuid]
    chosen, backend = on_gpus or up, "cupy" if on_gpus else "numpy"
    if not chosen:
        return None
    free = dict(_free_bytes(snapshot))
    sharing = Counter(worker.device_uuid or worker.host for worker in chosen)
    rooms = []
    for worker in chosen:
        place = worker.device_uuid or worker.host
        limit = None if worker.device_uuid else worker.memory_limit_bytes
        if (room := limit or free.get(place, 0) / sharing[place]) > 0:
            rooms.append(room_of_task(backend, room, worker.nthreads))
    return Machine(
        backend=backend,
        workers=len(chosen),
        threads=sum(worker.nthreads for worker in chosen),
        smallest_bytes=min(rooms, default=0),
    )


def _free_bytes(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """Yield the free memory of each host, and of each device but for what its workers can reuse."""
    held = Counter[str | None]()
    for worker in snapshot.workers:
        held[worker.device_uuid] += worker.device_managed_bytes or 0
    for host in snapshot.hosts:
        use = host.reading
        yield host.name, (use.memory_total_bytes or 0) - (use.memory_used_bytes or 0)
        for device in host.devices:
            others = (each for each in device.processes if each.owner is not Owner.OURS)
            taken = held[device.uuid] + sum(each.memory_bytes or 0 for each in others)
            yield device.uuid, (device.memory_total_bytes or 0) - taken


ACTIONS = {"^r": "run", "^y": "copy", "esc": "dismiss(None)"}


class RunDialog(Modal[StartRun | None]):
    """Choose a preset, set its parameters, run it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "run", show=False),
        Binding("ctrl+y", "copy", show=False),
    ]
    DEFAULT_CSS = """
    RunDialog { background: $background; }
    RunDialog > Vertical { width: 96%; max-width: 120; height: 90%; max-height: 34; }
    RunDialog #presets { width: 16; height: auto; border: none; padding: 0; }
    RunDialog #form { height: 1fr; padding: 0 1; }
    RunDialog .row { height: 1; }
    RunDialog .row .name { width: 14; color: $text-accent; }
    RunDialog .row Input { width: 20; background: $panel; }
    RunDialog .row Select { width: 20; height: 1; background: $panel; }
    RunDialog .row .help { width: 1fr; color: $text-muted; margin-left: 1; height: 1; }
    RunDialog .row .help { text-wrap: nowrap; text-overflow: ellipsis; }
    RunDialog .wrong, RunDialog .row .wrong { color: $text-error; }
    """

    def __init__(
        self,
        cluster: str,
        machine: Machine | None,
        preset: str = "",
        forms: Mapping[str, Mapping[str, str]] | None = None,
        backend: str = "auto",
        *,
        editing: bool = False,
    ) -> None:
        """`forms` are what each preset's form is filled in with, by preset.

        `editing` puts the cursor into the first parameter.
        """
        super().__init__()
        self._cluster = cluster
        self._machine = machine
        self._backend = backend
        self._names = presets.names()
        if preset and preset not in self._names and ":" in preset:
            self._names = (preset, *self._names)  # of a file: its run is repeated
        self._editing = editing
        self._shown = preset if preset in self._names else self._names[0]
        """The preset whose form is shown, or about to be, by the name that starts it."""
        self._forms = forms or {}
        self._form: Form | None = None
        self._helps: dict[str, Static] = {}
        """The purpose of each parameter, or its mistake, behind its value."""
        self._hint = ""
        self._presets = OptionList(*(Option(name) for name in self._names), id="presets")
        self._outcome = Static()

    def compose(self) -> ComposeResult:
        """Lay out the list, the form and its summary."""
        self._presets.highlighted = self._names.index(self._shown)
        with Vertical():
            with Horizontal():
                yield self._presets
                yield VerticalScroll(*self._filled_in(self._shown), id="form", can_focus=False)
            yield self._outcome
            ways = Choice("^r", "run"), Choice("^y", "copy command"), Choice("esc", "cancel")
            yield Horizontal(*ways, classes="choices")

    def on_mount(self) -> None:
        """Show what the form comes to."""
        self.set_focus(self._presets)
        self._show_outcome()
        if self._editing:
            self._focus_parameters()

    @on(OptionList.OptionHighlighted, "#presets")
    async def _preset_highlighted(self) -> None:
        name = self._names[self._presets.highlighted or 0]
        if name == self._shown:
            return
        self._shown = name
        form = self.query_one("#form")
        await form.remove_children()
        await form.mount(*self._filled_in(name))
        self._show_outcome()

    @on(OptionList.OptionSelected, "#presets")
    def _focus_parameters(self) -> None:
        if parameters := self.query("#form Input, #form Select"):
            self.set_focus(parameters.first())  # at once: it gets the next key

    def _filled_in(self, name: str) -> Iterator[Widget]:
        """Yield a preset's summary and parameters; where it cannot be loaded, why."""
        self._form = None
        try:
            preset = presets.get(name)
        except (PresetError, ImportError) as error:
            yield Static(fmt.safe(str(error)), markup=False, classes="wrong")
            return
        texts = self._forms.get(name, {})
        known = {each.name: texts[each.name] for each in preset.parameters if each.name in texts}
        self._form = form = Form(preset, self._machine, known)
        yield Static(preset.summary, markup=False, classes="title")
        for each in preset.parameters:
            yield self._row(each, form.default_text(each), known.get(each.name, ""))

    def _row(self, parameter: Parameter, default: str, text: str) -> Widget:
        """Return the row of a parameter: choices and truths are chosen, the rest is typed."""
        name, value = parameter.name, text or default
        choices = ("false", "true") if parameter.type is bool else parameter.choices
        field: Widget = Input(value, placeholder=default, compact=True, max_length=200, name=name)
        if choices:
            options = [(choice, choice) for choice in choices]
            field = Select(options, value=value, allow_blank=False, compact=True, name=name)
        shown = self._helps[name] = Static(markup=False, classes="help")
        return Horizontal(Static(name, markup=False, classes="name"), field, shown, classes="row")

    @on(Input.Changed)
    @on(Select.Changed)
    def _typed(self, event: Input.Changed | Select.Changed) -> None:
        if self._form is not None and event.control.name:
            self._form = self._form.typed(event.control.name, str(event.value))
            self._show_outcome()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Show all about the focused parameter."""
        self._hint = ""
        if self._form is not None and event.widget.name:
            parameter = self._form.preset.parameter(event.widget.name)
            default = self._form.default_text(parameter)
            help_ = f"{parameter.name}: {parameter.help}"
            self._hint = f"{help_}; {parameter.bounds}, {default} by default"
        self._show_outcome()

    def _show_outcome(self) -> None:
        """Show mistakes, the memory needed, and the equivalent command."""
        if (form := self._form) is None:
            return
        mistakes, memory = form.mistakes(), None
        for parameter in form.preset.parameters:
            wrong, unit, text = mistakes.get(parameter.name), parameter.unit, parameter.help
            shown = self._helps[parameter.name]
            shown.update(wrong or (text if not unit or unit in text else f"{text} [{unit}]"))
            shown.set_class(bool(wrong), "wrong")
        try:
            memory = form.memory()
        except Exception as error:  # the border of one preset, whose own estimate may raise
            mistakes[""] = f"{form.preset.name}: {type(error).__name__}: {error}"
        bad = "" in mistakes or not fits(memory, form.machine)
        text = fmt.safe(mistakes.get("") or memory_text(memory, form.machine))
        lines = (
            (self._hint, "dim"),
            (text, "$text-error" if bad else ""),
            (self._command(), "dim"),
        )
        self._outcome.update(Content("\n").join(Content.styled(*line) for line in lines))

    def _command(self) -> str:
        if (form := self._form) is None:
            return ""
        return headless_command(self._cluster, self._shown, form.parameters(), self._backend)

    async def choose(self, key: str) -> None:
        """Do what a choice below the form says."""
        await self.run_action(ACTIONS[key])

    @on(Input.Submitted)
    def action_run(self) -> None:
        """End with the run, unless something is wrong with it."""
        form = self._form
        if form is not None and not form.mistakes() and form.machine is not None:
            self.dismiss(StartRun(0, self._shown, form.parameters(), self._backend))
        else:
            self.app.bell()

    def action_copy(self) -> None:
        """Copy the command that does the same without a screen."""
        self.app.copy_to_clipboard(self._command())


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
