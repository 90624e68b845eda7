# The command line itself: small, and without torch, Ray or any engine.
{
  pkgs,
  flake ? null, # where it takes toolkits from, if nobody says so; with it, every edit here rebuilds it
}:
let
  inherit (pkgs) lib;
  inherit (fromTOML (builtins.readFile ../pyproject.toml)) project;

  # Built in nixpkgs' cache, and within requires-python; the engines' Pythons are others.
  python = pkgs.python313.pkgs;
in
python.buildPythonApplication {
  pname = project.name;
  inherit (project) version;
  pyproject = true;

  # Only what the wheel is made of, so that an edit elsewhere rebuilds nothing.
  src = lib.fileset.toSource {
    root = ../.;
    fileset = lib.fileset.unions [
      ../pyproject.toml
      ../README.md
      ../LICENSE
      ../pysrc
      ../hosts
      ../models
      ../locks
      ../failures
    ];
  };

  # Text, made once: Tab starts no Python.
  nativeBuildInputs = [ pkgs.installShellFiles ];
  postInstall = ''
    for shell in bash zsh fish; do
      $out/bin/medley completion $shell > medley.$shell
    done
    $out/bin/medley completion man > medley.1
    installShellCompletion medley.{bash,zsh,fish}
    installManPage medley.1
  '';

  build-system = [ python.hatchling ];
  dependencies = import ./dependencies.nix python;

  # The program is nixpkgs' own, not the wheel's.
  pythonRemoveDeps = [ "uv" ];
  makeWrapperArgs = [
    "--set-default"
    "MEDLEY_UV"
    "${pkgs.uv}/bin/uv"
  ]
  ++ lib.optionals (flake != null) [
    "--set-default"
    "MEDLEY_FLAKE"
    "${flake}"
  ];

  pythonImportsCheck = [ "medley" ];

  meta = {
    inherit (project) description;
    license = lib.licenses.asl20;
    mainProgram = "medley";
  };
}
