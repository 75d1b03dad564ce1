"""The modules beside a script: found, sent as they are now, imported from memory."""

import importlib
import pickle
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from gputui.runs import modules
from gputui.runs.modules import Modules, modules_in


@pytest.fixture(autouse=True)
def importing() -> Iterator[None]:
    """Leave the imports of this process as they were."""
    finders, names = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - names:
        del sys.modules[name]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / (name.replace("__in__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def sent(folder: Path) -> Modules:
    """Return the modules of a folder as a worker gets them."""
    return pickle.loads(pickle.dumps(modules_in(folder)))


def test_modules_and_packages_are_found_with_all_they_hold(tmp_path: Path) -> None:
    write(tmp_path, one="", pack__in____init__="", pack__in__two="", folder__in__three="")
    (tmp_path / "no-module.py").touch()
    assert sorted(modules_in(tmp_path).sources) == ["one", "pack", "pack.two"]


def test_they_are_imported_where_the_folder_is_not_on_the_path(tmp_path: Path) -> None:
    write(tmp_path, qa_pack__in____init__="from .two import x", qa_pack__in__two="x = 1")
    sent(tmp_path).install()
    package = importlib.import_module("qa_pack")
    assert (package.x, package.__file__) == (1, str(tmp_path / "qa_pack" / "__init__.py"))
    assert importlib.import_module("qa_pack.two").__package__ == "qa_pack"


def test_a_package_reads_its_data_where_its_folder_is(tmp_path: Path) -> None:
    write(tmp_path, qa_pack__in____init__="")
    (tmp_path / "qa_pack" / "data.txt").write_text("here")
    sent(tmp_path).install()
    package = importlib.import_module("qa_pack")
    assert pkgutil.get_data("qa_pack", "data.txt") == b"here"
    assert resources.files(package).joinpath("data.txt").read_text() == "here"
    with pytest.raises(FileNotFoundError):
        pkgutil.get_data("qa_pack", "none.txt")


def test_an_edited_module_takes_the_place_of_one_that_was_uninstalled(tmp_path: Path) -> None:
    before = list(sys.meta_path)
    for value in (1, 2, 2):
        write(tmp_path, qa_value=f"x = {value}")
        there = sent(tmp_path)
        there.install()
        assert importlib.import_module("qa_value").x == value
        there.uninstall()
    assert "qa_value" not in sys.modules
    assert sys.meta_path == before


def test_two_folders_clash_where_a_name_means_two_modules(tmp_path: Path) -> None:
    write(tmp_path / "a", qa_same="x = 1", qa_other="x = 1", qa_mine="")
    write(tmp_path / "b", qa_same="x = 1", qa_other="x = 2", qa_yours="")
    assert sent(tmp_path / "a").clashes(sent(tmp_path / "b")) == ["qa_other"]


def test_a_module_in_use_is_not_replaced_by_another_one_of_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a", qa_other="x = 1")
    write(tmp_path / "b", qa_other="x = 2")
    one, another = sent(tmp_path / "a"), sent(tmp_path / "b")
    one.install()
    importlib.import_module("qa_other")
    with pytest.raises(ImportError, match="qa_other: the cluster has loaded another module"):
        another.install()
    assert importlib.import_module("qa_other").x == 1


def test_what_two_have_sent_alike_stays_when_one_of_them_leaves(tmp_path: Path) -> None:
    write(tmp_path, qa_state="x = []")
    one, other = sent(tmp_path), sent(tmp_path)
    one.install()
    importlib.import_module("qa_state").x.append(1)
    other.install()
    one.uninstall()
    assert importlib.import_module("qa_state").x == [1]


def test_a_file_with_the_name_of_a_module_of_pythons_own_is_none_of_the_folders(
    tmp_path: Path,
) -> None:
    write(tmp_path, queue="", colorsys="", pytest="", qa_own="")
    assert sorted(modules_in(tmp_path).sources) == ["qa_own"]


@pytest.mark.parametrize("file", ["__main__.py", None])
def test_what_runs_is_none_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None
) -> None:
    write(tmp_path, __main__="", qa_own="")
    runs = sys.modules["__main__"]
    monkeypatch.setattr(runs, "__file__", file and str(tmp_path / file), raising=False)
    assert sorted(modules_in(tmp_path).sources) == ["qa_own"]


def test_a_module_that_did_not_change_is_not_imported_again(tmp_path: Path) -> None:
    write(tmp_path, qa_state="x = []")
    sent(tmp_path).install()
    importlib.import_module("qa_state").x.append(1)
    sent(tmp_path).install()
    assert importlib.import_module("qa_state").x == [1]


def test_a_traceback_shows_the_line_of_the_source(tmp_path: Path) -> None:
    write(tmp_path, qa_error="def fail():\n    return 1 / 0  # here\n")
    sent(tmp_path).install()
    (tmp_path / "qa_error.py").unlink()
    with pytest.raises(ZeroDivisionError) as caught:
        importlib.import_module("qa_error").fail()
    assert "return 1 / 0  # here" in traceback.format_exception(caught.value)[-2]


def test_what_is_too_much_is_left_out_but_not_what_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "MOST_BYTES", 100)
    write(tmp_path, a="#" * 90, z="#" * 50)
    found = modules_in(tmp_path, first={"z"})
    assert (list(found.sources), found.left_out) == (["z"], 1)


def test_a_package_that_holds_itself_ends(tmp_path: Path) -> None:
    write(tmp_path, pack__in____init__="")
    (tmp_path / "pack" / "pack").symlink_to(tmp_path / "pack")
    assert 2 <= len(modules_in(tmp_path).sources) <= modules.DEEPEST + 2


def test_a_folder_that_is_gone_has_no_modules(tmp_path: Path) -> None:
    assert modules_in(tmp_path / "none").sources == {}
