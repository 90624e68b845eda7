{
  description = "NixOS hosts that run Medley: a workstation, a DGX Spark, a Jetson Orin, a Jetson Thor, and two Sparks";

  inputs = {
    # In your own repository: medley.url = "github:OWNER/medley"
    medley.url = "path:../..";
    nixpkgs.follows = "medley/nixpkgs";

    nixos-dgx-spark.url = "github:graham33/nixos-dgx-spark";
    nixos-dgx-spark.inputs.nixpkgs.follows = "nixpkgs";

    jetpack-nixos.url = "github:anduril/jetpack-nixos";
    jetpack-nixos.inputs.nixpkgs.follows = "nixpkgs";
  };

  outputs =
    {
      medley,
      nixpkgs,
      nixos-dgx-spark,
      jetpack-nixos,
      ...
    }:
    let
      # Replace it with your own hardware-configuration.nix.
      disk = {
        boot.loader.systemd-boot.enable = true;
        fileSystems."/" = {
          device = "/dev/disk/by-label/nixos";
          fsType = "ext4";
        };
        fileSystems."/boot" = {
          device = "/dev/disk/by-label/boot";
          fsType = "vfat";
        };
        system.stateVersion = "26.11"; # the release of the first installation: leave it at upgrades
      };

      host =
        name: modules:
        nixpkgs.lib.nixosSystem {
          modules = [
            medley.nixosModules.default
            disk
            {
              networking.hostName = name;
              hardware.graphics.enable = true; # /run/opengl-driver/lib, where Medley looks for the driver
              services.medley.enable = true;
              services.openssh.enable = true;
            }
          ]
          ++ modules;
        };

      spark = {
        imports = [ nixos-dgx-spark.nixosModules.dgx-spark ];
        nixpkgs.hostPlatform = "aarch64-linux";
        hardware.dgx-spark.enable = true; # NVIDIA's kernel and driver
        services.medley.kind = "spark";
      };

      jetson = som: {
        imports = [ jetpack-nixos.nixosModules.default ];
        nixpkgs.hostPlatform = "aarch64-linux";
        nixpkgs.config.allowUnfree = true; # NVIDIA's driver and CUDA
        hardware.nvidia-jetpack = {
          enable = true;
          inherit som;
          carrierBoard = "devkit";
        };
      };

      # Two Sparks with a cable between their ConnectX ports; their addresses are on the port that has it.
      paired = number: role: {
        imports = [ spark ];
        networking.interfaces.enp1s0f0np0 = {
          mtu = 9000;
          ipv4.addresses = [
            {
              address = "192.168.100.${toString (10 + number)}";
              prefixLength = 24;
            }
          ];
        };
        services.medley = {
          inherit role;
          link = "192.168.100.0/24";
          firewallInterfaces = [ "enp1s0f0np0" ];
          # One secret for both hosts, which sops-nix or agenix puts there: openssl rand -hex 32
          tokenFile = "/run/secrets/medley-token";
        };
      };
    in
    {
      nixosConfigurations = {
        desk = host "desk" [
          {
            nixpkgs.hostPlatform = "x86_64-linux";
            nixpkgs.config.allowUnfree = true; # NVIDIA's driver
            services.xserver.videoDrivers = [ "nvidia" ]; # loads the driver, without a desktop too
            hardware.nvidia.open = true; # required by Blackwell GPUs
            services.medley = {
              kind = "rtx";
              serve.model = "Qwen/Qwen3-8B";
            };
          }
        ];

        spark = host "spark" [ spark ];

        orin = host "orin" [
          (jetson "orin-agx")
          { services.medley.kind = "orin"; } # jetpack-nixos's default for an Orin is JetPack 6
        ];

        thor = host "thor" [
          (jetson "thor-agx")
          { services.medley.kind = "thor"; }
        ];

        spark-1 = host "spark-1" [
          (paired 1 "head")
          {
            services.medley.serve = {
              model = "openai/gpt-oss-120b";
              extraFlags = [ "--hosts=2" ];
            };
          }
        ];

        spark-2 = host "spark-2" [
          (paired 2 "worker")
          { services.medley.head = "192.168.100.11"; }
        ];
      };

      # Needs KVM, so it is not a check: nix build .#two-hosts
      packages.x86_64-linux.two-hosts = nixpkgs.legacyPackages.x86_64-linux.testers.runNixOSTest (
        import ./two-hosts.nix { inherit medley; }
      );
    };
}
