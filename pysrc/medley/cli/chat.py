"""`medley chat`: talk with a running server, or send it one message."""

import json
import sys
from contextlib import closing, suppress
from dataclasses import dataclass

from medley.cli import Verb, flag, group, switch
from medley.cli.output import print_message
from medley.cli.served import ServerChoice
from medley.errors import Problem
from medley.serving import api

_END_COMMANDS = ("/exit", "/quit", "/bye")


@dataclass(frozen=True)
class _ChatServer:
    url: str
    model: str
    key: str | None
    max_tokens: int | None

    def print_answer(self, messages: list[dict[str, str]], *, is_quiet: bool) -> tuple[str, api.AnswerSpeed]:
        """Print the answer to these messages piece by piece; return it without the reasoning before it."""
        answer = ""
        pieces = api.stream_chat(self.url, self.model, messages, max_tokens=self.max_tokens, key=self.key)
        with closing(pieces):
            for piece in pieces:
                if isinstance(piece, api.AnswerSpeed):
                    return answer, piece
                answer += "" if isinstance(piece, api.ReasoningText) and not is_quiet else piece
                if not is_quiet:
                    print(piece, end="", flush=True)
        raise AssertionError("an answer ends with its speed")


class ChatVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [TEXT...]\n"

    choice: ServerChoice = group(ServerChoice)
    max_tokens: int | None = switch(
        "--max-tokens N", "limit of each answer, in tokens [default: the server's]", (1, 1_000_000)
    )
    stdin: bool = flag("--stdin", "append standard input to TEXT")
    as_json: bool = flag("--json", "one JSON object: the answer and its speed")

    def main(self, *text: str) -> int:
        if not text and not self.as_json and sys.stdin.isatty():
            return _converse(self._find_server())
        words = (*text, sys.stdin.read()) if self.stdin or not (text or sys.stdin.isatty()) else text
        if not any(word.strip() for word in words):
            raise Problem("there is no message", cause="no text was given", fix='medley chat "Hello"')
        question = "\n".join(words) if words[-1].count("\n") else " ".join(words)
        server = self._find_server()
        answer, speed = server.print_answer([{"role": "user", "content": question}], is_quiet=self.as_json)
        if self.as_json:
            print(json.dumps(_build_table(server.model, answer, speed)))
        else:
            _print_speed(speed)
        return 0

    def _find_server(self) -> _ChatServer:
        running = self.choice.find("chat")
        return _ChatServer(running.address.local_url, running.model, running.address.key, self.max_tokens)


def _converse(server: _ChatServer) -> int:
    """Chat until /exit or Ctrl-D; an answer that fails or is stopped leaves no message behind."""
    with suppress(ImportError):  # a Python without it edits no lines
        import readline  # noqa: F401 - input() edits lines once it is imported

    print_message(f"{server.model} at {server.url}; /exit or Ctrl-D ends the chat")
    messages: list[dict[str, str]] = []
    while True:
        try:
            text = input(">>> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        if text in _END_COMMANDS:
            return 0
        if text.startswith("/") and text[1:].isalpha():
            print_message(f"{text} is not a command; commands are {', '.join(_END_COMMANDS)}")
            continue
        new_messages = [*messages, {"role": "user", "content": text}]
        try:
            answer, speed = server.print_answer(new_messages, is_quiet=False) if text else ("", None)
        except (KeyboardInterrupt, Problem) as error:
            print()
            print_message(
                error if isinstance(error, Problem) else "stopped; the chat goes on without this message"
            )
        else:
            if speed:
                messages = [*new_messages, {"role": "assistant", "content": answer}]
                _print_speed(speed)


def _print_speed(speed: api.AnswerSpeed) -> None:
    print(flush=True)  # both streams may be one pipe
    rate = f", {speed.tokens_per_second:.1f} tokens/s" if speed.tokens_per_second else ""
    limit_text = (
        f"\ncut off at {speed.answer_tokens} tokens; --max-tokens N sets the limit"
        if speed.is_truncated
        else ""
    )
    print(
        f"{speed.answer_tokens} tokens, first after {speed.first_token_s:.2f} s{rate}{limit_text}",
        file=sys.stderr,
    )


def _build_table(model: str, answer: str, speed: api.AnswerSpeed) -> dict[str, object]:
    rate = speed.tokens_per_second
    return {
        "model": model,
        "answer": answer,
        "prompt_tokens": speed.prompt_tokens,
        "tokens": speed.answer_tokens,
        "first_token_s": round(speed.first_token_s, 4),
        "total_s": round(speed.total_s, 4),
        "tokens_per_second": rate and round(rate, 2),
    }
