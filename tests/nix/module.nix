# What nix/nixos.nix makes of a host's settings, without nixpkgs: its options and `mkIf` with as little of the
# module system as tells right from wrong. Types are checked; that NixOS has what is set, it cannot tell.
{ settings }:
let
  isList = check: value: builtins.isList value && builtins.all check value;
  lib = import ./hostpkgs/lib.nix // {
    mkOption = option: option;
    mkEnableOption = _: {
      type = builtins.isBool;
      default = false;
      description = "x";
    };
    mkIf = condition: content: if condition then content else { };
    literalExpression = text: text;
    hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;
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
      package = builtins.isString;
      nullOr = check: value: value == null || check value;
      enum = values: value: builtins.elem value values;
      listOf = isList;
    };
  };

  isOption = set: set ? type && set ? default;
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
        else if !option ? description then
          throw "${path}.${name} has no description"
        else if given ? ${name} && !option.type given.${name} then
          throw "${path}.${name} cannot be ${builtins.toJSON given.${name}}"
        else
          given.${name} or option.default
      ) options;

  module = import ../../nix/nixos.nix {
    self = {
      outPath = "/flake";
      packages.x86_64-linux.medley = "/medley";
    };
  };
  made = module {
    inherit lib;
    pkgs.stdenv.hostPlatform.system = "x86_64-linux";
    config = {
      nix.package = "/nix";
      services.medley = valued "services.medley" made.options.services.medley settings;
    };
  };
in
made.config
