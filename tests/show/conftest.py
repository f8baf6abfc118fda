"""Reports in the browser."""

import pytest

from sea_nn.show.viewer import write_report
from tests.helpers.browser import Browser


class Report(Browser):
    """A report in the browser."""

    def __init__(self, driver, path):
        super().__init__(driver, path.as_uri())
        self.wait("document.getElementById('viewer').dataset.ready !== undefined")

    def choose(self, number):
        self.run(f"document.querySelectorAll('#maps input')[{number}].click()")

    def go(self, number):
        self.run(f"location.hash = '{number}'")
        self.wait(f"document.getElementById('viewer').dataset.ready === '{number}'")


@pytest.fixture
def browse(chromium, tmp_path):
    opened = []

    def start(explanations, **options):
        path = write_report(explanations, tmp_path / f"report-{len(opened)}.html", **options)
        opened.append(Report(chromium, path))
        return opened[-1]

    yield start
    for browser in opened[-1:]:
        assert browser.errors() == []
        assert browser.requests() == []
