"""The kinds of cluster that are compared, and the names of tests that run on each."""

KINDS = ("LocalCluster", "GPUCluster")


def kind_of(test: str) -> str:
    """Return on which kind of cluster a test runs.

    >>> kind_of("test_bag.py::test_fold[GPUCluster-1]")
    'GPUCluster'
    """
    return next(kind for kind in KINDS if kind in test.partition("[")[2])


def without_kind(test: str) -> str:
    """Return a test's name as it is without this plugin.

    >>> without_kind("a.py::b[GPUCluster-1]"), without_kind("a.py::b[LocalCluster]")
    ('a.py::b[1]', 'a.py::b')
    """
    function, _, case = test.partition("[")
    rest = [part for part in case.removesuffix("]").split("-") if part not in KINDS]
    return f"{function}[{'-'.join(rest)}]" if rest else function
