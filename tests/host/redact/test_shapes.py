"""Keys, logins and webhooks are hidden by their shape, told values in every form."""

import base64
import json
import urllib.parse

import pytest

from medley.host.redact import Redactor
from medley.host.redact.shapes import hide_shapes, told_values
from tests.odd_input import hold

S = "q7Zk3mPw9xLr"

SHAPES = {
    "the hub": f"hf_{S}",
    "in a sentence": f"the key is hf_{S}.",
    "OpenAI": f"sk-{S}",
    "GitHub": f"ghp_{S}{S}",
    "GitHub's new ones": f"github_pat_{S}{S}",
    "NVIDIA": f"nvapi-{S}",
    "Slack": f"xoxb-{S}",
    "Google": f"AIza{S}{S}",
    "Tailscale": f"tskey-auth-{S}",
    "ntfy's access": f"tk_{S}",
    "a bot of Telegram": f"123456789:{S}{S}{S}"[: 10 + 35],
    "a JSON web token": f"eyJ{S}.{S}.{S}",
    "a private key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S}\n-----END OPENSSH PRIVATE KEY-----",
    "a private key in JSON": json.dumps(
        f"-----BEGIN RSA PRIVATE KEY-----\n{S}\n-----END RSA PRIVATE KEY-----\n"
    ),
    "a private key that is cut": f"-----BEGIN PRIVATE KEY-----\n{S}",
    "forty digits": "ab12" * 10,
    "a bearer": f"Bearer {S}",
    "a bearer in a URL": f"Bearer%20{S}",
    "basic": f"Basic {S}==",
    "a user in a URL": f"https://user:{S}@example.com/x",
    "a token in a URL": f"https://{S}@example.com/x",
    "a slash in a URL's password": f"https://user:a/{S}@example.com/x",
    "an at sign in a URL's password": f"https://user:a@{S}@example.com/x",
    "a database": f"postgres://u:{S}@10.0.0.1:5432/db",
    "a user in a URL of JSON": f'"https:\\/\\/user:{S}@example.com\\/x"',
    "a signed URL": f"https://cdn.example.com/x.safetensors?X-Amz-Signature={S}&X-Amz-Date=1",
    "Azure's": f"https://s.blob.core.windows.net/c/x?sv=1&sig={S}",
    "a fragment": f"http://127.0.0.1/#access={S}",
    "a query of a path": f"GET /v1/models?x={S} HTTP/1.1",
    "Slack's webhook": f"https://hooks.slack.com/services/T0/B0/{S}",
    "Slack's webhook in JSON": f'"https:\\/\\/hooks.slack.com\\/services\\/T0\\/B0\\/{S}"',
    "Slack's webhook, its path": f"T01234567/B01234567/{S}{S}",
    "Discord's webhook": f"https://discord.com/api/webhooks/123/{S}",
    "Discord's old webhook": f"https://discordapp.com/api/webhooks/123/{S}",
    "ntfy without a scheme": f"curl -sd x ntfy.sh/{S}",
    "ntfy of one's own": f"curl -sd x https://ntfy.example.org/{S}",
    "ntfy with a port": f"curl http://ntfy.lan:8080/{S}",
    "Telegram": f"https://api.telegram.org/bot1:{S}/sendMessage",
    "Teams": f"https://x.webhook.office.com/webhookb2/{S}",
    "healthchecks": f"https://hc-ping.com/{S}",
    "any webhook": f"https://chat.corp.example/hooks/{S}",
    "any other webhook": f"https://x.example/api/v1/webhook/{S}",
    "a webhook's path": f"/services/T000/B000/{S}",
    "a webhook's path without its slash": f"webhooks/1234/{S}, services/a/b/{S}",
    "Slack's, of any host": f"https://hooks.example.com/services/T000/B000/{S}",
    "Slack's, its last parts": f"T000/B000/{S}",
    "Discord's, its last parts": f"123456789012345678/{S * 5}",
    "Teams', its path": f"/webhookb2/{S}@x/IncomingWebhook/{S}/x",
    "Teams', its last parts": f"{'ab12' * 9}@{'cd34' * 9}/IncomingWebhook/{S}/x",
    "Teams', of a flow": f"https://x-1.westeurope.logic.azure.com:443/workflows/{S}/triggers/manual",
    "a flow's path": f"/workflows/{'ab12' * 8}/triggers/manual",
    "Telegram's path": f"/bot1:{S}/sendMessage",
    "n8n's test": f"https://x.example/webhook-test/{S}",
    "Uptime Kuma": f"https://x.example/api/push/{S}?status=up",
    "Uptime Kuma's path": f"/api/push/{S}",
    "healthchecks of one's own": "https://x.example/ping/ab12ab12-ab12-ab12-ab12-ab12ab12ab12",
    "IFTTT's path": f"/trigger/x/with/key/{S}",
    "Apprise": f"discord://123/{S} slack://x/y/{S} tgram://1:{S}/123 ntfy://{S}",
    "curl": f"curl -u ann:{S} https://x",
    "curl joined": f"curl -uann:{S} https://x",
    "curl's long name": f"curl --user 'ann:{S}' https://x",
    "curl with equals": f"curl --user=ann:{S} https://x",
    "curl as a list": f'["curl","-u","ann:{S}"]',
    "curl's proxy": f"curl --proxy-user ann:{S} https://x",
    "netrc": f"machine x login ann password {S}",
    "sshpass": f"sshpass -p {S} ssh x",
    "Dockerfile": f"Step 4/9 : ENV WANDB_API_KEY {S}",
    "fish": f"set -gx WANDB_API_KEY {S}",
    "repr": f"[('WANDB_API_KEY', '{S}'), ('PATH', '/usr/bin')]",
    "Name": f'{{"Name": "WANDB_API_KEY", "Value": "{S}"}}',
    "docker": f"docker login -u bob -p {S} ghcr.io",
    "helm": f"helm registry login -u bob -p={S} ghcr.io",
    "mysql": f"mysqldump -uroot -p{S} db",
    "a key that a service refuses": f"Invalid API key: {S}",
    "a key that OpenAI refuses": f"Incorrect API key provided: {S}.",
    "a password of somebody": f"password for bob: {S}",
    "XML": f"<apiToken>{S}</apiToken>",
}
STAYS = [
    "/usr/lib/systemd/services/nvidia-persistenced-580 and TCP/BBR/cubic and T4/B200/GB200",
    "https://github.com/x/y/actions/workflows/build-cuda13.yml",
    "/srv/notify/on-event services/vllm-0.33.0-cuda13",
    "sha256:" + "ab" * 32,
    "snapshots/" + "ab12" * 10 + " revision=" + "cd34" * 10,
    "commit " + "ab12" * 10,
    "https://huggingface.co/Qwen/Qwen3-8B/resolve/main/config.json",
    "hf_hub_download() got sk_buff_alloc, npm-install, xai_models_list",
    "docker run -u 1000:1000 --user 0:0 image",
    "systemctl --user restart x:y",
    "docker run -p 8000:8000 login mysql -p --host x; mkdir -p /a-1",
    "ENV HF_TOKEN $HF_TOKEN",
    "[('MAX_TOKENS', '4096'), ('PATH', '/usr/bin')]; set -e FOO bar",
    "Invalid API key: please check; password for bob: (empty); token: enabled",
    "http://127.0.0.1:8000/v1/chat/completions",
    "tcp://192.168.1.5:29500 and ipc:///tmp/x",
    "see https://github.com/vllm-project/vllm/issues/1234",
    "which bearer? a basic error, why? nobody knows",
    "nvcr.io/nvidia/vllm:26.01-py3@sha256:" + "ab" * 32,
]


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in SHAPES.items()])
def test_a_shape_is_hidden(text: str) -> None:
    hidden = Redactor().text(f"before {text}\nafter it")
    assert S not in hidden
    assert "ab12ab12" not in hidden
    assert hidden.startswith("before ")
    assert hidden.endswith("\nafter it") or text.endswith(f"KEY-----\n{S}")
    assert Redactor().text(hidden) == hidden


@pytest.mark.parametrize("text", STAYS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hide_shapes(text) == text.replace("--user restart x:y", "--user restart x:y")


@pytest.mark.parametrize("secret", ['tulips in/may+it\'s "é" \\ 7', "plain-word", "0123456789abcdef01"])
def test_a_told_value_is_hidden_in_every_form(secret: str) -> None:
    raw = secret.encode()
    forms = [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(secret))[3:-3],
        urllib.parse.quote(secret),
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
        secret.replace("'", "'\"'\"'"),
        raw.hex(),
    ]
    found = told_values([secret])
    assert found
    for form in forms:
        assert found.sub("", f"a{form}b") == "ab"


@pytest.mark.parametrize("before", ["", "a", "ab", "ann:", "Bearer "])
@pytest.mark.parametrize("after", ["", "x", "xy", "\n"])
def test_a_told_value_is_hidden_inside_base64(before: str, after: str) -> None:
    secret = "tulips-in-may?~~>"
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(f"{before}{secret}{after}".encode()).decode()
        hidden = Redactor(secrets=[secret]).text(f"x={text}")
        assert "HIDDEN" in hidden
        left = hidden.removeprefix("x=").replace("HIDDEN", "")
        assert len(left) < len(encode((before + after).encode())) + 8


def test_a_told_value_is_hidden_where_a_program_cut_it() -> None:
    secret = "tulipsInMayAndInJune1234"
    for kept in range(12, len(secret)):
        text = f"key {secret[:kept]}\nkey {secret[:kept]} …\nkey {secret[:kept]}"
        assert Redactor(secrets=[secret]).text(text) == "key HIDDEN\nkey HIDDEN …\nkey HIDDEN"
    assert Redactor(secrets=[secret]).text("tulips\ntulipsInMay\n") == "tulips\ntulipsInMay\n"


def test_a_short_word_is_no_secret() -> None:
    assert told_values(["abc", ""]) is None


@pytest.mark.parametrize(
    "fragment", ["?", "?a=", "://", "://a:", "-u ", "a@", "bearer ", "hf_", "<token>", "hooks/", "a.", "a.b@"]
)
def test_time_is_in_proportion(fragment: str) -> None:
    hold(Redactor(["a"], ["b"], ["secret"]).text, iter([fragment * (100_000 // len(fragment))]), 1, ())
