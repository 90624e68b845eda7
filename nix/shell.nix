# The development shell of a kind of host: its toolkit's variables, and Python, uv and medley on PATH.
{
  pkgs,
  kind,
  toolkit,
  medley,
}:
let
  inherit (pkgs) lib;
in
# Without a compiler of its own (its hook would overwrite CC) and without `packages` (Python's hook would
# export PYTHONPATH, which the engines' Pythons must not see). Nothing is printed: stdout is the command's.
pkgs.mkShellNoCC {
  name = "medley-${kind}";
  env = toolkit.variables // {
    MEDLEY_TOOLKIT = "${toolkit}";
    UV_PYTHON_DOWNLOADS = "never"; # a downloaded Python would run on another libc
  };
  shellHook = ''
    export PATH=${
      lib.makeBinPath [
        medley
        pkgs.uv
      ]
    }:${
      lib.concatMapStringsSep ":" dirOf (lib.reverseList (lib.attrValues toolkit.pythons))
    }:${lib.concatStringsSep ":" toolkit.path}:$PATH
  '';
}
