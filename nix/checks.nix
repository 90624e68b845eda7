# What can be checked without a GPU and without a network; default.nix adds every toolkit, shell and app.
{
  self,
  pkgs,
  medley,
  tables,
}:
let
  # medley itself too, for its version and its entry point; uv's module, which finds the program.
  python = pkgs.python313.withPackages (
    python:
    medley.dependencies
    ++ [
      python.hypothesis
      python.pytest
      python.pytest-timeout
      python.pytest-xdist
      python.uv
      (python.toPythonModule medley)
    ]
  );
in
{
  inherit medley;

  # The tests of what Nix can change: where the program finds its tables, environments and programs, and how the
  # libraries of nixpkgs fit it. Plain pytest runs the areas left out here, which depend on none of that.
  tests =
    pkgs.runCommand "medley-tests"
      {
        nativeBuildInputs = [
          python
          pkgs.openssh
          pkgs.python311
          pkgs.python312
        ];
      }
      ''
        cp -r ${self} tree
        chmod -R u+w tree
        cd tree
        export HOME=$TMPDIR
        left_out=$(printf -- '--ignore=tests/%s ' cluster doctor explain host measurement model planner reference)
        PYTHONPATH=$PWD/pysrc python3 -m pytest -q -n logical --maxprocesses 8 -p no:cacheprovider $left_out tests | tee $out
      '';

  # Every TOML that the package carries.
  tables = pkgs.runCommand "medley-tables" { nativeBuildInputs = [ medley ]; } ''
    export HOME=$TMPDIR
    medley check > $out
  '';

  # Nix and Python read the same tables.
  readers =
    pkgs.runCommand "medley-readers"
      {
        nativeBuildInputs = [ python ];
        nix = builtins.toJSON tables.hosts;
        passAsFile = [ "nix" ];
      }
      ''
        python3 ${./readers.py} "$nixPath" ${../hosts}
        touch $out
      '';

  # Every Nix file is one, and names nothing that is not defined.
  syntax = pkgs.runCommand "medley-syntax" { nativeBuildInputs = [ pkgs.nix ]; } ''
    export NIX_STATE_DIR=$TMPDIR
    find ${self} -name '*.nix' | while read -r file; do
      nix-instantiate --parse "$file" > /dev/null
    done
    touch $out
  '';
}
