# Every output of the flake for one system, made by mapping over the kinds of host that exist there. The names of
# all outputs come from built-in functions, because `nix eval .#lib.hosts` looks for `lib` among the packages first.
{
  self,
  nixpkgs,
  system,
}:
let
  tables = import ./tables.nix;
  kinds = tables.systems.${system};

  plain = nixpkgs.legacyPackages.${system};

  medley = plain.callPackage ./package.nix { };
  # An installed medley needs the source of toolkits, which a shell or an app sets otherwise.
  installed = medley.override { flake = self; };

  # The engines' interpreters: the CPU environments' torch is locked for 3.11, everything else runs on 3.12.
  pythons = {
    "3.11" = plain.python311;
    "3.12" = plain.python312;
  };

  cuda =
    let
      of = import ./cuda.nix { inherit nixpkgs plain tables; };
    in
    builtins.mapAttrs (kind: host: if host ? toolkit then of kind host else null) kinds;

  nccls = builtins.mapAttrs (kind: _: cuda.${kind}.nccl) (tables.jetsons kinds);

  toolkits = builtins.mapAttrs (
    kind: host:
    import ./toolkit.nix {
      inherit
        kind
        host
        pythons
        tables
        ;
      pkgs = plain;
      cuda = cuda.${kind};
    }
  ) kinds;

  shells = builtins.mapAttrs (
    kind: toolkit:
    import ./shell.nix {
      inherit kind toolkit medley;
      pkgs = plain;
    }
  ) toolkits;

  images = builtins.mapAttrs (
    kind: toolkit:
    import ./image.nix {
      inherit kind medley toolkit;
      host = kinds.${kind};
      nccl = if kinds.${kind}.toolkit.nccl or false then nccls.${kind} else null;
      pkgs = plain;
    }
  ) toolkits;

  programs = import ./apps.nix {
    inherit
      self
      medley
      pythons
      tables
      ;
    pkgs = plain;
  };

  named =
    prefix: set:
    builtins.listToAttrs (
      map (name: {
        name = "${prefix}-${name}";
        value = set.${name};
      }) (builtins.attrNames set)
    );
in
{
  packages = {
    medley = installed;
    default = installed;
  }
  // named "toolkit" toolkits
  // named "nccl" nccls
  // named "image" images;

  devShells = shells // {
    default = shells.cpu;
  };

  apps = builtins.mapAttrs (_: program: {
    type = "app";
    program = plain.lib.getExe program;
    meta = { inherit (program.meta) description; };
  }) programs;

  # Nothing that fetches CUDA, which is unfree and gigabytes: toolkits, shells, images and NCCL are evaluated with
  # the packages and shells. The packages for CPU are built instead.
  checks =
    import ./checks.nix {
      inherit self medley tables;
      pkgs = plain;
    }
    // named "toolkit" { inherit (toolkits) cpu; }
    // named "shell" { inherit (shells) cpu; }
    // named "app" programs;

  # nixfmt for a whole tree: `nix fmt`.
  formatter = plain.nixfmt-tree;
}
