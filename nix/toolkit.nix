# The toolchain of a kind of host, as one file that medley reads: $out/toolkit.json. Its store path keeps
# everything it names alive, so a link to it is the garbage-collection root of a whole toolchain.
{
  pkgs,
  tables,
  kind,
  host,
  pythons,
  cuda, # null where there is no GPU
}:
let
  inherit (pkgs) lib stdenv;
  cc = if cuda == null then stdenv.cc else cuda.cc;
  interpreter = stdenv.cc.bintools.dynamicLinker;
  libraries = [
    (lib.getLib stdenv.cc.cc)
    (lib.getLib pkgs.zlib)
    (lib.getLib pkgs.numactl)
  ];

  contents = {
    inherit kind;

    # A JIT's compiler is the one whose libc the Pythons run on. No TRITON_LIBDEVICE_PATH: the bitcode that
    # comes with Triton fits Triton's own LLVM, and a newer toolkit's may not.
    variables = {
      CC = "${cc}/bin/gcc";
      CXX = "${cc}/bin/g++";
    }
    // tables.variables host
    // lib.optionalAttrs (cuda != null) {
      CUDA_HOME = "${cuda.home}";
      CUDAHOSTCXX = "${cc}/bin/g++"; # CMake's name for it
      TRITON_PTXAS_PATH = "${cuda.home}/bin/ptxas";
      # What Triton reads instead from compute capability 10.0 on (get_ptxas in its nvidia/compiler.py).
      TRITON_PTXAS_BLACKWELL_PATH = "${cuda.home}/bin/ptxas";
    };

    path = lib.optionals (cuda != null) [ "${cuda.home}/bin" ] ++ [
      "${cc}/bin"
      "${pkgs.ninja}/bin"
    ];

    # Nix's loader has no default folders, so what wheels expect of a system is loaded by full path.
    preload = [
      "${lib.getLib stdenv.cc.cc}/lib/libgcc_s.so.1"
      "${lib.getLib stdenv.cc.cc}/lib/libstdc++.so.6"
      "${lib.getLib pkgs.zlib}/lib/libz.so.1"
      "${lib.getLib pkgs.numactl}/lib/libnuma.so.1" # vLLM's CPU kernels
    ]
    # NCCL opens both by name, and where it finds none it takes TCP without a word.
    ++ lib.optionals (cuda != null) [
      "${lib.getLib pkgs.rdma-core}/lib/libibverbs.so.1"
      "${lib.getLib pkgs.rdma-core}/lib/libmlx5.so.1"
    ];

    pythons = lib.mapAttrs (_: python: python.interpreter) pythons;
    uv = "${pkgs.uv}/bin/uv";

    # For NixOS, where Ray's binaries find no loader and are patched to this one.
    loader = {
      inherit interpreter;
      patchelf = "${pkgs.patchelf}/bin/patchelf";
      libraries = [ (dirOf interpreter) ] ++ map (library: "${library}/lib") libraries;
    };
  };

  programs = [
    contents.uv
    contents.loader.patchelf
    contents.variables.CC
    contents.variables.CXX
  ]
  ++ lib.attrValues contents.pythons
  ++ lib.optionals (cuda != null) [
    "${cuda.home}/bin/nvcc"
    contents.variables.TRITON_PTXAS_PATH
  ];

  # What a join of parts loses without a word where nixpkgs moves it to another output.
  parts = lib.optionals (cuda != null) [
    "${cuda.home}/include/cub/cub.cuh"
    "${cuda.home}/include/crt/host_config.h"
    "${cuda.home}/include/cuda_runtime.h"
    "${cuda.home}/lib/libcudart_static.a"
    "${cuda.home}/lib/stubs/libcuda.so"
  ];
in
pkgs.runCommand "medley-toolkit-${kind}"
  {
    inherit programs;
    files = contents.preload ++ [ interpreter ] ++ parts;
    contents = builtins.toJSON contents;
    passAsFile = [ "contents" ];
    passthru = { inherit (contents) variables path pythons; };
    meta.description = "Toolchain for ${host.title}";
  }
  ''
    # A name that moved in nixpkgs shows here and not on the host.
    for program in $programs; do
      [ -x "$program" ] || { echo "toolkit-${kind}: $program is not a program" >&2; exit 1; }
    done
    for file in $files; do
      [ -r "$file" ] || { echo "toolkit-${kind}: there is no $file" >&2; exit 1; }
    done
    mkdir $out
    cp "$contentsPath" $out/toolkit.json
  ''
