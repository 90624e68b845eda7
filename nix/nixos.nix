# `services.medley`: a host of a cluster under NixOS. The driver is the host's own (hardware.nvidia,
# jetpack-nixos or nixos-dgx-spark).
{ self }:
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.medley;

  ours = self.packages.${pkgs.stdenv.hostPlatform.system};
  oursText = "medley.packages.\${pkgs.stdenv.hostPlatform.system}";
  host = self.lib.hosts.${cfg.kind};
  onGpu = host ? toolkit;

  defaultDir = "/var/lib/medley";
  inHome = lib.hasPrefix "/home/" cfg.dataDir || lib.hasPrefix "/root/" cfg.dataDir;
  escaped = map utils.escapeSystemdExecArg;
  credential = name: ''"%d/${name}"'';

  environment = {
    MEDLEY_TOOLKIT = "${cfg.toolkit}";
  }
  // lib.optionalAttrs (cfg.nccl != null) {
    MEDLEY_NCCL = "${lib.getLib cfg.nccl}/lib/libnccl.so.2";
  };

  maybe =
    type: example: description:
    mkOption {
      type = types.nullOr type;
      default = null;
      inherit example description;
    };
  flags =
    verb: example:
    mkOption {
      type = types.listOf types.str;
      default = [ ];
      inherit example;
      description = "Extra flags for ${verb}.";
    };

  unit =
    {
      verb,
      arguments ? [ ], # escaped for systemd
      credentials ? [ ], # NAME:FILE
      before ? [ ],
      after ? [ ],
    }:
    {
      description = "Medley: ${verb}";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ] ++ after;
      path = [ "/run/current-system/sw" ]; # nvidia-smi, which the driver brings
      environment = environment // {
        HOME = cfg.dataDir;
        MEDLEY_FLAKE = ""; # a unit never builds: its toolkit is part of the system
      };
      startLimitIntervalSec = 0; # a head or a link that is missing now may come later
      unitConfig = lib.optionalAttrs (after != [ ]) {
        JoinsNamespaceOf = after; # one /tmp: Ray starts the ranks of the server
      };
      serviceConfig = {
        Type = "exec";
        ExecStartPre = before;
        ExecStart = lib.concatStringsSep " " (
          escaped [
            (lib.getExe cfg.package)
            verb
          ]
          ++ arguments
        );
        LoadCredential = credentials;
        User = cfg.user;
        Group = cfg.group;
        SupplementaryGroups = "video render"; # the devices of a Jetson
        WorkingDirectory = cfg.dataDir;
        StateDirectory = lib.mkIf (cfg.dataDir == defaultDir) "medley";
        StateDirectoryMode = "0700";
        EnvironmentFile = lib.mkIf (cfg.environmentFile != null) cfg.environmentFile;
        Restart = "always";
        RestartSec = 5;
        RestartSteps = 4;
        RestartMaxDelaySec = 60;
        SuccessExitStatus = "130 143";
        KillMode = "mixed";
        TimeoutStartSec = "infinity";
        TimeoutStopSec = 90; # running requests have 30 s (serve --drain), then the engine ends
        LimitMEMLOCK = "infinity"; # RDMA pins memory
        LimitNOFILE = 1048576;

        # As cluster/unit_file.py: when memory runs out, the engine dies before medley and sshd.
        OOMPolicy = "continue"; # medley ends what is left, says why, and starts it again
        OOMScoreAdjust = -500; # the engine raises its own score to 500
        MemoryMin = "64M"; # the supervisor's own pages are not reclaimed

        # Not set, because it breaks what runs here: PrivateDevices, DevicePolicy and ProtectClock (the GPU and
        # InfiniBand), MemoryDenyWriteExecute (kernels compiled at run time), RemoveIPC (shared with the other unit).
        CapabilityBoundingSet = "";
        LockPersonality = true;
        NoNewPrivileges = true;
        PrivateTmp = true;
        ProtectControlGroups = true;
        ProtectHome = !inHome;
        ProtectHostname = true;
        ProtectKernelLogs = true;
        ProtectKernelModules = true;
        ProtectKernelTunables = true;
        ProtectSystem = "strict";
        ReadWritePaths = [ cfg.dataDir ];
        # With AF_NETLINK `ip`, NCCL and libibverbs ask the kernel for interfaces.
        RestrictAddressFamilies = "AF_INET AF_INET6 AF_NETLINK AF_UNIX";
        RestrictNamespaces = true;
        RestrictRealtime = true;
        RestrictSUIDSGID = true;
        SystemCallArchitectures = "native";
        UMask = "0077";
      };
    };

  ray = {
    arguments = escaped (
      [ "--stay" ] ++ lib.optional (cfg.link != null) "--link=${cfg.link}" ++ cfg.extraFlags
    );
    credentials = lib.optional (cfg.tokenFile != null) "token:${cfg.tokenFile}";
    before = [ "-${lib.getExe cfg.package} ray-stop" ];
  };
in
{
  options.services.medley = {
    enable = lib.mkEnableOption "Medley, one LLM server out of several NVIDIA hosts";

    package = lib.mkPackageOption ours "medley" {
      pkgsText = oursText;
      extraDescription = "All hosts of a cluster must run the same version.";
    };

    kind = mkOption {
      type = types.enum (builtins.attrNames self.lib.hosts);
      example = "spark";
      description = "The kind of this host. It selects the toolkit and NCCL. `medley facts` prints it.";
    };

    toolkit = mkOption {
      type = types.package;
      default = ours."toolkit-${cfg.kind}";
      defaultText = lib.literalExpression "${oursText}.\"toolkit-\${config.services.medley.kind}\"";
      description = "The compiler, CUDA and Pythons that the engine runs with. It is part of the system closure.";
    };

    nccl = mkOption {
      type = types.nullOr types.package;
      default = if host.toolkit.nccl or false then ours."nccl-${cfg.kind}" else null;
      defaultText = lib.literalMD "`${oursText}.\"nccl-\${config.services.medley.kind}\"` for a Jetson Orin, otherwise `null`";
      description = "The NCCL that replaces the one of the engine environment, or `null` to keep that one.";
    };

    user = mkOption {
      type = types.str;
      default = "medley";
      description = "The user that runs Medley. The module creates only the default user.";
    };

    group = mkOption {
      type = types.str;
      default = "medley";
      description = "The group that runs Medley. The module creates only the default group.";
    };

    dataDir = mkOption {
      type = types.externalPath;
      default = defaultDir;
      example = "/mnt/nvme/medley";
      description = ''
        The directory for engine environments, models and state. It needs tens of gigabytes.
        systemd creates the default directory, and systemd-tmpfiles any other that is not below `/home` or `/root`.
      '';
    };

    role = maybe (types.enum [
      "head"
      "worker"
    ]) "head" "The role of this host in a Ray cluster, or `null` for a host without a cluster.";

    head = maybe types.str "spark-1" "The host name or address of the head. Workers require it.";

    link =
      maybe types.str "192.168.100.0/24"
        "The cluster network: an interface, an address or a network. The default is the fastest one.";

    tokenFile = maybe types.externalPath "/run/secrets/medley-token" ''
      The file with the token of the cluster, at least 32 characters long and the same on all hosts.
      systemd reads it as root, so secrets of sops-nix and agenix need no other owner.
      Without it the head makes a token at its first start, and you copy that one to the workers.
    '';

    environmentFile =
      maybe types.externalPath "/run/secrets/medley-environment"
        "A file of secret variables, one `NAME=value` a line. `HF_TOKEN` gives access to gated models.";

    extraFlags = flags "`medley ray-head` or `medley ray-worker`" [ "--engine=sglang" ];

    serve = {
      model =
        maybe types.str "Qwen/Qwen3-8B"
          "The model that this host serves after boot, or `null` to serve none.";

      apiKeyFile =
        maybe types.externalPath "/run/secrets/medley-api-key"
          "The file with the API key that requests must give. systemd reads it as root.";

      host = maybe types.str "0.0.0.0" "The address of the API. The default is `127.0.0.1`.";

      port = maybe types.port 9000 "The port of the API. The default is 8000.";

      extraFlags = flags "`medley serve`" [ "--context=32768" ];
    };

    firewallInterfaces = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "enp1s0f0np0" ];
      description = ''
        The interfaces of the cluster network. The firewall opens all TCP ports from 1024 on them, because Ray and
        NCCL listen on any free port. No other interface is opened. The API is open on these too, if `serve.host` lets it.
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = cfg.role == "worker" -> cfg.head != null;
        message = "services.medley.head: a worker needs the name or address of its head.";
      }
      {
        assertion = builtins.elem pkgs.stdenv.hostPlatform.system host.systems;
        message = "services.medley.kind: ${cfg.kind} is not a kind of ${pkgs.stdenv.hostPlatform.system}.";
      }
    ];

    warnings = lib.optional (onGpu && !config.hardware.graphics.enable) ''
      services.medley: hardware.graphics.enable is false, so the NVIDIA driver is not in /run/opengl-driver/lib.
      The engine will not find a GPU.
    '';

    environment = {
      systemPackages = [ cfg.package ];
      variables = environment; # a verb that you type takes the same toolkit
    };

    users.users = lib.mkIf (cfg.user == "medley") {
      medley = {
        isSystemUser = true;
        inherit (cfg) group;
        home = cfg.dataDir;
      };
    };
    users.groups = lib.mkIf (cfg.group == "medley") { medley = { }; };

    systemd.tmpfiles.settings = lib.mkIf (cfg.dataDir != defaultDir && !inHome) {
      "10-medley".${cfg.dataDir}.d = {
        inherit (cfg) user group;
        mode = "0700";
      };
    };

    systemd.services = {
      medley-head = lib.mkIf (cfg.role == "head") (
        unit (
          ray
          // {
            verb = "ray-head";
            before =
              ray.before
              ++ lib.optional (cfg.tokenFile != null) (
                lib.concatStringsSep " " [
                  "${pkgs.coreutils}/bin/install -D -m 600"
                  (credential "token")
                  (utils.escapeSystemdExecArg "${cfg.dataDir}/.local/state/medley/token")
                ]
              );
          }
        )
      );

      medley-worker = lib.mkIf (cfg.role == "worker") (
        unit (
          ray
          // {
            verb = "ray-worker";
            arguments =
              ray.arguments
              ++ lib.optional (cfg.tokenFile != null) "--token-file ${credential "token"}"
              ++ lib.optionals (cfg.head != null) (escaped [ cfg.head ]);
          }
        )
      );

      medley-serve = lib.mkIf (cfg.serve.model != null) (unit {
        verb = "serve";
        arguments =
          escaped [ cfg.serve.model ]
          ++ escaped (lib.optional (cfg.serve.host != null) "--host=${cfg.serve.host}")
          ++ lib.optional (cfg.serve.port != null) "--port=${toString cfg.serve.port}"
          ++ lib.optional (cfg.serve.apiKeyFile != null) "--api-key ${credential "api-key"}"
          ++ escaped cfg.serve.extraFlags;
        credentials = lib.optional (cfg.serve.apiKeyFile != null) "api-key:${cfg.serve.apiKeyFile}";
        after = [
          "medley-head.service"
          "medley-worker.service"
        ];
      });
    };

    # Ranks listen on any free port: docs/how-to/firewall.md.
    networking.firewall.interfaces = lib.genAttrs cfg.firewallInterfaces (_: {
      allowedTCPPortRanges = lib.singleton {
        from = 1024;
        to = 65535;
      };
    });
  };
}
