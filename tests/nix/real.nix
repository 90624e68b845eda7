# The flake and examples/nixos over a real nixpkgs tree, and the trees of nixos-dgx-spark and jetpack-nixos.
{
  nixpkgs,
  spark ? null,
  jetpack ? null,
}:
let
  flake = path: (import path).outputs;
  tree = builtins.getFlake "path:${nixpkgs}";
  inherit (tree) lib;

  medley =
    flake ../../flake.nix {
      self = medley;
      nixpkgs = tree;
    }
    // {
      outPath = ../..;
    };

  examples = flake ../../examples/nixos/flake.nix {
    inherit medley;
    nixpkgs = tree;
    nixos-dgx-spark.nixosModules.dgx-spark = import "${spark}/modules/dgx-spark.nix";
    # Its own flake puts cuda-legacy below this overlay, which adds CUDA sets that these systems do not take.
    jetpack-nixos.nixosModules.default = import "${jetpack}/modules/default.nix" (
      import "${jetpack}/overlay.nix"
    );
  };
in
{
  inherit medley;
  nixpkgs = tree;

  hosts = builtins.mapAttrs (
    _: host:
    let
      inherit (host) config;
      units = lib.filterAttrs (name: _: lib.hasPrefix "medley-" name) config.systemd.units;
    in
    {
      system = config.system.build.toplevel.drvPath;
      units = builtins.mapAttrs (_: unit: unit.text) units;
      inherit (config) warnings;
    }
  ) examples.nixosConfigurations;

  virtual = builtins.mapAttrs (_: test: test.drvPath) examples.packages.x86_64-linux;

  # The options, for docs/reference/nixos-options.md.
  options =
    let
      inherit
        (lib.evalModules {
          modules = [
            medley.nixosModules.default
            { _module.check = false; }
          ];
          specialArgs.pkgs = tree.legacyPackages.x86_64-linux;
        })
        options
        ;
    in
    lib.optionAttrSetToDocList options.services.medley;
}
