# The command line: small, without torch, Ray or an engine.
{
  lib,
  stdenv,
  python313Packages, # within requires-python, and in nixpkgs' cache; the engines' Pythons are others
  installShellFiles,
  uv,
  # The default source of toolkits; with it, every edit here rebuilds the package.
  flake ? null,
}:
let
  inherit (fromTOML (builtins.readFile ../pyproject.toml)) project;
in
python313Packages.buildPythonApplication {
  pname = project.name;
  inherit (project) version;
  pyproject = true;
  __structuredAttrs = true;

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
      ../docs
    ];
  };

  nativeBuildInputs = [ installShellFiles ];

  build-system = [ python313Packages.hatchling ];

  dependencies = with python313Packages; [
    httpx
    huggingface-hub
    msgspec
    packaging
    plumbum
    prometheus-client
    psutil
    pyyaml
    rich
  ];

  # The program is nixpkgs' own, not the wheel's.
  pythonRemoveDeps = [ "uv" ];
  makeWrapperArgs = [
    "--set-default"
    "MEDLEY_UV"
    "${uv}/bin/uv"
  ]
  ++ lib.optionals (flake != null) [
    "--set-default"
    "MEDLEY_FLAKE"
    "${flake}"
  ];

  # Text, made once: Tab starts no Python.
  postInstall = lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
    for shell in bash zsh fish; do
      $out/bin/medley completion $shell > medley.$shell
    done
    $out/bin/medley completion man > medley.1
    installShellCompletion medley.{bash,zsh,fish}
    installManPage medley.1
  '';

  pythonImportsCheck = [ "medley" ];

  meta = {
    description = "Serve large language models with vLLM or SGLang on NVIDIA hosts";
    license = lib.licenses.asl20;
    mainProgram = "medley";
    maintainers = [ ];
    platforms = lib.platforms.linux;
  };
}
