"""The one error people see: what happened, why, and what to type."""


class Problem(Exception):  # noqa: N818 - it is what it says, and `except Problem` reads well
    """Something the user can act on.

    `what` happened, its `cause` with the numbers, the `fix` to type. `status` is the exit code: 1, or an
    engine's own where it died.
    """

    def __init__(self, what: str, *, cause: str, fix: str, status: int = 1) -> None:
        super().__init__(what, cause, fix)
        self.what, self.cause, self.fix, self.status = what, cause, fix, status

    @property
    def table(self) -> dict[str, str]:
        """For programs."""
        return {"what": self.what, "cause": self.cause, "fix": self.fix}

    def __str__(self) -> str:
        return "\n".join(
            (self.what, _field("cause", self.cause), _field("fix", self.fix)),
        )


def _field(name: str, text: str) -> str:
    first, *more = text.splitlines() or [""]
    return "\n".join([f"  {name + ':':<6} {first}", *(f"         {line}" for line in more)])
