# nixpkgs' CUDA package sets: their names, outputs, licences and assertions. The programs in them are fakes that
# only say so, or NVIDIA's own where host.json says where its wheels lie (../cuda_wheels.py).
{
  lib,
  mk,
  host,
  system,
  config,
  cc,
}:
let
  older = a: b: !(lib.versionAtLeast a b);

  # pkgs/development/cuda-modules/_cuda/db/bootstrap/cuda.nix
  known = {
    "7.5" = {
      min = "10.0";
    };
    "8.0" = {
      min = "11.2";
    };
    "8.6" = {
      min = "11.2";
    };
    "8.7" = {
      min = "11.4";
      jetson = true;
    };
    "8.9" = {
      min = "11.8";
    };
    "9.0" = {
      min = "11.8";
    };
    "10.0" = {
      min = "12.7";
    };
    "10.1" = {
      min = "12.7";
      max = "12.9";
      jetson = true;
    };
    "10.3" = {
      min = "12.9";
    };
    "11.0" = {
      min = "13.0";
      jetson = true;
    };
    "12.0" = {
      min = "12.8";
    };
    "12.1" = {
      min = "12.9";
    };
  };
  jetson = capability: known.${capability}.jetson or false;

  # pkgs/development/cuda-modules/_cuda/lib/redist.nix (getRedistSystem, _getJetsonMinSbsaCapability)
  redist =
    version: capabilities:
    let
      sbsa = if lib.versionAtLeast version "13.0" then "8.7" else "10.1";
      fits = capability: !(jetson capability) || lib.versionAtLeast capability sbsa;
    in
    if system == "x86_64-linux" then
      "linux-x86_64"
    else if builtins.all fits capabilities then
      "linux-sbsa"
    else
      "linux-aarch64";

  # pkgs/development/cuda-modules/packages/backendStdenv.nix (assertions)
  wrong =
    version: capabilities:
    let
      list = builtins.toJSON;
      unknown = builtins.filter (c: !(known ? ${c})) capabilities;
      old = builtins.filter (c: older (known.${c}.max or version) version) capabilities;
      new = builtins.filter (c: older version known.${c}.min) capabilities;
      jetsons = builtins.filter jetson capabilities;
      alone = builtins.filter (c: older c "10.1") jetsons;
    in
    if unknown != [ ] then
      "Requested unrecognized CUDA capabilities: ${list unknown}"
    else if old != [ ] then
      "Requested CUDA capabilities which are too old for CUDA ${version}: ${list old}"
    else if new != [ ] then
      "Requested CUDA capabilities which are too new for CUDA ${version}: ${list new}"
    else if jetsons != [ ] && system != "aarch64-linux" then
      "Requested Jetson CUDA capabilities (${list jetsons}) require hostPlatform (${system}) to be aarch64-linux"
    else if alone != [ ] && alone != capabilities then
      "Requested pre-Thor (10.1) Jetson CUDA capabilities (${list alone}) cannot be specified with other capabilities"
    else
      null;

  set =
    version:
    let
      name = "cudaPackages_" + builtins.replaceStrings [ "." ] [ "_" ] version;
      supported = builtins.filter (
        c: lib.versionAtLeast version known.${c}.min && !(older (known.${c}.max or version) version)
      ) (builtins.attrNames known);
      asked = config.cudaCapabilities or [ ];
      capabilities = if asked != [ ] then asked else builtins.filter (c: !(jetson c)) supported;
      problem = wrong version capabilities;
      builds = redist version capabilities;
      cuda13 = lib.versionAtLeast version "13.0";
      # Every package of a set is made with backendStdenv, so its assertions hold for each.
      sound =
        value:
        if problem == null then value else throw "${name}.backendStdenv has failed assertions: ${problem}";

      # pkgs/development/cuda-modules/buildRedist/default.nix
      # Files of NVIDIA's wheels take the places of the fakes, and go to the outputs that nixpkgs gives them.
      real = pname: ''
        real=${host.cuda.${version}}/${pname}
        place() {
          [ ! -d $real/$1 ] || { mkdir -p $2/$1; cp -rsf $real/$1/. $2/$1/; }
        }
        place bin $out
        place nvvm $out
        place include ''${include:-$out}
        place lib ''${lib:-$out}
        [ -z "''${static-}" ] || find ''${lib:-$out} -name '*.a' -exec mv -ft $static/lib {} +
      '';

      part =
        pname: outputs: text:
        sound (mk {
          inherit outputs;
          name = "cuda${version}-${pname}-standin";
          text = ''
            for output in ${toString outputs}; do mkdir -p ''${!output}; done
            words="a stand-in for ${pname} of CUDA ${version}"
            header() { mkdir -p "$(dirname $1)"; echo "/* $words */" > $1; }
            fake() {
              mkdir -p "$(dirname $1)"
              printf '#!/usr/bin/bash\necho "%s"\n' "$words" > $1
              chmod +x $1
            }
            ${text}
            ${if host.cuda ? ${version} then real pname + (finish.${pname} or "") else ""}
          '';
          meta = {
            license = {
              shortName = "CUDA EULA"; # lib/licenses.nix: nvidiaCudaRedist
              free = false;
            };
            # NVIDIA publishes no linux-aarch64 builds of CUDA 13, and nothing for a system it does not name
            platforms =
              if builds == "linux-aarch64" && cuda13 then
                [ ]
              else
                [
                  "x86_64-linux"
                  "aarch64-linux"
                ];
            broken = !(config.cudaSupport or false); # "CUDA support is enabled by config.cudaSupport"
          };
        });
      # What overrideAttrs changes is seen by what follows from it (finalAttrs).
      nccl =
        make:
        let
          final = make final;
        in
        mk {
          inherit (final) name passthru meta;
          source = ./nccl.cc;
          text = ''
            mkdir -p src/misc $out/lib
            install -m 644 $source src/misc/nvmlwrap.cc
            ${replace}
            ${final.postPatch}
            g++ -std=c++17 -shared -fPIC -o $out/lib/libnccl.so.2 src/misc/nvmlwrap.cc -ldl
          '';
        }
        // {
          overrideAttrs = change: nccl (self: make self // change (make self));
        };
      # pkgs/stdenv/generic/setup.sh: substituteInPlace FILE --replace-fail OLD NEW
      replace = ''
        substituteInPlace() {
          python3 - "$1" "$3" "$4" <<'PYTHON'
        import pathlib, sys
        file, old, new = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
        text = file.read_text()
        assert old in text, f"substituteInPlace: {old!r} is not in {file}"
        file.write_text(text.replace(old, new))
        PYTHON
        }
      '';
      library =
        pname: file:
        part pname [ "out" "dev" "include" "lib" "static" ] ''
          header $include/include/${file}.h
          header $lib/lib/lib${file}.so
          header $static/lib/lib${file}_static.a
        '';

      # What nixpkgs does to a part beyond moving files. Of nvcc there are two forms in 2026: the older of them,
      # packages/cuda_nvcc.nix, is here, because its nvcc finds less (cuda_nvcc/package.nix adds cudart's headers).
      finish = {
        cuda_nvcc = ''
          [ ! -e $real/bin/nvcc ] || {
            rm $out/bin/nvcc $out/bin/nvcc.profile
            sed -E -e 's:\$\(_TARGET_SIZE_\)::g' \
              -e 's:\$\(TOP\)/(\$\(_TARGET_DIR_\)/)?include/cccl:${
                if renamed then scope.cccl else scope.cuda_cccl
              }/include:' \
              -e "s:\\$\(TOP\)/(\\$\(_TARGET_DIR_\)/)?include:$out/include:" \
              -e "s:\\$\(TOP\)/nvvm/:$out/nvvm/:" $real/bin/nvcc.profile > $out/bin/nvcc.profile
            echo 'compiler-bindir = ${cc}/bin' >> $out/bin/nvcc.profile
            ln -s $real/bin/nvcc $out/bin/.nvcc-wrapped
            printf '#!/usr/bin/bash\nPATH=${cc}/bin:$PATH exec -a "$0" %s "$@"\n' \
              $out/bin/.nvcc-wrapped > $out/bin/nvcc # makeBinaryWrapper --inherit-argv0
            chmod +x $out/bin/nvcc
          }
        '';
        cuda_cudart = ''
          # The wheel lacks what the redistributable has: names to link with, and the stub of the driver.
          (cd ''${lib:-$out}/lib && for file in libcudart.so.*; do ln -sf $file libcudart.so; done)
          rm ''${stubs:-$out}/lib/stubs/libcuda.so
          gcc -shared -x c /dev/null -Wl,-soname,libcuda.so.1 -o ''${stubs:-$out}/lib/stubs/libcuda.so
        '';
      };

      renamed = cuda13;
      cccl =
        here:
        if here then
          part "cuda_cccl" [ "out" ] "header $out/include/cub/cub.cuh"
        else
          mk {
            name = "cccl-without-files";
            meta.platforms = [ ];
            text = "";
          };

      # The files pkgs/development/cuda-modules/packages/NAME.nix (or NAME/package.nix)
      scope = {
        backendStdenv = sound { inherit cc; };
        cuda_nvcc = part "cuda_nvcc" [ "out" ] ''
          fake $out/bin/nvcc
          fake $out/bin/ptxas
          header $out/nvvm/libdevice/libdevice.10.bc
          ${if cuda13 then "" else "header $out/include/crt/host_config.h"}
        '';
        # In six outputs or, in copies of before and after June 2026, in one: here CUDA 13 has the one.
        cuda_cudart =
          part "cuda_cudart"
            (
              if cuda13 then
                [ "out" ]
              else
                [
                  "out"
                  "dev"
                  "include"
                  "lib"
                  "static"
                  "stubs"
                ]
            )
            ''
              stubs=''${stubs:-$out}
              header ''${include:-$out}/include/cuda_runtime.h
              header ''${lib:-$out}/lib/libcudart.so
              header ''${static:-$out}/lib/libcudart_static.a
              header $stubs/lib/stubs/libcuda.so
              ln -s libcuda.so $stubs/lib/stubs/libcuda.so.1
              ${if cuda13 then "" else "ln -s stubs/libcuda.so stubs/libcuda.so.1 $stubs/lib/"}
            '';
        # The one name or the other has NVIDIA's files, by revision; here CUDA 13 has the newer.
        cccl = cccl renamed;
        cuda_cccl = cccl (!renamed);
        cuda_nvrtc = library "cuda_nvrtc" "nvrtc";
        cuda_nvtx = part "cuda_nvtx" [ "out" ] "header $out/include/nvtx3/nvToolsExt.h";
        cuda_profiler_api = part "cuda_profiler_api" [ "out" ] "header $out/include/cuda_profiler_api.h";
        cuda_cuobjdump = part "cuda_cuobjdump" [ "out" ] "fake $out/bin/cuobjdump";
        cuda_nvdisasm = part "cuda_nvdisasm" [ "out" ] "fake $out/bin/nvdisasm";
        libcublas = library "libcublas" "cublas";
        libcurand = library "libcurand" "curand";
        libcusolver = library "libcusolver" "cusolver";
        libcusparse = library "libcusparse" "cusparse";
        # pkgs/development/cuda-modules/packages/nccl.nix: its sources, postPatch and what it refuses
        nccl = nccl (final: {
          name = "cuda${version}-nccl-standin";
          postPatch = "";
          passthru.platformAssertions = [
            {
              message = "Pre-Thor Jetson devices (CUDA capabilities < 10.1) are not supported by NCCL";
              assertion = builtins.all (c: lib.versionAtLeast c "10.1") (builtins.filter jetson capabilities);
            }
          ];
          # pkgs/development/cuda-modules/_cuda/lib/meta.nix (_mkMetaBadPlatforms)
          meta.badPlatforms =
            if builtins.all (each: each.assertion) final.passthru.platformAssertions then [ ] else [ system ];
        });
        cuda_compat = throw "${name}.cuda_compat would stand before the host's driver";
      }
      // lib.optionalAttrs cuda13 {
        cuda_crt = part "cuda_crt" [ "out" ] "header $out/include/crt/host_config.h";
      };
    in
    {
      # lib/customisation.nix (makeScope)
      overrideScope =
        change:
        let
          final = scope // change final scope;
        in
        if final.cuda_compat == null then final else throw "unreachable";
    };
in
{
  # pkgs/development/cuda-modules/_cuda/lib/cuda.nix
  _cuda.lib.allowUnfreeCudaPredicate = package: package.meta.license.shortName == "CUDA EULA";

  # pkgs/top-level/cuda-packages.nix
  cudaPackages_12_6 = set "12.6";
  cudaPackages_12_8 = set "12.8";
  cudaPackages_12_9 = set "12.9";
  cudaPackages_13_0 = set "13.0";
  cudaPackages_13_2 = set "13.2";
}
