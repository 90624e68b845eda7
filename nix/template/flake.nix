{
  description = "A cluster that medley serves from";

  # Where you have Medley from. flake.lock pins it: `nix flake update medley` raises it, for all hosts at once.
  inputs.medley.url = "github:OWNER/medley";

  outputs =
    { medley, ... }:
    {
      # nix run .#up, nix run .#serve -- MODEL, nix profile install .#medley; nix develop .#thor
      inherit (medley) apps devShells packages;

      # A host that runs NixOS; this needs nixpkgs as an input, and its name above, beside medley.
      # nixosConfigurations.spark-1 = nixpkgs.lib.nixosSystem {
      #   modules = [
      #     ./spark-1.nix
      #     medley.nixosModules.default
      #     {
      #       services.medley.enable = true;
      #       services.medley.role = "head";
      #     }
      #   ];
      # };
    };
}
