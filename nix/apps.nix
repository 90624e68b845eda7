# What the apps run: one program for each verb, and `default` for medley itself. A program cannot know its host:
# it carries medley, uv, the Pythons and this flake's own path, from which medley realizes toolkit-KIND once it
# has recognized the host.
{
  self,
  pkgs,
  medley,
  pythons,
  tables,
}:
let
  inherit (pkgs) lib;

  program =
    name: verb: description:
    pkgs.writeShellApplication {
      inherit name;
      runtimeEnv = {
        MEDLEY_FLAKE = "${self}";
        MEDLEY_UV = "${pkgs.uv}/bin/uv";
        MEDLEY_PYTHONS = lib.concatStringsSep ":" (
          lib.mapAttrsToList (version: python: "${version}=${python.interpreter}") pythons
        );
      };
      text = ''exec ${medley}/bin/medley ${verb} "$@"'';
      meta = { inherit description; };
    };
in
builtins.mapAttrs (verb: program "medley-${verb}" verb) tables.verbs
// {
  default = program "medley" "" medley.meta.description;
}
