"""The page to chat on, in a real browser (Debian's chromium and chromium-driver)."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.factories import Options
from tests.server.support import Site, serving, until

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=900,700"),
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def test_the_page_is_whole_and_asks_nobody_else(site: Site) -> None:
    got = site.client.get("/")
    assert got.headers["content-type"].startswith("text/html")
    policy = got.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert len(re.findall(r"'sha256-[\w+/=]{44}'", policy)) == 2
    assert re.findall(r"https?://", got.text) == []
    assert "innerHTML" not in got.text


class Browser:
    """Chromium behind its driver's protocol."""

    def __init__(self, url: str, profile: Path) -> None:
        self._client = httpx2.Client(base_url=url, timeout=60)
        options = {"args": [*_FLAGS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        wish = {
            "capabilities": {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        }
        self._session = f"/session/{self._send('POST', '/session', wish)['sessionId']}"

    def close(self) -> None:
        self._send("DELETE", self._session)
        self._client.close()

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        got = self._client.request(method, path, json={} if body is None and method == "POST" else body)
        assert got.status_code == 200, got.text
        return got.json()["value"]

    def go(self, url: str) -> None:
        self._send("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        return self._send("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def type(self, selector: str, text: str) -> None:
        found = self._send("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        self._send("POST", f"{self._session}/element/{found[_ELEMENT]}/value", {"text": text})

    def click(self, selector: str) -> None:
        found = self._send("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        self._send("POST", f"{self._session}/element/{found[_ELEMENT]}/click")

    def text(self, selector: str) -> str:
        found: str = self.run(f"return [...document.querySelectorAll('{selector}')].map(x => x.innerText).join('\\n')")
        return found

    def complaints(self) -> list[str]:
        """What its console holds."""
        return [entry["message"] for entry in self._send("POST", f"{self._session}/se/log", {"type": "browser"})]

    def picture(self) -> bytes:
        return base64.b64decode(self._send("GET", f"{self._session}/screenshot"))


@contextmanager
def _driver() -> Iterator[str]:
    process = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        port = next(found[1] for line in lines if (found := re.search(r"on port (\d+)\.", line)))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
    with _driver() as url:
        found = Browser(url, tmp_path_factory.mktemp("profile"))
        try:
            yield found
        finally:
            found.close()


def _seen(browser: Browser, selector: str, wanted: Callable[[str], bool]) -> str:
    """The text of what the selector finds, as soon as it is so."""
    found: list[str] = []

    def look() -> bool:
        found[:] = [browser.text(selector)]
        return wanted(found[0])

    until(look)
    return found[0]


def test_ask_stream_stop_and_numbers(browser: Browser) -> None:
    with serving(Options(pass_s=0.03)) as site:
        browser.go(site.url)
        assert "fake.gguf" in _seen(browser, "#model", lambda text: "fake" in text)
        browser.run("document.getElementById('limit').value = 60")
        browser.type("#question", "abc abc abc\n")
        numbers = _seen(browser, "#live", lambda text: "tok" in text)
        assert re.match(r"\d+ tok", numbers)
        _seen(browser, ".assistant .numbers", lambda text: text.startswith("60 tok"))
        until(lambda: browser.run("return document.getElementById('stop').hidden"))
        answer = browser.run("return turns[1].content")
        asked = {"messages": [{"role": "user", "content": "abc abc abc"}], "max_tokens": 60}
        assert answer == site.ask("/v1/chat/completions", **asked)["choices"][0]["message"]["content"]
        assert browser.text(".assistant .text").strip() == answer.strip()
        # Without a limit, until it is stopped.
        browser.run("document.getElementById('limit').value = 3000")
        browser.type("#question", "again\n")
        until(lambda: site.serving.ledger.read().running == 1)
        browser.click("#stop")
        until(lambda: site.open == 0, 5)
        assert _seen(browser, ".assistant .numbers", lambda text: "stopped" in text)
        assert browser.complaints() == []
        if folder := os.environ.get("LOCALSPEC_TEST_PICTURES"):
            (Path(folder) / "page.png").write_bytes(browser.picture())


def test_what_a_model_says_is_text(browser: Browser) -> None:
    script = ("<img src=x onerror=alert(1)>", "\n", "```html\n", "<b>bold</b>\n", "```\n", "& <script>done</script>")
    with serving(Options(script=script)) as site:
        browser.go(site.url)
        browser.type("#question", "<i>hello</i>\n")
        _seen(browser, ".assistant .numbers", lambda text: "tok" in text)
        until(lambda: browser.run("return document.getElementById('stop').hidden"))
        assert browser.text(".assistant pre") == "<b>bold</b>"
        assert browser.text(".user .text") == "<i>hello</i>"
        assert "<script>done</script>" in browser.text(".assistant .text")
        assert browser.run("return document.querySelectorAll('#log img, #log b b, #log i, #log script').length") == 0


def test_a_key_is_asked_for_and_a_fault_is_shown(browser: Browser) -> None:
    with serving(keys=("secret",)) as site:
        browser.go(site.url)
        assert "key" in _seen(browser, "#model", lambda text: "key" in text)
        browser.run("document.getElementById('settings').open = true")
        browser.type("#key", "secret\t")
        _seen(browser, "#model", lambda text: "fake.gguf" in text)
        browser.run("document.getElementById('temperature').value = -1e12")
        browser.type("#question", "hello\n")
        assert "temperature" in _seen(browser, ".fault", lambda text: bool(text))
        assert browser.run("return turns.length") == 0
