# What nix/nixos.nix makes of a host's settings, without nixpkgs: its options and `mkIf` with as little of the
# module system as tells right from wrong. Types are checked; that NixOS has what is set, it cannot tell.
{
  settings,
  system ? "x86_64-linux",
  graphics ? true,
}:
let
  isList = check: value: builtins.isList value && builtins.all check value;
  isAbsolute = value: builtins.isString value && builtins.substring 0 1 value == "/";
  lib = import ./hostpkgs/lib.nix // {
    mkOption = option: option;
    mkEnableOption = _: {
      type = builtins.isBool;
      default = false;
      description = "x";
    };
    mkPackageOption = set: name: _: {
      type = builtins.isAttrs;
      default = set.${name};
      description = "x";
    };
    mkIf = condition: content: if condition then content else { };
    literalExpression = text: text;
    literalMD = text: text;
    hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;
    optional = condition: value: if condition then [ value ] else [ ];
    singleton = value: [ value ];
    genAttrs =
      names: f:
      builtins.listToAttrs (
        map (name: {
          inherit name;
          value = f name;
        }) names
      );
    # A type is the check of its values.
    types = {
      str = builtins.isString;
      port = value: builtins.isInt value && value >= 0 && value < 65536;
      package = builtins.isAttrs;
      externalPath =
        value:
        isAbsolute value && !lib.hasPrefix builtins.storeDir (builtins.unsafeDiscardStringContext value);
      nullOr = check: value: value == null || check value;
      enum = values: value: builtins.elem value values;
      listOf = isList;
    };
  };

  # nixos/lib/utils.nix
  utils.escapeSystemdExecArg =
    word: builtins.replaceStrings [ "%" "$" ] [ "%%" "$$" ] (builtins.toJSON word);

  isOption = set: set ? type && set ? description;
  valued =
    path: options: given:
    let
      unknown = builtins.filter (name: !options ? ${name}) (builtins.attrNames given);
    in
    if unknown != [ ] then
      throw "there is no option ${path}.${builtins.head unknown}"
    else
      builtins.mapAttrs (
        name: option:
        if !isOption option then
          valued "${path}.${name}" option (given.${name} or { })
        else if given ? ${name} && !option.type given.${name} then
          throw "${path}.${name} cannot be ${builtins.toJSON given.${name}}"
        else
          given.${name} or option.default or (throw "${path}.${name} has no value")
      ) options;

  tables = import ../../nix/tables.nix;
  package = name: {
    out = "/${name}";
    outPath = "/${name}";
    meta.mainProgram = name;
  };
  module = import ../../nix/nixos.nix {
    self = {
      outPath = "/flake";
      lib = tables;
      packages.${system} = {
        medley = package "medley";
      }
      // lib.genAttrs (map (kind: "toolkit-${kind}") (builtins.attrNames tables.hosts)) package
      // lib.genAttrs (map (kind: "nccl-${kind}") (builtins.attrNames tables.hosts)) package;
    };
  };
  made = module {
    inherit lib utils;
    pkgs = {
      coreutils = "/coreutils";
      stdenv.hostPlatform.system = system;
    };
    config = {
      hardware.graphics.enable = graphics;
      services.medley = valued "services.medley" made.options.services.medley settings;
    };
  };
in
made.config
