{
  description = "Medley: one LLM server from the NVIDIA machines you own";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      tables = import ./nix/tables.nix;
      each =
        output:
        builtins.mapAttrs (
          system: _: (import ./nix { inherit self nixpkgs system; }).${output}
        ) tables.systems;
    in
    {
      lib = tables; # only built-in functions: evaluates without nixpkgs
      packages = each "packages";
      devShells = each "devShells";
      apps = each "apps";
      checks = each "checks";
      formatter = each "formatter";

      # medley made of somebody's own nixpkgs; it takes its toolkits from this flake.
      overlays.default = final: _: {
        medley = final.callPackage ./nix/package.nix { flake = self; };
      };

      templates = rec {
        cluster = {
          path = ./nix/template;
          description = "Your own repository: cluster.toml, and a flake that pins Medley";
        };
        default = cluster;
      };

      nixosModules = rec {
        # With a key it may be imported twice, by a configuration and by a module of it.
        medley = {
          _file = "${self}/nix/nixos.nix";
          key = "${self}/nix/nixos.nix";
          _class = "nixos";
          imports = [ (import ./nix/nixos.nix { inherit self; }) ];
        };
        default = medley;
      };
    };
}
