"""`medley serve`: a model, on this host, until Ctrl-C."""


from plumbum import cli

from medley.problem import Problem


class Serve(cli.Application):
    DESCRIPTION = "Serve a model on this host with an OpenAI-style API, until Ctrl-C."
    DESCRIPTION_MORE = """
MODEL is a name in models/ (demo needs nothing but this program), a folder that holds a model, or ORG/NAME on
the model hub. What comes after -- goes to the engine as it is, and wins over what medley would say.

It is ready when it has answered a completion. The engine's environment is built at first use.

Examples:
    /medley serve demo
    /medley serve demo --dry-run
    /medley serve Qwen/Qwen3-8B --port 9000 --gpus 0,1
    /medley serve ./my-model --served-model-name mine -- --max-model-len 8192"""
    USAGE = "    {progname} [SWITCHES] MODEL [-- ENGINE FLAGS]\n"

    port = cli.SwitchAttr("--port", int, 8000, argname="PORT", help="where it listens")
    host = cli.SwitchAttr(
        "--host",
        str,
        "127.0.0.1",
        argname="ADDRESS",
        help="0.0.0.0 opens it to the network, with no password",
    )
    served_name = cli.SwitchAttr(
        "--served-model-name", str, argname="NAME", help="the name that requests give"
    )
    gpus = cli.SwitchAttr("--gpus", str, argname="LIST", help="GPUs by nvidia-smi's index: 0 or 0,1 or all")
    environment = cli.SwitchAttr(
        "--env", str, argname="ENV", help="an engine environment's name, or a virtualenv of your own"
    )
    timeout = cli.SwitchAttr(
        "--timeout", cli.Range(1, 86_400), 1800, argname="SECONDS", help="how long until it must be ready"
    )
    dry_run = cli.Flag("--dry-run", help="print the command, and why it is as it is; start nothing")
    as_json = cli.Flag("--json", help="print one JSON object a line: the command, or when it is ready")

    def main(self, model: str, *flags: str) -> int:
        from medley import engine, port

        if flags and not flags[0].startswith("-"):
            raise Problem(
                f"{flags[0]!r} is one model too many",
                cause="serve takes one model; the engine's own flags come after --",
                fix=f"medley serve {model} -- {' '.join(flags)}",
            )
        weights, host, plan = self._planned(model)
        listens = engine.Serving(weights.target, self.served_name or weights.name, self.host, self.port)
        if not self.dry_run:
            port.require_free(self.host, self.port)
            _require_weights(weights)
        launch = self._launch(weights, host, plan, listens, flags)
        if self.dry_run:
            self._show(launch)
            return 0
        self._run(launch, listens)
        return 0
