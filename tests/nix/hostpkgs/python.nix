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
    msgspec = null;
    packaging = null;
    plumbum = null;
    prometheus-client = null;
    psutil = null;
    pytest = null;
    pytest-timeout = null;
    pytest-xdist = null;
    pyyaml = null;
    rich = null;
    uv = null;
  };

  # pkgs/development/interpreters/python/mk-python-derivation.nix and hooks/: pypaBuildHook,
  # pythonRuntimeDepsCheckHook, pythonRelaxDepsHook, pythonImportsCheckHook, wrapPythonPrograms
  buildPythonApplication =
    {
      pname,
      version,
      pyproject,
      __structuredAttrs ? false, # this builder reads a file of its own
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
      passthru = { inherit version dependencies; };
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

  # pkgs/development/interpreters/python/python-packages-base.nix
  toPythonModule = drv: drv // { module = "${drv}"; };
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
      inherit buildPythonApplication toPythonModule;
    };
    # A Python with these and what they require, out of the virtualenv, and nothing else of it.
    withPackages =
      choose:
      let
        chosen = choose (packages // { inherit toPythonModule; });
      in
      mk {
        name = "host-python-env";
        inputs = chosen;
        text = ''
          ${host.venv}/bin/python ${./python_env.py} $out \
            ${toString (map (each: each.module or each.pname) chosen)}
        '';
      };
  };
}
