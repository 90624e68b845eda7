"""The switches of verbs by which a host takes part in a Ray cluster: its wire, environment and ranks."""

from plumbum import cli

from medley.cli.imaged import FromImage


class TakingPart(FromImage):
    link = cli.SwitchAttr(
        "--link", str, argname="LINK", help="the wire to take: an interface, an address or a network"
    )
    exclude = cli.SwitchAttr("--exclude", str, list=True, argname="INTERFACE", help="never take it")
    kind = cli.SwitchAttr("--kind", str, argname="KIND", help="take this host for that kind; see hosts/")
    own = cli.SwitchAttr(
        "--env", str, argname="ENV", help="an engine environment, or your own virtualenv with Ray and vLLM"
    )
    engine = cli.SwitchAttr(
        "--engine",
        cli.Set("vllm", "sglang"),
        "vllm",
        argname="ENGINE",
        help="whose environment",
    )
    slots = cli.SwitchAttr(
        "--slots", cli.Range(1, 64), argname="N", help="ranks this host takes; default: one for each GPU"
    )
    stay = cli.Flag("--stay", help="stay until Ray ends here, which is then said, and end it with Ctrl-C")
    dry_run = cli.Flag("--dry-run", help="print the command, and why it is as it is; start nothing")

    def stayed(self) -> None:
        """As --stay says, once it is up."""
        if self.stay:
            from medley import lasting

            lasting.stay()
