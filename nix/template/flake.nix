{
  description = "A cluster for medley";

  # The source of Medley. flake.lock pins it: `nix flake update medley` updates it on all hosts.
  inputs.medley.url = "github:OWNER/medley";

  outputs =
    { self, medley, ... }:
    {
      # nix run .#up, nix run .#serve -- MODEL, nix profile install .#medley; nix develop .#thor
      inherit (medley) apps devShells packages;

      # nix flake check: is cluster.toml right?
      checks = builtins.mapAttrs (system: packages: {
        cluster = medley.inputs.nixpkgs.legacyPackages.${system}.runCommand "cluster" { } ''
          cd ${self}
          HOME=$TMPDIR ${packages.medley}/bin/medley check > $out
        '';
      }) medley.packages;

      # Hosts that run NixOS: examples/nixos in Medley's repository.
    };
}
