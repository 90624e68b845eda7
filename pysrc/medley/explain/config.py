"""A model's config.json that is missing or broken, or settings that do not go with it."""

from medley.explain.known import LOW, MEDIUM, Known, shape

KNOWN = (
    Known(
        "config-missing",
        what="that folder or repository holds no model",
        cause="{place} has no {file}",
        fix="name the folder that has config.json in it, or ORG/NAME; bring it anew: medley pull ORG/NAME",
        shapes=(
            shape(
                "does not appear to have a file named",
                r"(?P<place>\S+) does not appear to have a file named (?P<file>(?!generation_config|(?:pre|v"
                r"ideo_pre)?processor|"
                r"chat_template)[\w.-]+)",
            ),
            shape(
                "Invalid repository ID or local directory",
                r"Invalid repository ID or local directory specified: '(?P<place>[^']*)'(?P<file>)",
            ),
            shape(
                "No such file or directory",
                r"No such file or directory: '(?P<place>[^']*)/(?P<file>config\.json)'",
            ),
            shape(
                "config.json",
                r"(?:Can't|Cannot|Could not) (?:load|find).{0,60}?(?P<file>config\.json)(?: in "
                r"(?P<place>\S+))?",
            ),
        ),
        over=("config-invalid",),
    ),
    Known(
        "model-a-file",
        what="the model's name is that of a file, and not of a folder with a config.json",
        cause="{file} is read as the configuration",
        fix="name the folder; weights in one GGUF file need a name that ends with .gguf, and a model to "
        "take the "
        "tokenizer from: medley serve FILE.gguf -- --tokenizer MODEL",
        shapes=(
            shape(
                "is not a valid JSON file",
                r"config file at '(?P<file>[^']+(?<!\.json))' is not a valid JSON",
            ),
        ),
        over=("config-broken",),
    ),
    Known(
        "config-broken",
        what="the model's config.json is broken",
        cause="{file} is no whole JSON: a copy broke off, or it is a pointer of Git LFS",
        fix="bring it anew: medley pull MODEL; medley pull MODEL --verify compares the copies",
        shapes=(shape("is not a valid JSON file", r"config file at '(?P<file>[^']+)' is not a valid JSON"),),
        confidence=MEDIUM,
        over=("config-invalid",),
    ),
    Known(
        "json-broken",
        what="what a program read as JSON is none: a file that broke off, or another answer",
        cause="{said}; whose it was stands in the traceback above",
        fix="if a file of the model is read there: medley pull MODEL --verify; if a cache: remove it",
        shapes=(shape("JSONDecodeError", r"^(?:[\w.]+\.)?JSONDecodeError: (?P<said>[^\n]+)"),),
        confidence=LOW,
    ),
    Known(
        "config-invalid",
        what="the engine refuses its settings",
        cause="{said}",
        fix="mend or leave out what that line names; medley plan MODEL prints flags that go together",
        shapes=(
            shape("Value error, ", r"^\s*Value error, (?P<said>.+?)(?: \[type=.*)?$"),
            shape("Assertion failed, ", r"^\s*Assertion failed, (?P<said>.+?)(?: \[type=.*)?$"),
        ),
        confidence=MEDIUM,
    ),
)
