# An image of a kind of host, for those who deploy containers: medley and the kind's toolkit. What it gives is a script
# that writes the archive, so that gigabytes of CUDA are not in the store a second time:
#   $(nix build --no-link --print-out-paths .#image-spark) | podman load
# No engine environment is in it: its wheels are built by their lock at first use, into the volume. And no driver:
# NVIDIA's container runtime mounts the host's.
{
  pkgs,
  medley,
  kind,
  host,
  toolkit,
  nccl, # a Jetson's, else null
}:
let
  inherit (pkgs) lib;

  # A program of the host's asks for a loader that is not here, and Nix's knows no folder where the runtime may
  # put the driver's libraries. Nothing else is in these folders here, and no child inherits the search.
  folders = (host.driver.directories or [ ]) ++ (host.driver.shared_directories or [ ]);
  smi = pkgs.writeShellApplication {
    name = "nvidia-smi";
    text = ''
      for program in /usr/bin/nvidia-smi /usr/sbin/nvidia-smi; do
        if [ -x "$program" ]; then
          exec ${pkgs.stdenv.cc.bintools.dynamicLinker} --library-path ${lib.concatStringsSep ":" folders} "$program" "$@"
        fi
      done
      echo "nvidia-smi: the driver is not mounted: start the container with --gpus all (docker) or" \
        "--device nvidia.com/gpu=all (podman)" >&2
      exit 127
    '';
  };
in
pkgs.dockerTools.streamLayeredImage {
  name = "medley-${kind}";
  tag = medley.version;

  contents = [
    medley
    pkgs.dockerTools.binSh
    pkgs.dockerTools.caCertificates
    pkgs.dockerTools.fakeNss
    # What medley asks a host with.
    pkgs.bashInteractive
    pkgs.coreutils
    pkgs.gawk
    pkgs.gnugrep
    pkgs.gnused
    pkgs.iproute2
    pkgs.procps
    pkgs.util-linux
  ]
  ++ lib.optionals (host ? toolkit) [ smi ];

  # The runtime's hook writes what it mounted into etc/ld.so.conf.d, and fails without it (NVIDIA's
  # container toolkit, pull request 1326).
  extraCommands = ''
    mkdir -m 1777 -p tmp var/tmp
    mkdir -p root/.cache etc/ld.so.conf.d
  '';

  config = {
    Entrypoint = [ "${medley}/bin/medley" ];
    Cmd = [ "--help" ];
    WorkingDir = "/root";
    # Engine environments, models, and what compiles at first use: tens of gigabytes that outlive a container.
    Volumes."/root/.cache" = { };
    Env = [
      "HOME=/root"
      "PATH=/bin:/usr/bin:/usr/sbin"
      "MEDLEY_TOOLKIT=${toolkit}"
      "UV_PYTHON_DOWNLOADS=never"
      "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"
    ]
    ++ lib.optionals (nccl != null) [ "MEDLEY_NCCL=${lib.getLib nccl}/lib/libnccl.so.2" ]
    ++ lib.optionals (host ? toolkit) [
      "NVIDIA_VISIBLE_DEVICES=all"
      "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    ];
  };
}
