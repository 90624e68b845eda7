# A derivation built by this machine's own bash, refused where nixpkgs would refuse it
# (pkgs/stdenv/generic/check-meta.nix: unfree, broken, unsupported system).
{ system, config }:
{
  name,
  text,
  meta ? { },
  passthru ? { },
  ...
}@arguments:
let
  refuse = why: throw "Package '${name}' ${why}, refusing to evaluate.";
  allowed = config.allowUnfreePredicate or (_: false);
  package = passthru // {
    inherit name;
    meta = meta // {
      available = (builtins.tryEval checked).success;
    };
    pname = name;
  };

  checked =
    if !builtins.elem system (meta.platforms or [ system ]) then
      refuse "is not available on the requested hostPlatform (${system})"
    else if builtins.elem system (meta.badPlatforms or [ ]) then
      refuse "is not available on the requested hostPlatform (${system})"
    else if meta.broken or false then
      refuse "is marked as broken"
    else if !(meta.license.free or true) && !allowed package then
      refuse "has an unfree license ('${meta.license.shortName}')"
    else
      system;

  drv = derivation (
    (arguments.env or { })
    // removeAttrs arguments [
      "text"
      "meta"
      "passthru"
      "env"
    ]
    // {
      inherit name;
      system = checked;
      outputs = arguments.outputs or [ "out" ];
      builder = "/usr/bin/bash"; # `nix develop` wants this name
      args = [
        "-euo"
        "pipefail" # as stdenv's setup.sh
        "-c"
        ''
          # the first of them stands first, as stdenv's setup.sh has it
          PATH=
          for p in ''${nativeBuildInputs-}; do PATH=$PATH$p/bin:; done
          export PATH=''${PATH}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
          export HOME=/homeless-shelter TMPDIR=$NIX_BUILD_TOP
          ${text}
          : # not the last command: bash would exec it, and Nix kills a builder that closes its output
        ''
      ];
    }
  );
in
drv // package // { overrideAttrs = throw "the stand-in has no overrideAttrs"; }
