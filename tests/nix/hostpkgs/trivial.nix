# nixpkgs' small builders.
{
  lib,
  mk,
  host,
}:
let
  # pkgs/build-support/trivial-builders/default.nix
  runCommand =
    name: env: text:
    mk (env // { inherit name text; });

  # pkgs/stdenv/generic/setup.sh: what `nix develop` sources to learn the environment
  setup = mk {
    name = "host-stdenv";
    text = ''
      mkdir $out
      printf 'export PATH=%s\n' /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin > $out/setup
    '';
  };
in
{
  inherit runCommand;

  # pkgs/build-support/trivial-builders/default.nix
  writeShellApplication =
    {
      name,
      text,
      runtimeEnv ? { },
      meta ? { },
    }:
    mk {
      inherit name;
      passAsFile = [ "script" ];
      script = ''
        #!/usr/bin/bash
        set -o errexit
        set -o nounset
        set -o pipefail
        ${lib.concatStringsSep "\n" (
          lib.mapAttrsToList (key: value: "${key}=${lib.escapeShellArg value}\nexport ${key}") runtimeEnv
        )}

        ${text}
      '';
      text = ''
        mkdir -p $out/bin
        cp "$scriptPath" $out/bin/${name}
        chmod +x $out/bin/${name}
        shellcheck $out/bin/${name}
      '';
      nativeBuildInputs = [ host.venv ];
      meta = {
        mainProgram = name;
      }
      // meta;
    };

  # pkgs/build-support/trivial-builders/default.nix; the real one uses lndir
  symlinkJoin =
    {
      name,
      paths,
      postBuild ? "",
    }:
    mk {
      inherit name paths;
      text = ''
        mkdir -p $out
        for path in $paths; do
          cp -rsf --no-preserve=mode $path/. $out/
        done
        ${postBuild}
      '';
    };

  # pkgs/build-support/mkshell/default.nix, pkgs/top-level/all-packages.nix
  mkShellNoCC =
    {
      name,
      env,
      shellHook,
    }:
    mk {
      inherit name env shellHook;
      stdenv = setup;
      text = "export > $out";
    };
}
