# The CUDA toolchain of a kind of host: { home; cc; nccl; }, from an import of nixpkgs for that kind alone.
{
  nixpkgs,
  plain,
  tables,
}:
kind: host:
let
  inherit (plain) lib;

  pkgs = import nixpkgs {
    inherit (plain.stdenv.hostPlatform) system;
    overlays = [ ];
    config = tables.config host // {
      # NVIDIA's CUDA licences and nothing else that is unfree.
      allowUnfreePredicate = plain._cuda.lib.allowUnfreeCudaPredicate;
    };
  };

  # The driver belongs to the host, so its compatibility libraries must never stand before it; on
  # Jetson with CUDA 12, cuda_cudart would bring them along.
  set = pkgs.${tables.cudaPackages host}.overrideScope (_: _: { cuda_compat = null; });

  # What flashinfer, DeepGEMM and torch's own extensions compile against: nvcc and what torch's
  # headers include. nixpkgs' merged `cudatoolkit` is four times the size and deprecated.
  parts = [
    set.cuda_nvcc # with ptxas, cicc and nvvm
    set.cuda_cudart # and the stub of libcuda to link with
    (set.cccl or set.cuda_cccl) # renamed in 2026
    set.cuda_nvrtc
    set.cuda_nvtx
    set.cuda_profiler_api
    set.cuda_cuobjdump # DeepGEMM reads its kernels back
    set.libcublas
    set.libcurand
    set.libcusolver
    set.libcusparse
  ]
  # crt/host_config.h; before CUDA 13 it is part of cuda_nvcc
  ++ lib.optionals (lib.versionAtLeast host.toolkit.cuda "13.0") [ set.cuda_crt ];

  # Static libraries are most of the bytes, and no JIT links them.
  outputs =
    part: map (output: part.${output}) (builtins.filter (output: output != "static") part.outputs);
in
{
  home = pkgs.symlinkJoin {
    name = "cuda-${host.toolkit.cuda}-${kind}";
    paths = lib.concatMap outputs parts;
    # flashinfer and torch link with -L$CUDA_HOME/lib64
    postBuild = "[ -e $out/lib64 ] || ln -s lib $out/lib64";
  };

  # The compiler that this nvcc supports, on the same libc as every Python here.
  inherit (set.backendStdenv) cc;

  # For a Jetson: see nccl.nix.
  nccl = import ./nccl.nix { inherit (set) nccl; };
}
