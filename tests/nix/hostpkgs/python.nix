# nixpkgs' Pythons: this machine's interpreters, and a virtualenv as the package set.
{
  lib,
  mk,
  host,
  programs,
}:
let
  # pkgs/development/python-modules/NAME/default.nix; a name that is not here is an evaluation error
  package =
    name:
    mk {
      inherit name;
      text = ''
        ${host.venv}/bin/python -c 'import importlib.metadata as m; print(m.version("${name}"))' > $out
      '';
    };
  packages = lib.mapAttrs (name: _: package name) {
    hatchling = null;
    httpx = null;
    huggingface-hub = null;
    hypothesis = null;
    plumbum = null;
    pydantic = null;
    pytest = null;
    rich = null;
  };

  # pkgs/development/interpreters/python/mk-python-derivation.nix and hooks/: pypaBuildHook,
  # pythonRuntimeDepsCheckHook, pythonRelaxDepsHook, pythonImportsCheckHook, wrapPythonPrograms
  buildPythonApplication =
    {
      pname,
      version,
      pyproject,
      src,
      build-system,
      dependencies,
      pythonRemoveDeps ? [ ],
      pythonImportsCheck ? [ ],
      makeWrapperArgs ? [ ],
      nativeBuildInputs ? [ ],
      postInstall ? "",
      meta,
    }:
    assert pyproject;
    let
      names = map (dependency: dependency.pname);
    in
    mk {
      inherit src meta nativeBuildInputs;
      passthru = { inherit version; };
      name = "${pname}-${version}";
      # built, so that one which the virtualenv lacks is an error
      inputs = build-system ++ dependencies;
      passAsFile = [ "application" ];
      application = builtins.toJSON {
        inherit
          pname
          version
          pythonRemoveDeps
          pythonImportsCheck
          makeWrapperArgs
          ;
        build-system = names build-system;
        dependencies = names dependencies;
      };
      text = ''
        cp -r $src source
        chmod -R u+w source
        cd source
        for input in $nativeBuildInputs; do
          [ ! -e $input/nix-support/setup-hook ] || . $input/nix-support/setup-hook
        done
        ${host.venv}/bin/python ${./build_application.py} "$applicationPath" $out
        # the real one runs this before it wraps, with PYTHONPATH set
        ${postInstall}
      '';
    };
in
{
  # pkgs/development/interpreters/python/passthrufun.nix
  interpreter =
    version:
    let
      program = programs "python${version}" [ host.pythons.${version} ];
      python = mk {
        name = "host-python${version}";
        text = ''
          mkdir -p $out/bin
          for name in python3 python${version}; do
            ln -s ${program}/bin/${baseNameOf host.pythons.${version}} $out/bin/$name
          done
        '';
      };
    in
    python // { interpreter = "${python}/bin/python${version}"; };

  withPackageSet = {
    pkgs = packages // {
      inherit buildPythonApplication;
    };
    # It cannot show that a module is missing from the list: the virtualenv has them all.
    withPackages =
      choose:
      mk {
        name = "host-python-env";
        inputs = choose packages;
        text = ''
          mkdir -p $out/bin
          printf '#!/usr/bin/bash\nexec %s/bin/python "$@"\n' ${host.venv} > $out/bin/python3
          chmod +x $out/bin/python3
        '';
      };
  };
}
