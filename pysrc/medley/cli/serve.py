"""`medley serve`: a model, on this host or over its cluster, until Ctrl-C or `medley stop`."""

from medley.cli.serve_here import ServeHere
from medley.cli.staying import Staying


class Serve(Staying, ServeHere):
    DESCRIPTION = "Serve a model with an OpenAI-style API, on this host or over its cluster, until Ctrl-C."
    DESCRIPTION_MORE = """
MODEL is a name in models/ (demo needs nothing but this program), a folder that holds a model, or ORG/NAME on
the model hub. What comes after -- goes to the engine as it is, and wins over what medley would say.

It is ready when it has answered a completion. The engine's environment is built at first use. On the head of
a cluster (up, ray-head) it runs over those of the cluster's hosts that serve it best, as medley plan MODEL
shows. Where cluster.toml names another host as the head, it is served from there, and its output comes here.

Examples:
    /medley serve demo
    /medley serve demo --dry-run
    /medley serve Qwen/Qwen3-8B --port 9000 --gpus 0,1
    /medley serve Qwen/Qwen3-32B --concurrency 16 --context 32768
    /medley serve Qwen/Qwen3-32B --hosts 2 --tp 2 --wait 60
    /medley serve gpt-oss-120b --hosts spark:2,thor:1 --dry-run
    /medley serve gpt-oss-120b --detach --restart
    /medley serve Qwen/Qwen3-8B --image default
    /medley serve ./my-model --served-model-name mine -- --max-model-len 8192

"""
    USAGE = "    {progname} [SWITCHES] MODEL [-- ENGINE FLAGS]\n"
    HINT = "the engine's own flags come after --: medley serve MODEL -- --max-model-len 8192"

    def main(self, model: str, *flags: str) -> int:
        elsewhere = not (self.dry_run or self.replayed or self.hosts == "1" or self.launcher)
        if elsewhere and (head := self.head_elsewhere()):
            return self.typed_at(head)
        if self.detach and not self.dry_run:
            return self.detached(self.port)
        if self.dry_run or not self.restart:
            self.serve(model, *flags)
        else:
            self._again_and_again(model, *flags)
        return 0

    def _again_and_again(self, model: str, *flags: str) -> None:
        from medley.cli.again import HOSTS_LIMIT_S, resumed
        from medley.unit import Restart

        self.restarts = Restart(first_s=2, longest_s=120, limit=10, lasting_s=600)
        with resumed(self.port) as hosts:
            if hosts and self.hosts is None:
                self.hosts, self.wait = str(hosts), HOSTS_LIMIT_S
            self.serve(model, *flags)
