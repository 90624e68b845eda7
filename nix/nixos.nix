# A host of a cluster under NixOS: `services.medley`. It says what runs; the driver is the host's own
# (hardware.nvidia or jetpack-nixos, and hardware.graphics.enable).
{ self }:
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.medley;
  inherit (lib)
    mkEnableOption
    mkIf
    mkOption
    types
    ;

  medley = "${cfg.package}/bin/medley";

  # As systemd reads a command line: quoted, so that no word is taken apart.
  words = lib.concatMapStringsSep " " (
    word: ''"${builtins.replaceStrings [ "\\" "\"" "%" "$" ] [ "\\\\" "\\\"" "%%" "$$" ] word}"''
  );

  unit =
    {
      description,
      argv,
      before ? [ ],
      after ? [ ],
    }:
    {
      inherit description;
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ] ++ after;
      # nvidia-smi is of the driver, and nix builds the toolkit of this host's kind.
      path = [
        "/run/current-system/sw"
        config.nix.package
      ];
      environment = {
        HOME = cfg.home;
        MEDLEY_FLAKE = "${self}";
      };
      startLimitIntervalSec = 0; # what it lacks now may come later: a head, a link
      serviceConfig = {
        ExecStart = words argv;
        User = cfg.user;
        Group = cfg.group;
        WorkingDirectory = cfg.home;
        Restart = "always";
        RestartSec = 5;
        RestartSteps = 4;
        RestartMaxDelaySec = 60;
        SuccessExitStatus = "130 143";
        KillMode = "mixed";
        TimeoutStartSec = "infinity";
        TimeoutStopSec = 60;
        LimitMEMLOCK = "infinity"; # RDMA pins memory
        LimitNOFILE = 1048576;
      }
      // lib.optionalAttrs (before != [ ]) { ExecStartPre = "-${words before}"; };
    };

  link = lib.optionals (cfg.link != null) [
    "--link"
    cfg.link
  ];
  token = lib.optionals (cfg.tokenFile != null) [
    "--token-file"
    cfg.tokenFile
  ];

  ray =
    if cfg.role == "head" then
      [
        medley
        "ray-head"
        "--stay"
      ]
      ++ link
    else
      [
        medley
        "ray-worker"
        "--stay"
      ]
      ++ link
      ++ token
      ++ [ (if cfg.head == null then "" else cfg.head) ];

  # Every port: ranks take any that is free. See docs/ports.md.
  everyPort = {
    allowedTCPPortRanges = [
      {
        from = 1024;
        to = 65535;
      }
    ];
  };
in
{
  options.services.medley = {
    enable = mkEnableOption "medley, one LLM server out of several NVIDIA hosts";

    package = mkOption {
      type = types.package;
      default = self.packages.${pkgs.stdenv.hostPlatform.system}.medley;
      defaultText = lib.literalExpression "medley.packages.\${system}.medley";
      description = "The medley to run; the hosts of a cluster must have the same.";
    };

    user = mkOption {
      type = types.str;
      default = "medley";
      description = "Who it runs as. The user medley is made; any other has to be there.";
    };

    group = mkOption {
      type = types.str;
      default = "medley";
      description = "The group it runs as.";
    };

    home = mkOption {
      type = types.str;
      default = "/var/lib/medley";
      description = "Where its environments, models and state are: tens of gigabytes.";
    };

    role = mkOption {
      type = types.nullOr (
        types.enum [
          "head"
          "worker"
        ]
      );
      default = null;
      description = "This host's part in a Ray cluster, if it has one.";
    };

    head = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "spark-1";
      description = "The cluster's head, as a name or an address: of a worker.";
    };

    link = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "192.168.100.0/24";
      description = "The cluster's wire: an interface, an address or a network. By default the fastest.";
    };

    tokenFile = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "/run/secrets/medley-token";
      description = "Of a worker: where the head's token is. A path as text, so that it is never in the store.";
    };

    serve = {
      model = mkOption {
        type = types.nullOr types.str;
        default = null;
        example = "Qwen/Qwen3-8B";
        description = "A model that this host serves from its start on.";
      };

      flags = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [
          "--port"
          "9000"
        ];
        description = "Further words for medley serve.";
      };
    };

    openFirewall = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "enp1s0f0np0" ];
      description = "The interfaces of the cluster's wires: there every TCP port from 1024 on is open.";
    };
  };

  config = mkIf cfg.enable {
    assertions = [
      {
        assertion = cfg.role == "worker" -> cfg.head != null;
        message = "services.medley.head: a worker needs its head";
      }
      {
        assertion = cfg.tokenFile == null || !lib.hasPrefix builtins.storeDir cfg.tokenFile;
        message = "services.medley.tokenFile: a secret in the store can be read by everyone; name a path as text";
      }
    ];

    environment.systemPackages = [ cfg.package ];

    users.users = mkIf (cfg.user == "medley") {
      medley = {
        isSystemUser = true;
        inherit (cfg) group home;
        createHome = true;
        extraGroups = [
          "video" # a Jetson's devices
          "render"
        ];
      };
    };
    users.groups = mkIf (cfg.group == "medley") { medley = { }; };

    systemd.services = {
      "medley-${if cfg.role == null then "ray" else cfg.role}" = mkIf (cfg.role != null) (unit {
        description = "medley: ${if cfg.role == null then "" else cfg.role} of a Ray cluster";
        argv = ray;
        before = [
          medley
          "ray-stop"
        ];
      });
      medley-serve = mkIf (cfg.serve.model != null) (unit {
        description = "medley: a model is served";
        argv = [
          medley
          "serve"
          cfg.serve.model
        ]
        ++ cfg.serve.flags;
        after = [
          "medley-head.service"
          "medley-worker.service"
        ];
      });
    };

    networking.firewall.interfaces = lib.genAttrs cfg.openFirewall (_: everyPort);
  };
}
