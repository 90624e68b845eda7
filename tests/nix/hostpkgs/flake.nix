{
  description = "A stand-in for nixpkgs, made of this machine's own programs (tests only)";

  outputs =
    { self }:
    {
      # nixpkgs: flake.nix. `nix develop` takes bashInteractive from here.
      legacyPackages = builtins.listToAttrs (
        map
          (system: {
            name = system;
            value = import ./. { inherit system; };
          })
          [
            "x86_64-linux"
            "aarch64-linux"
          ]
      );
    };
}
