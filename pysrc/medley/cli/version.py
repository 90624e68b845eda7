"""`medley version`: which medley this is, and where its tables come from."""

import json
import platform
import sys

from plumbum import cli

from medley.cli.verb import Verb


class Version(Verb):
    DESCRIPTION = "Print the version, the Python it runs on, and where tables are looked for."
    DESCRIPTION_MORE = """
Examples:
    /medley version
    /medley version --json

"""

    as_json = cli.Flag("--json", help="print one JSON object")

    def main(self) -> None:
        from medley import config
        from medley.cli import Medley

        about = {
            "medley": Medley.VERSION,
            "python": platform.python_version(),
            "executable": sys.executable,
            "tables": [str(folder) for folder in config.folders()],
        }
        if self.as_json:
            print(json.dumps(about))
            return
        print(f"medley {about['medley']} (Python {about['python']} at {about['executable']})")
        print("tables are looked for in, first to last:")
        for folder in config.folders():
            print(f"  {folder}{'' if folder.is_dir() else '  (not there)'}")
