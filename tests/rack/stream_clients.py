"""Clients that stream completions while something happens, and what became of each request."""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import httpx

from tests.rack.host import Host
from tests.waiting import wait_for

URL = "http://127.0.0.1:8000/v1/completions"
PROMPTS = tuple(f"Tell me about {word}" for word in ("rain", "a copper kettle", "the sea", "three owls"))
LENGTHS = (12, 40)
CONNECT_LIMIT_S = 10
SILENT_LIMIT_S = 60
"""Without a byte for so long, a client gives up: its request hung."""
PAUSE_S = 0.5
RECORD_LIMIT_S = 300
Fate = Literal["whole", "refused", "broken", "hung"]
Question = tuple[str, int]
"""A prompt and how many tokens to answer with."""


@dataclass(frozen=True)
class Request:
    question: Question
    began: float
    ended: float
    fate: Fate
    text: str = ""
    why: str = ""


@dataclass
class Streams:
    """So many clients on a host, each asking one question after another."""

    at: Callable[[], Host]
    count: int
    random: Random
    right: dict[Question, str] = field(default_factory=dict)
    done: list[Request] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def record(self) -> None:
        """Note the right answers: those that are the same for a client alone and for all at once."""
        questions = [(prompt, length) for prompt in PROMPTS for length in LENGTHS]
        alone = {each: asked(self.at(), each) for each in questions}
        assert all(each.fate == "whole" for each in alone.values()), alone
        self.right = {question: found.text for question, found in alone.items()}
        self.start()
        wait_for(
            "every question was answered beside others",
            lambda: {each.question for each in list(self.done)} == set(questions),
            RECORD_LIMIT_S,
            state=lambda: [(each.question, each.fate, each.why) for each in self.done],
        )
        self.stop()
        odd = {each.question for each in self.done if each.text != self.right[each.question]}
        for question in odd:
            del self.right[question]
        assert len(self.right) >= len(questions) // 2, f"{len(odd)} answers differ without any fault"
        self.done.clear()

    def start(self) -> None:
        self._ended.clear()
        seeds = [self.random.random() for _ in range(self.count)]
        self._threads = [threading.Thread(target=self._ask, args=(seed,), daemon=True) for seed in seeds]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let them finish what they ask; a request that hangs is waited for."""
        self._ended.set()
        for thread in self._threads:
            thread.join(SILENT_LIMIT_S + 10)

    def changed(self) -> list[Request]:
        """The whole answers that are not the recorded ones."""
        return [each for each in self.done if each.fate == "whole" and each.text != self.right[each.question]]

    def differences(self) -> list[str]:
        return [f"{each.text!r} instead of {self.right[each.question]!r}" for each in self.changed()]

    def failed(self) -> list[Request]:
        return [each for each in self.done if each.fate != "whole"]

    def _ask(self, seed: float) -> None:
        own = Random(seed)
        questions = list(self.right)
        while not self._ended.is_set():
            request = asked(self.at(), own.choice(questions))
            self.done.append(request)
            if request.fate != "whole":
                self._ended.wait(PAUSE_S)


def asked(host: Host, question: Question) -> Request:
    """One streamed completion, asked on the host itself."""
    began, text = time.monotonic(), list[str]()
    try:
        with host.network():
            fate, why = _streamed(question, text)
    except OSError as error:  # the host has lost its power
        fate, why = "refused", str(error)
    return Request(question, began, time.monotonic(), fate, "".join(text), why)


def _streamed(question: Question, text: list[str]) -> tuple[Fate, str]:
    prompt, length = question
    body = {"model": "demo", "prompt": prompt, "max_tokens": length, "temperature": 0, "stream": True}
    limits = httpx.Timeout(SILENT_LIMIT_S, connect=CONNECT_LIMIT_S)
    try:
        with httpx.stream("POST", URL, json=body, timeout=limits, trust_env=False) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                return "refused", f"{answer.status_code} {answer.text[:100]}"
            return _read(answer, text)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return "refused", str(error)
    except httpx.TimeoutException as error:
        return "hung", str(error)
    except httpx.HTTPError as error:
        return "broken", str(error)


def _read(answer: httpx.Response, text: list[str]) -> tuple[Fate, str]:
    """Whole is what has a reason to finish, and after it the end of the stream."""
    finished = None
    for line in answer.iter_lines():
        word = line.removeprefix("data: ")
        if word == "[DONE]":
            whole = finished in {"stop", "length"}
            return ("whole", "") if whole else ("broken", f"it ends with {finished}")
        with contextlib.suppress(ValueError):
            event = json.loads(word)
            if "error" in event:
                return "broken", str(event["error"])[:100]
            for choice in event.get("choices", ()):
                text.append(choice["text"])
                finished = choice["finish_reason"] or finished
    return "broken", "the stream has no end"
