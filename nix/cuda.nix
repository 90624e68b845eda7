# The CUDA toolchain of a kind of host: { home; cc; nccl; }, from an import of nixpkgs for only that kind.
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
      # only NVIDIA's CUDA licenses, and no other unfree ones.
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
    # Renamed in June 2026 (nixpkgs' pull request 528773): for a while both may be there, one without files.
    (if set.cccl.meta.available or false then set.cccl else set.cuda_cccl)
    set.cuda_nvrtc
    set.cuda_nvtx
    set.cuda_profiler_api
    set.cuda_cuobjdump # DeepGEMM and TileLang read their kernels back
    set.cuda_nvdisasm # which cuobjdump calls
    set.libcublas
    set.libcurand
    set.libcusolver
    set.libcusparse
  ]
  # crt/host_config.h; before CUDA 13 it is part of cuda_nvcc
  ++ lib.optionals (lib.versionAtLeast host.toolkit.cuda "13.0") [ set.cuda_crt ];

  # Static libraries are most of the bytes, and no JIT links them but those of cudart (below).
  outputs =
    part: map (output: part.${output}) (builtins.filter (output: output != "static") part.outputs);
in
{
  home = pkgs.symlinkJoin {
    name = "cuda-${host.toolkit.cuda}-${kind}";
    # nvcc links with libcudart_static and libcudadevrt wherever it links: TileLang's kernels, some of flashinfer's.
    # By nixpkgs' revision they are in an output of their own, or cudart has one output with all in it.
    paths = lib.concatMap outputs parts ++ [ (lib.getOutput "static" set.cuda_cudart) ];
    postBuild = ''
      # flashinfer and torch link with -L$CUDA_HOME/lib64
      [ -e $out/lib64 ] || ln -s lib $out/lib64
      # The stub of the driver is to link with; by this name a loader would take it for the driver, and nixpkgs'
      # ld-wrapper would write its folder into what is linked.
      rm -f $out/lib/libcuda.so.1 $out/lib/stubs/libcuda.so.1
      # nixpkgs' nvcc looks for headers in its own package, where cuda_runtime.h is not (nor is crt from CUDA 13
      # on): torch and flashinfer name $CUDA_HOME/include, TileLang and who types `nvcc x.cu` do not. It comes last,
      # because flashinfer brings a CUB of its own, which is to be found before the toolkit's.
      rm $out/bin/nvcc
      cat > $out/bin/nvcc <<END
      #!${pkgs.runtimeShell}
      exec ${set.cuda_nvcc}/bin/nvcc "\$@" -isystem $out/include -L$out/lib -L$out/lib/stubs
      END
      chmod +x $out/bin/nvcc
    '';
  };

  # The compiler that this nvcc supports, on the same libc as every Python here.
  inherit (set.backendStdenv) cc;

  # For a Jetson: see nccl.nix.
  nccl = import ./nccl.nix { inherit (set) nccl; };
}
