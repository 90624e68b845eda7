# The functions of nixpkgs' lib that Medley's flake uses, each beside the file that defines it.
let
  inherit (builtins)
    attrNames
    concatStringsSep
    elemAt
    genList
    length
    ;
in
rec {
  # lib/attrsets.nix
  inherit (builtins) attrValues mapAttrs;
  mapAttrsToList = f: set: map (name: f name set.${name}) (attrNames set);
  optionalAttrs = condition: set: if condition then set else { };
  getOutput = output: package: package.${output} or package.out;
  getLib = getOutput "lib";

  # lib/lists.nix
  inherit (builtins) concatMap;
  optionals = condition: list: if condition then list else [ ];
  reverseList = list: genList (n: elemAt list (length list - n - 1)) (length list);

  # lib/strings.nix
  inherit (builtins) concatStringsSep;
  concatMapStringsSep =
    separator: f: list:
    concatStringsSep separator (map f list);
  makeBinPath =
    packages: concatMapStringsSep ":" (package: "${package.bin or package.out}/bin") packages;
  optionalString = condition: text: if condition then text else "";
  versionAtLeast = a: b: builtins.compareVersions a b >= 0;
  # Not used by the flake itself.
  escapeShellArg = text: "'" + builtins.replaceStrings [ "'" ] [ "'\\''" ] (toString text) + "'";

  # lib/meta.nix
  getExe = package: "${package.bin or package.out}/bin/${package.meta.mainProgram}";

  # lib/systems/doubles.nix
  platforms.linux = [
    "x86_64-linux"
    "aarch64-linux"
  ];

  # lib/licenses.nix
  licenses.asl20 = {
    shortName = "asl20";
    free = true;
  };

  # lib/fileset/default.nix
  fileset = {
    unions =
      paths:
      map (
        path:
        if builtins.pathExists path then
          path
        else
          throw "lib.fileset.unions: ${toString path} does not exist"
      ) paths;
    toSource =
      { root, fileset }:
      builtins.path {
        path = root;
        name = "source";
        filter =
          path: _:
          builtins.any (
            wanted:
            let
              inside = a: b: builtins.substring 0 (builtins.stringLength b + 1) "${a}/" == "${b}/";
            in
            inside path (toString wanted) || inside (toString wanted) path
          ) fileset;
      };
  };
}
