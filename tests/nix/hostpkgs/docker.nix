# nixpkgs' dockerTools: an image of store paths, written by a script as `docker save` would write it. One layer
# holds the whole closure, one what stands at the root.
{
  lib,
  mk,
  host,
  system,
}:
let
  architecture =
    {
      x86_64-linux = "amd64";
      aarch64-linux = "arm64";
    }
    .${system};
in
{
  # pkgs/build-support/docker/default.nix
  dockerTools = {
    binSh = mk {
      name = "bin-sh";
      text = ''
        mkdir -p $out/bin
        ln -s /usr/bin/bash $out/bin/sh
      '';
    };
    caCertificates = mk {
      name = "ca-certificates";
      text = ''
        mkdir -p $out/etc/ssl/certs
        echo "no certificate: a stand-in" > $out/etc/ssl/certs/ca-certificates.crt
      '';
    };
    # pkgs/by-name/fa/fakeNss/package.nix
    fakeNss = mk {
      name = "fake-nss";
      text = ''
        mkdir -p $out/etc
        echo "root:x:0:0:root user:/var/empty:/bin/sh" > $out/etc/passwd
        echo "root:x:0:" > $out/etc/group
      '';
    };

    streamLayeredImage =
      {
        name,
        tag,
        contents,
        config,
        extraCommands,
      }:
      let
        base = mk {
          name = "${name}-base.json";
          passAsFile = [ "json" ];
          json = builtins.toJSON {
            inherit architecture config;
            created = "1970-01-01T00:00:01Z";
            os = "linux";
          };
          text = ''cp "$jsonPath" $out'';
        };
        layer = mk {
          name = "${name}-customisation-layer";
          inherit contents extraCommands;
          text = ''
            mkdir root $out
            for path in $contents; do
              cp -rsf --no-preserve=mode $path/. root/
            done
            (cd root; eval "$extraCommands")
            tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@1 -C root -cf $out/layer.tar .
          '';
        };
        closure = mk {
          name = "${name}-closure";
          exportReferencesGraph = [
            "base"
            base
            "layer"
            layer
          ];
          text = ''
            grep -h '^/nix/store/' base layer | grep -v '\.drv$' | grep -vxF -e ${base} -e ${layer} | sort -u > $out
          '';
        };
      in
      mk {
        name = "stream-${name}";
        passthru = {
          imageName = name;
          imageTag = tag;
        };
        text = ''
          printf '#!/usr/bin/bash\nexec ${host.venv}/bin/python %s %s %s %s %s\n' \
            ${./stream_image.py} ${base} ${layer}/layer.tar ${closure} ${name}:${tag} > $out
          chmod +x $out
        '';
      };
  };
}
