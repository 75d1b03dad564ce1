"""Parse parameters of a form, the command line or Python code into typed values and mistakes.

It is parsed where it comes in; what follows, to the computation itself, takes the outcome as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gputui.errors import PresetError
from gputui.presets.definition import Preset, Value


@dataclass(frozen=True, slots=True)
class ParsedParameters:
    """The parameters that a preset was given."""

    preset: Preset
    given: Mapping[str, object]
    values: Mapping[str, Value]
    """Of those that are right."""
    mistakes: Mapping[str, str]
    """The requirement on the value, as in "must be an integer"."""

    def complete(self, backend: str) -> dict[str, Value]:
        """Return the values of all parameters, with this backend's defaults for those not given.

        Raises:
            PresetError: with a line for each mistake, or where parameters do not go together.
        """
        if self.mistakes:
            lines = (f"{key}={self.given[key]}: {wrong}" for key, wrong in self.mistakes.items())
            raise PresetError("\n".join(f"{self.preset.name}: {line}" for line in lines))
        defaults = {each.name: each.default_for(backend) for each in self.preset.parameters}
        completed = {**defaults, **self.values}
        if self.preset.check:
            try:
                self.preset.check(completed)
            except PresetError:
                raise
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                text = f"{self.preset.name}: its check of the parameters failed: {said}"
                raise PresetError(text) from error
        return completed

    def refuse_mistakes(self, backend: str = "auto") -> None:
        """Raise PresetError where they are right on no backend, before any worker is known."""
        problems = []
        for each in ("cupy", "numpy") if backend == "auto" else (backend,):
            try:
                self.complete(each)
            except PresetError as error:
                problems.append(error)
            else:
                return
        raise problems[0]


def parse(preset: Preset, given: Mapping[str, object] | ParsedParameters) -> ParsedParameters:
    """Parse texts or values as parameters of a preset; those already parsed stay as they are."""
    if isinstance(given, ParsedParameters):
        return given
    values: dict[str, Value] = {}
    mistakes: dict[str, str] = {}
    for name, one in given.items():
        try:
            values[name] = preset.parameter(name).parse(one)
        except PresetError as error:
            mistakes[name] = str(error)
    return ParsedParameters(preset, given, values, mistakes)
