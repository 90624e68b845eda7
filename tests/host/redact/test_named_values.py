"""A secret is hidden in every notation in which a command, a table, a log or a request may write it."""

import json
import shlex
from random import Random

import pytest

from medley.host.redact import Redactor
from medley.host.redact.named_values import hide_named, is_secret

S = "q7Zk3mPw9xLr"
"""The secret. It has no shape of its own: only its place shows what it is."""
T = "tulips in may"
"""A prompt."""

ARGV = {
    "a list with spaces": f'["vllm", "serve", "--api-key", "{S}", "--port", "8000"]',
    "a list without spaces": f'["vllm","serve","--api-key","{S}","--port","8000"]',
    "a list over lines": f'"Args": [\n            "--api-key",\n            "{S}",\n            "--port"\n',
    "a list of Python": f"['--api-key', '{S}', '--port', '8000']",
    "a tuple of Python": f"('--api-key', '{S}')",
    "a list of bytes": f"[b'--api-key', b'{S}']",
    "two values in a list": f'["--api-key","other-one9","{S}","--port"]',
    "two values in a list over lines": f'"--api-key",\n "Qq1other",\n "{S}",\n "--port"',
    "joined in a list": f'["--api-key={S}","x"]',
    "joined in a list with a blank": f'["--api-key=two {S}","x"]',
    "a list inside JSON": json.dumps(json.dumps(["--api-key", S])),
    "a list inside JSON twice": json.dumps(json.dumps(json.dumps(["--api-key", S]))),
    "a command": f"vllm serve m --api-key {S} --port 8000",
    "a command with equals": f"vllm serve m --api-key={S} --port 8000",
    "two values": f"vllm serve m --api-key Qq1other {S} --port 8000",
    "single quotes": f"vllm serve --api-key '{S} x' m",
    "double quotes": f'vllm serve --api-key "x {S}" m',
    "single quotes with equals": f"vllm serve --api-key='{S}' m",
    "quotes that a shell joins": f"vllm serve --api-key 'a'\"'\"'{S}' m",
    "continued": f"vllm serve \\\n  --api-key \\\n  {S} \\\n  --port 8000",
    "continued with a carriage return": f"vllm serve \\\r\n  --api-key \\\r\n  {S}",
    "continued inside JSON": json.dumps(f"vllm serve \\\n  --api-key \\\n  {S} \\\n  --port 8000"),
    "with underscores": f"--api_key {S}",
    "with one dash": f"-api-key {S}",
    "a tab": f"--api-key\t{S}",
    "a list of YAML": f"args:\n  - --api-key\n  - {S}\n  - --port",
    "a quoted list of YAML": f'args:\n  - "--api-key"\n  - "{S}"\n',
    "a flow list of YAML": f"args: [--api-key, {S}]",
    "the hub's token": f"--hf-token {S}",
    "another's admin": f"--admin-api-key {S}",
    "a private key's password": f"--ssl-keyfile-password {S}",
    "a command of events": f"medley serve m --on-event 'curl -d x push/{S}' --restart",
    "a command of events with equals": f"medley serve m --on-event='curl -d x push/{S}'",
}
ASSIGNED = {
    "a variable": f"HF_TOKEN={S} vllm serve",
    "a variable in quotes": f"export HF_TOKEN='{S}'",
    "a variable in double quotes": f'export HF_TOKEN="{S}"',
    "a variable wholly in quotes": f'docker run -e "HF_TOKEN={S}" image',
    "with a blank, wholly in quotes": f'docker run -e "DB_PASSWORD=two {S}" image',
    "joined quotes": f'HF_TOKEN="abc"{S} vllm',
    "a list of variables": f'"Env": ["PATH=/bin","HF_TOKEN={S}","X=1"]',
    "a list of variables over lines": f'"Env": [\n    "PATH=/bin",\n    "HF_TOKEN={S}"\n]',
    "a variable of systemd": f'Environment="MY_PASSWORD={S}" "X=1"',
    "MEDLEY's own": f"Environment=MEDLEY_ON_EVENT='curl -d x push/{S}'",
    "YAML": f"api_key: {S}",
    "YAML in quotes": f"api_key: '{S}'",
    "YAML of several words": f"db:\n  password: two words {S}\n",
    "a block of YAML": f"api_key: |\n  first\n  {S}\nother: 1",
    "a folded block of YAML": f"  api_key: >-\n    {S}\n  other: 1",
    "a list below a key of YAML": f"api_keys:\n  - Aa1other\n  - {S}\nother: 1",
    "TOML": f'api_key = "{S}"',
    "TOML of several lines": f'api_key = """\n{S}\n"""\nport = 1',
    "TOML's dotted key": f'auth.token = "{S}"',
    "an .ini file": f"password = two {S}",
    "JSON": f'{{"api_key": "{S}", "port": 8000}}',
    "JSON without blanks": f'{{"api_key":"{S}","port":8000}}',
    "JSON in a table of a secret name": f'{{"auth": {{"token": "{S}"}}}}',
    "JSON in a table of any name below it": f'{{"auth": {{"type": "basic", "word": "{S}"}}}}',
    "JSON in a list": f'{{"api_keys": ["Aa1other", "{S}"]}}',
    "JSON in a list over lines": f'{{"api_keys": [\n  "Aa1other",\n  "{S}"\n]}}',
    "a bracket in a string": f'{{"api_keys": ["a]b", "{S}"]}}',
    "JSON inside JSON": json.dumps(json.dumps({"api_key": S})),
    "JSON inside JSON twice": json.dumps(json.dumps(json.dumps({"api_key": S}))),
    "JSON inside JSON without blanks": f'{{\\"api_key\\":\\"{S}\\"}}',
    "an escaped quote before it": json.dumps({"api_key": f'a"{S}'}),
    "a line's end before it in JSON": json.dumps(f"port=1\napi_key={S}\nx=2"),
    "a name in a list of pairs": f'{{"name": "HF_TOKEN", "value": "{S}"}}',
    "a name in a list of pairs of YAML": f"- name: HF_TOKEN\n  value: {S}\n",
    "a repr": f"ServerArgs(api_key='{S}', port=30000)",
    "a repr without quotes": f"ServerArgs(api_key={S}, port=30000)",
    "a repr of a dictionary": f"{{'api_key': '{S}'}}",
    "a repr of a list": f"'api_key': ['Aa1other', '{S}']",
    "a repr of bytes": f"'api_key': b'{S}'",
    "a repr of pydantic": f"api_key=SecretStr('{S}')",
    "an f-string": f'api_key=f"{S}"',
    "Python": f'os.environ["HF_TOKEN"] = "{S}"',
    "camel case": f'"hfToken": "{S}"',
    "capitals": f"API-KEY: {S}",
    "an arrow": f"api_key => '{S}'",
    "a quotation of a shell": f"HF_TOKEN=$'{S}'",
    "a password of digits": "password=1234567",
    "a query": f"GET /v1/models?api_key={S} HTTP/1.1",
    "an account's key": f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={S}==;EndpointSuffix=y",
    "client's secret": f"client_secret={S}&grant_type=x",
    "a webhook's name": f"SLACK_WEBHOOK_URL={S}",
    "a second line in a shell's quotes": f"export API_KEY='first\n{S}'\nx",
    "a second line in a shell's double quotes": f'API_KEY="first\n{S}\nthird" serve',
    "a value that begins with a sign": f"API_KEY== {S}",
    "a value of YAML that begins with a sign": f"api_key: = {S}",
}
VARIABLES = (
    *("HF_PASS", "SSH_PASS", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GH_TOKEN"),
    *("GITHUB_PAT", "NGC_API_KEY", "NGC_CLI_API_KEY", "WANDB_API_KEY", "KEY_PASSPHRASE", "PGPASSWORD"),
    *("KAGGLE_KEY", "OPENAI_KEY", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
)
ONE_WORD = (
    *(
        "clientsecret",
        "accesstoken",
        "authtoken",
        "bearertoken",
        "refreshtoken",
        "xapikey",
        "passkey",
        "dbpass",
    ),
    *("userpwd", "USERPWD", "CURLOPT_USERPWD", "SSHPASS", "PASS", "PASSCODE"),
)
ASSIGNED.update({f"the variable {name}": f"{name}={S}" for name in (*VARIABLES, *ONE_WORD)})
ASSIGNED.update({f"{name} in JSON": f'{{"{name}": "{S}"}}' for name in ONE_WORD})
FLAGS = (
    *("--hf-token", "--ssl-keyfile-password", "--admin-api-key", "--otlp-traces-headers", "--key-pass"),
    *("--wandb-key", "--pass", "--passphrase", "--token"),
)
ARGV.update({f"the flag {name}": f"vllm serve {name} {S} --port 1" for name in FLAGS})
ARGV.update({f"digits of {name}": f"vllm serve {name} 1234567 --port 1" for name in FLAGS})
HEADERS = {
    "authorization": f"Authorization: Bearer {S}",
    "authorization in lower case": f"authorization: token {S}",
    "authorization of several words": f'Authorization: Digest username="x", response="{S}"',
    "proxy": f"Proxy-Authorization: Basic {S}",
    "a key": f"X-Api-Key: {S}",
    "cookies": f"Cookie: a=1; b={S}",
    "a quoted cookie": f'Cookie: a="1"; b="{S}"',
    "a cookie that is set": f"Set-Cookie: id={S}; HttpOnly",
    "curl": f"curl -H 'Authorization: Bearer {S}' http://127.0.0.1/v1",
    "curl with double quotes": f'curl -H "x-api-key: {S}" http://127.0.0.1/v1',
    "curl without quotes": f"curl -HX-Api-Key:{S} http://127.0.0.1/v1",
    "a list": f'["-H", "Authorization: Bearer {S}"]',
    "JSON": f'{{"authorization": "Bearer {S}"}}',
    "JSON inside JSON": json.dumps(json.dumps({"authorization": f"Bearer {S}"})),
    "pairs": f"[('authorization', 'Bearer {S}')]",
    "pairs of bytes": f"[(b'x-api-key', b'{S}'), (b'cookie', b'a={S}')]",
    "a list of lists": f'[["authorization", "Bearer {S}"]]',
    "a request in one string": f"'GET / HTTP/1.1\\r\\nAuthorization: Bearer {S}\\r\\nHost: x'",
    "git": f"http.extraheader=AUTHORIZATION: basic {S}",
}
REQUESTS = {
    "vLLM's log": f"Received request chatcmpl-1: prompt: '{T}', params: SamplingParams(n=1)",
    "vLLM's log with a quote": f'Received request 1: prompt: "it\'s {T}", params: x',
    "stop strings": f"SamplingParams(n=1, stop=['{T}'], max_tokens=5)",
    "stop strings of JSON": json.dumps({"stop": [T]}, indent=1),
    "bad words": f"bad_words=['{T}']",
    "pydantic": f"[type=string_type, input_value='{T}', input_type=str]",
    "pydantic with a table": f"[type=x, input_value={{'role': '{T}'}}, input_type=dict]",
    "messages": json.dumps({"messages": [{"role": "user", "content": T}]}),
    "messages over lines": json.dumps({"messages": [{"role": "user", "x": T}]}, indent=2),
    "messages inside JSON": json.dumps(json.dumps({"messages": [{"role": "user", "content": T}]})),
    "SGLang's log": f"obj=GenerateReqInput(text='{T}', input_ids=None)",
    "token ids": "prompt_token_ids=[11, 22, 33, 404]",
    "instructions": json.dumps({"instructions": T}),
    "a tool's arguments": json.dumps({"arguments": json.dumps({"city": T})}),
    "reasoning": f"reasoning_content='{T}'",
    "a prompt without quotes": f"Received request: prompt: {T}",
    "a prompt in capitals": f"PROMPT = {T}, of {T}",
    "a prompt of one word": "system_prompt: tulips",
    "a block of YAML": f"prompt: |\n  first\n  {T}\n",
    "a list of YAML": f"messages:\n- role: user\n  x: {T}\n",
    "an attribute": f"request.prompt='{T}', choices[0].delta.content='{T}'",
    "a system's list": json.dumps({"system": [{"type": "text", "x": T}]}),
    "a system inside JSON": json.dumps(json.dumps({"system": T})),
    "ids of a result": "output_ids=[11, 404], origin_input_ids=[404]",
    "curl's data": f'curl -d \'{{"prompt": "{T}"}}\' http://127.0.0.1/v1/completions',
}

FIELDS = (
    *("system", "thinking", "instructions", "input", "reasoning_content", "suffix", "documents", "query"),
    *("queries", "passages", "text_1", "refusal", "prediction", "partial_json", "tools", "user_prompt"),
    *("encrypted_content", "image_url", "audio_data", "json_schema", "ebnf", "decoded_text"),
)
"""Of requests and answers: OpenAI's, Anthropic's, of reranking, SGLang's own."""
REQUESTS.update({f"the field {name}": json.dumps({"model": "m", name: T}) for name in FIELDS})


def _cases(table: dict[str, str]) -> list[object]:
    return [pytest.param(text, id=name) for name, text in table.items()]


@pytest.mark.parametrize("text", [*_cases(ARGV), *_cases(ASSIGNED), *_cases(HEADERS)])
def test_a_secret_is_hidden(text: str) -> None:
    hidden = Redactor().text(f"before\n{text}\nafter it")
    assert S not in hidden
    assert "1234567" not in hidden
    assert hidden.startswith("before\n")
    assert hidden.endswith("after it")


@pytest.mark.parametrize("text", _cases(REQUESTS))
def test_a_request_is_hidden(text: str) -> None:
    hidden = Redactor().text(f"before\n{text}\nafter it")
    assert "tulips" not in hidden
    assert "404" not in hidden
    assert hidden.endswith("after it")


@pytest.mark.parametrize("text", [*_cases(ARGV), *_cases(ASSIGNED), *_cases(HEADERS), *_cases(REQUESTS)])
def test_what_is_hidden_stays_hidden(text: str) -> None:
    """A report is redacted part by part, and again as a whole."""
    once = Redactor().text(text)
    assert Redactor().text(once) == once


_ODD = ("'", '"', "\\", " ", ",", ")", "]", "}", ";", ":", "$", "`", "&", "/", "#", "{", "'\"'", "é")


def _noted(secret: str, random: Random) -> str:
    name, flag = random.choice(["api_key", "HF_TOKEN", "apiKey", "password"]), "--api-key"
    return random.choice(
        [
            json.dumps({name: secret, "port": 1}),
            json.dumps({"a": [{"x": 1, name: secret}], "b": 2}, indent=random.choice([1, 4])),
            json.dumps(["vllm", flag, secret, "--port", "1"], indent=random.choice([None, 30])),
            json.dumps({"Env": [f"{name}={secret}", "X=1"], "Args": [f"{flag}={secret}", "b"]}),
            repr({name: secret, "p": 1}),
            repr(["vllm", flag, secret, "--port"]),
            f"ServerArgs({name}={secret!r}, port=1)",
            shlex.join(["vllm", "serve", flag, secret, "--port", "1"]),
            f"export {name}={shlex.quote(secret)}",
        ]
    )


def test_an_odd_secret_is_hidden_in_nested_notations() -> None:
    """JSON in a log's JSON in a shell's command: whatever the secret itself has of quotes and brackets."""
    random = Random(1)
    wraps = (
        json.dumps,
        repr,
        lambda text: json.dumps({"log": text}),
        lambda text: f"sh -c {shlex.quote(text)}",
    )
    for _ in range(3000):
        odd = [random.choice(_ODD) if random.random() < 0.4 else "" for _ in range(4)]
        text = _noted("".join((*odd[:2], S, *odd[2:])), random)
        for _ in range(random.randrange(3)):
            text = random.choice(wraps)(text)
        assert S not in hide_named(f"x {text}\nend"), text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f'{{"api_key":"{S}","port":8000}}', '{"api_key":"HIDDEN","port":8000}'),
        (f'{{\\"api_key\\":\\"{S}\\",\\"port\\":8000}}', '{\\"api_key\\":\\"HIDDEN\\",\\"port\\":8000}'),
        (f'["--api-key","{S}","--port"]', '["--api-key","HIDDEN","--port"]'),
        (f"--api-key {S} --port 8000", "--api-key HIDDEN --port 8000"),
        (f"ServerArgs(api_key='{S}', port=1)", "ServerArgs(api_key='HIDDEN', port=1)"),
        (f"curl -H 'X-Api-Key: {S}' http://127.0.0.1", "curl -H 'X-Api-Key: HIDDEN' http://127.0.0.1"),
        (f"HF_TOKEN={S} vllm serve m", "HF_TOKEN=HIDDEN vllm serve m"),
        (f"API_KEY='first\n{S}'\nPORT=1", "API_KEY='HIDDEN'\nPORT=1"),
        (f"api_key='{S}\nit's another line, isn't it", "api_key='HIDDEN\nit's another line, isn't it"),
        (f"API_KEY== {S}\nPORT=1", "API_KEY=HIDDEN\nPORT=1"),
        (f"api_key: |\n  {S}\nport: 1", "api_key: |\n  HIDDEN\nport: 1"),
        (f'[["authorization", "Bearer {S}"], 1]', '[["authorization", "HIDDEN"], 1]'),
    ],
)
def test_what_stands_around_it_stays(text: str, shown: str) -> None:
    assert hide_named(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "--api-key FILE",
        "--api-key needs",
        '--api-key "$(cat /home/user/key)" --port 1',
        "HF_TOKEN=$HF_TOKEN api_key=${KEY} token=%(token)s",
        "api_key=None, 'auth': True, token: null, api_keys: [], auth={}",
        "['--api-key', '--port', '8000']",
        "Avg prompt throughput: 12.1 tokens/s, time per token: 12.3ms",
        "bos_token='<s>', eos_token_id: 151645, 'pad_token': '<|endoftext|>', image_token = '<image>'",
        "max_tokens=1024, total_token_num: 4096, num_tokens=7, token_budget=8",
        "cache_key=abcdef, sort_key: name, keys: x, KeyError: 'model'",
        "stop=None, stop=[], prompt_logprobs=None, inputs: 3",
        "content-type: application/json",
        "prompt: 512 tokens, prompts: 3, prompt=None, prompt: none",
        "def f(self, prompt: str, params: Params) -> None:",
        "    prompt=request.prompt,\n    prompt=prompt,\n    prompts=self._prompts[index])",
        '"thinking": true, "system": null, "tools": []',
        "if token == other: pass",
        "PASS: test_x, BYPASS=all, COMPASS: north, forward_pass: x, cache_key: 12345, next token: 12345",
        "bypass=all compass: north, pass: the second, PASS=12 FAIL=0, eostoken: x, passage=x, userpassed=x",
        "two tests pass = good, encompass=x, trespass: no entry, OLDPWD=/srv, tokenpass=x, PASS : test_x",
        "--api-keys 8 --max-tokens 8192 XDG_SESSION_ID=3 EOS_TOKEN=x",
        "PWD=/srv/models OLDPWD=/srv MEDLEY_STATE=/srv/state",
        "tokenizer='Qwen/Qwen3-8B', tokenizer_mode=auto, author: someone",
        "ValueError: the engine needs --tool-call-parser with --enable-auto-tool-choice",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hide_named(text) == text.replace("--api-key needs", "--api-key HIDDEN")


def test_names() -> None:
    assert all(
        map(is_secret, ("HF_TOKEN", "--api-key", "apiKey", "X-Api-Key", "db.password", "MEDLEY_ON_EVENT"))
    )
    assert not any(map(is_secret, ("tokens", "eos_token", "--key-file", "monkey", "cache_key", "token_file")))
