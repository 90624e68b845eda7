# The options of nix/nixos.nix as a list, without nixpkgs: each type is its description, in nixpkgs' words.
let
  text = words: { inherit words; };
  nixos = import ../nix/nixos.nix { self.lib = import ../nix/tables.nix; } {
    config = { };
    pkgs = throw "no default is computed";
    utils = { };
    lib = {
      mkOption = option: option // { isOption = true; };
      mkEnableOption = what: {
        isOption = true;
        type = "boolean";
        default = false;
        example = true;
        description = "Whether to enable ${what}.";
      };
      mkPackageOption = _: name: { pkgsText, extraDescription }: {
        isOption = true;
        type = "package";
        defaultText = text "${pkgsText}.${name}";
        description = "The ${name} package to use. ${extraDescription}";
      };
      literalExpression = text;
      literalMD = text;
      types = {
        str = "string";
        port = "16 bit unsigned integer; between 0 and 65535 (both inclusive)";
        package = "package";
        externalPath = "absolute path not in the Nix store";
        nullOr = type: "null or ${type}";
        enum = values: "one of ${builtins.concatStringsSep ", " (map builtins.toJSON values)}";
        listOf = type: "list of ${type}";
      };
    };
  };

  shown =
    value:
    value.words or (
      if builtins.isList value then
        "[ ${builtins.concatStringsSep "" (map (each: "${builtins.toJSON each} ") value)}]"
      else
        builtins.toJSON value
    );
  flat =
    path: options:
    builtins.concatLists (
      builtins.attrValues (
        builtins.mapAttrs (
          name: option:
          if option.isOption or false then
            [
              {
                name = "${path}.${name}";
                inherit (option) type description;
                default =
                  if option ? defaultText || option ? default then
                    shown (option.defaultText or option.default)
                  else
                    null;
                example = if option ? example then shown option.example else null;
              }
            ]
          else
            flat "${path}.${name}" option
        ) options
      )
    );
in
flat "services.medley" nixos.options.services.medley
