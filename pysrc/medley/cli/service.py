"""`medley service`."""

import os
from collections.abc import Mapping
from contextlib import suppress

import psutil

from medley import storage
from medley.cli import Verb, VerbGroup, flag, switch
from medley.cli.output import print_message, print_result
from medley.cli.terminal import require_root
from medley.cluster import events, self_command, systemd, units
from medley.cluster.systemd import list_service_names
from medley.errors import Problem
from medley.user import read_user_name as user_name


class ServiceVerb(VerbGroup):
    """`medley service`, of which each verb is a class below."""


class ServiceInstallVerb(Verb):
    USAGE = "    {progname} [OPTIONS] ROLE [HEAD|MODEL] [-- OPTIONS]\n"
    user: str | None = switch("--user NAME", "user to run as [default: you, even with sudo]")
    settings: list[str] = switch("--set NAME=VALUE", "environment variable of the service")
    dry_run: bool = flag("--dry-run", "print the unit; write and start nothing")

    def main(self, role: str, *words: str) -> None:
        known_role = systemd.require_role(role, words)
        env = {
            **systemd.select_service_variables(_read_user_environment()),
            **_parse_variables(self.settings),
        }
        if (
            on_event := systemd.find_switch_value("--on-event", words) or env.get(events.COMMAND_VARIABLE)
        ) is not None:
            events.require_command_file(on_event)
        user = self.user or os.environ.get("SUDO_USER") or user_name()
        if user == "root" and not self.user and not self.dry_run:
            raise Problem(
                "nothing says who it is to run as",
                cause="root is logged in by itself, and has no token or environments of yours",
                fix="name the user: --user NAME, or --user root",
            )
        service = systemd.Service(known_role, words, user, self_command.get_own_command(), env)
        if self.dry_run:
            print_message(f"{systemd.get_unit_path(service.name, is_system=True)}:")
            print(service.text, end="")
            for command in systemd.list_install_commands(service.name):
                print_message(f"then: {command}")
            return
        require_root("install a service")
        systemd.install_service(service)
        print(f"{service.name} starts, now and with this host; what it says: journalctl -fu {service.name}")


class ServiceRemoveVerb(Verb):
    USAGE = "    {progname} ROLE|NAME\n"

    def main(self, role: str) -> None:
        require_root("remove a service")
        removed_names = systemd.remove_service(role)
        print(
            f"removed {', '.join(removed_names)}"
            if removed_names
            else f"no service of medley's here is {role}"
        )


class ServiceStartVerb(Verb):
    USAGE = "    {progname}\n"

    def main(self) -> None:
        names = units.resume_units()
        print(f"started {', '.join(names)}" if names else "nothing that was kept here is to be started")


class ServiceShowVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [ROLE|NAME]\n"
    as_json: bool = flag("--json", "one JSON object: each service and its state")

    def main(self, role: str = "") -> None:
        states = {name: systemd.read_state(name, is_system=True) for name in list_service_names(role or None)}
        lines = []
        for name, state in states.items():
            lines += [f"{name}: {_format_state(state)}"]
            if role and not self.as_json:
                lines += (storage.read_text(systemd.get_unit_path(name, is_system=True)) or "").splitlines()
        table = {name: state and state.table for name, state in states.items()}
        print_result(table, lines or ["no service of medley's is installed here"], as_json=self.as_json)


def _format_state(state: systemd.SystemdState | None) -> str:
    if state is None:
        return "systemd does not know it"
    restart_text = f", restarted {state.restart_count} times" if state.restart_count else ""
    end_text = f", ended with {state.exit_status} ({state.result})" if state.result != "success" else ""
    return f"{state.active_state} ({state.sub_state}){end_text}{restart_text}"


def _read_user_environment() -> Mapping[str, str]:
    """Return the environment of the user's shell: that of sudo's parent, because sudo passes little of it."""
    if "SUDO_USER" in os.environ:
        with suppress(psutil.Error):  # it is another user's
            return psutil.Process(os.getppid()).environ()
    return os.environ


def _parse_variables(settings: list[str]) -> dict[str, str]:
    for setting in settings:
        if "=" not in setting or not setting.partition("=")[0].isidentifier():
            raise Problem(
                f"{setting!r} is not a variable",
                cause="it is to be NAME=VALUE",
                fix="--set MEDLEY_CACHE=/data",
            )
    return dict(assignment.split("=", 1) for assignment in settings)
