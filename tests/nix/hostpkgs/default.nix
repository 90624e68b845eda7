# A stand-in for nixpkgs: exactly the attributes that Medley's flake uses, each beside the nixpkgs file that
# defines it, made of this machine's own programs. Anything else is an evaluation error. It proves Medley's own
# Nix code; it cannot prove that nixpkgs' packages build. The files were read at revisions of 2026 near the locked
# one, not at it; where `lib` is concerned, nixpkgs' own gave the same derivations.
{
  system ? builtins.currentSystem,
  config ? { },
  overlays ? [ ],
}:
let
  lib = import ./lib.nix;
  mk = import ./mk.nix { inherit system config; };
  host = builtins.fromJSON (builtins.readFile ./host.json); # written by ../standin.py

  # A package that is some of this machine's programs. One that it lacks is there and says so when it is run.
  programs =
    name: paths:
    mk {
      inherit name;
      meta.mainProgram = name;
      text = ''
        mkdir -p $out/bin
        for path in ${toString paths}; do
          if [ -x $path ]; then
            ln -s $path $out/bin/
          else
            printf '#!/usr/bin/bash\necho "this machine has no %s" >&2\nexit 127\n' $path > $out/bin/''${path##*/}
            chmod +x $out/bin/''${path##*/}
          fi
        done
      '';
    };

  # pkgs/stdenv/generic/default.nix, pkgs/build-support/cc-wrapper/default.nix (cc, bintools),
  # pkgs/build-support/bintools-wrapper/default.nix (dynamicLinker)
  stdenv = {
    hostPlatform = { inherit system; };
    # lib/systems/default.nix; here each system's programs are this machine's
    buildPlatform.canExecute = _: true;
    cc =
      programs "host-gcc" [
        "/usr/bin/gcc"
        "/usr/bin/g++"
      ]
      // {
        bintools.dynamicLinker = host.interpreter;
        # pkgs/development/compilers/gcc/common/libgcc.nix: libgcc_s is linked into the output `lib`
        cc.lib = mk {
          name = "host-gcc-lib";
          text = ''
            mkdir -p $out/lib
            ln -s ${host.libraries."libgcc_s.so.1"} ${host.libraries."libstdc++.so.6"} $out/lib/
          '';
        };
      };
  };

  python = import ./python.nix {
    inherit
      lib
      mk
      host
      programs
      ;
  };

  # pkgs/top-level/stage.nix: an overlay is given the whole, and what stands before it
  whole = builtins.foldl' (before: overlay: before // overlay whole before) base overlays;

  base =
    import ./trivial.nix { inherit lib mk host; }
    // import ./docker.nix {
      inherit
        lib
        mk
        host
        system
        ;
    }
    // import ./cuda.nix {
      inherit
        lib
        mk
        host
        system
        config
        ;
      inherit (stdenv) cc;
    }
    // {
      inherit lib stdenv;

      # pkgs/top-level/all-packages.nix
      runtimeShell = "/usr/bin/bash";

      # pkgs/by-name/uv/uv/package.nix
      uv = programs "uv" [ host.uv ];
      # pkgs/by-name/ni/ninja/package.nix
      ninja = programs "ninja" [ host.ninja ];
      # pkgs/development/tools/misc/patchelf/default.nix
      patchelf = programs "patchelf" [ host.patchelf ];
      # pkgs/development/libraries/zlib/default.nix
      zlib = mk {
        name = "host-zlib";
        text = ''
          mkdir -p $out/lib
          ln -s ${host.libraries."libz.so.1"} $out/lib/
        '';
      };
      # pkgs/by-name/nu/numactl/package.nix
      numactl = mk {
        name = "host-numactl";
        text = ''
          mkdir -p $out/lib
          ln -s ${host.libraries."libnuma.so.1"} $out/lib/
        '';
      };
      # pkgs/by-name/rd/rdma-core/package.nix: its libraries are in the output `out`
      rdma-core = mk {
        name = "host-rdma-core";
        text = ''
          mkdir -p $out/lib
          ln -s ${host.libraries."libibverbs.so.1"} ${host.libraries."libmlx5.so.1"} $out/lib/
        '';
      };
      # pkgs/tools/package-management/nix/default.nix
      nix = programs "nix" [ host.nix ];
      # pkgs/shells/bash/5.nix; asked for by `nix develop`
      bashInteractive = programs "bash" [ "/usr/bin/bash" ];
      # pkgs/tools/misc/coreutils/default.nix
      coreutils = programs "coreutils" (
        map (name: "/usr/bin/${name}") [
          "cat"
          "cut"
          "df"
          "dirname"
          "env"
          "head"
          "id"
          "ls"
          "nproc"
          "sort"
          "stat"
          "tr"
          "uname"
          "wc"
        ]
      );
      # pkgs/by-name/ga/gawk/package.nix
      gawk = programs "gawk" [ "/usr/bin/awk" ];
      # pkgs/by-name/gn/gnugrep/package.nix
      gnugrep = programs "gnugrep" [ "/usr/bin/grep" ];
      # pkgs/by-name/gn/gnused/package.nix
      gnused = programs "gnused" [ "/usr/bin/sed" ];
      # pkgs/by-name/ip/iproute2/package.nix
      iproute2 = programs "iproute2" [ "/usr/sbin/ip" ];
      # pkgs/tools/networking/openssh/default.nix, pkgs/top-level/all-packages.nix
      openssh = programs "openssh" (
        map (name: "/usr/bin/${name}") [
          "ssh"
          "ssh-keygen"
          "ssh-keyscan"
          "ssh-add"
          "ssh-agent"
        ]
      );
      # pkgs/os-specific/linux/procps-ng/default.nix, pkgs/top-level/all-packages.nix
      procps = programs "procps" [ "/usr/bin/ps" ];
      # pkgs/by-name/ut/util-linux/package.nix
      util-linux = programs "util-linux" [ "/usr/bin/lscpu" ];
      # pkgs/by-name/in/installShellFiles/setup-hook.sh: two of its functions, as far as plain paths go
      installShellFiles = mk {
        name = "install-shell-files";
        text = ''
          mkdir -p $out/nix-support
          cp ${./install_shell_files.sh} $out/nix-support/setup-hook
        '';
      };
      # pkgs/by-name/ni/nixfmt-tree/package.nix; here it only parses
      nixfmt-tree = mk {
        name = "nixfmt-tree";
        meta.mainProgram = "treefmt";
        text = ''
          mkdir -p $out/bin
          printf '%s\n' '#!/usr/bin/bash' \
            'find . -name "*.nix" -print0 | xargs -0 -n1 nix-instantiate --parse > /dev/null' > $out/bin/treefmt
          chmod +x $out/bin/treefmt
        '';
      };

      # pkgs/development/interpreters/python/default.nix, pkgs/top-level/all-packages.nix
      python311 = python.interpreter "3.11";
      python312 = python.interpreter "3.12";
      # Here it runs whatever Python the virtualenv named in host.json has.
      python313 = python.withPackageSet;
      python313Packages = python.withPackageSet.pkgs;

      # lib/customisation.nix: callPackageWith, makeOverridable
      callPackage =
        file: given:
        let
          function = import file;
          named = builtins.intersectAttrs (builtins.functionArgs function) whole;
        in
        function (named // given) // { override = more: whole.callPackage file (given // more); };
    };
in
whole
