"""A model that the engine does not know, may not run the code of, or finds broken or incomplete."""

from medley.explain.known import MEDIUM, Known, shape

KNOWN = (
    Known(
        "architecture-unknown",
        what="this engine does not support the model's architecture",
        cause="[{name}]: it is newer than the engine, or for another engine",
        fix="try the other: medley serve MODEL --engine sglang; or a newer environment: medley env build",
        shapes=(
            shape(
                "are not supported for now",
                r"Model architectures \[(?P<name>[^\]]*)\] are not supported for now",
            ),
            shape(
                "does not recognize this architecture",
                r"has model type `(?P<name>[^`]+)` but Transformers does not recognize",
            ),
            shape(
                "has no SGLang implementation",
                r"(?P<name>\w+) has no SGLang implementation and the Transformers implementation is not",
            ),
            shape(
                "no vLLM implementation and the Transformers",
                r"(?P<name>\w+) has no vLLM implementation and the Transformers implementation is not",
            ),
            shape("Cannot find model module", r"Cannot find model module\. '(?P<name>\w+)' is not"),
        ),
        over=("config-invalid",),
    ),
    Known(
        "architecture-broken",
        what="the engine's code of this model could not be loaded",
        cause="[{name}]: an import in it failed; the error stands above",
        fix="prove the environment: medley env check; or build it anew: medley env build",
        shapes=(
            shape(
                "failed to be inspected", r"Model architectures \[(?P<name>[^\]]*)\] failed to be inspected"
            ),
        ),
        confidence=MEDIUM,
        over=("config-invalid",),
    ),
    Known(
        "remote-module",
        what="a rank does not find the model's own code",
        cause="transformers keeps it as the module {name}, which is not in this process's path, or its "
        "name has a "
        "dot",
        fix="put the model into a folder without a dot in its name, and its code where all ranks see "
        "it: export "
        "HF_MODULES_CACHE=FOLDER; medley pull MODEL",
        shapes=(shape("transformers_modules", r"No module named '(?P<name>transformers_modules[^']*)'"),),
        over=("module-missing",),
    ),
    Known(
        "remote-code",
        what="the model has custom code, and running it was not allowed (trust_remote_code)",
        cause="[{name} ]has Python that must run on this host to load it",
        fix="read it, then: medley serve MODEL --trust-remote-code",
        shapes=(
            shape(
                "custom code",
                r"(?:repository (?:for )?(?P<name>\S+) )?contains custom code which must be executed",
            ),
            shape(
                "requires you to execute the",
                r"(?:Loading (?P<name>\S+) )?requires you to execute the \w+ file in that repo",
            ),
            shape("trust_remote_code=True` in LLM", r"consider setting `trust_remote_code=True`"),
            shape(
                "set the option `trust_remote_code=True`",
                r"set the option `trust_remote_code=True` to (?:permit|remove)",
            ),
        ),
        over=("architecture-unknown", "config-invalid", "tokenizer-broken"),
    ),
    Known(
        "weights-broken",
        what="a file of the model's weights (safetensors) is broken",
        cause="its header says {said}: a copy broke off, or it is a pointer of Git LFS and not the file",
        fix="see which: medley pull MODEL --verify; bring it anew: medley pull MODEL",
        shapes=(
            shape("deserializing header", r"(?:Error while deserializing header: )(?P<said>.+)"),
            shape("SafetensorError", r"SafetensorError: (?P<said>(?!.*(?:No space left|serializing)).+)"),
            shape("PytorchStreamReader", r"(?P<said>PytorchStreamReader failed .+)"),
            shape("unpickling", r"(?P<said>(?:_pickle\.)?UnpicklingError: .+)"),
            shape("invalid load key", r"(?P<said>invalid load key, .+)"),
        ),
    ),
    Known(
        "weights-missing",
        what="files of the model's weights are missing (an incomplete download)",
        cause="{said}",
        fix="bring all of it to all hosts: medley pull MODEL; medley pull MODEL --verify compares them",
        shapes=(
            shape(
                "shard file(s) missing",
                r"(?P<said>\S+ references \d+ shard file\(s\) missing from \S+ \(incomplete download\?\).*)",
            ),
            shape("but missing", r"(?P<said>Weight files referenced in index but missing.*)"),
            shape(
                "ny model weights",
                r"(?P<said>(?:Cannot find any|No) model weights (?:with|found)[^\n]{0,100})",
            ),
            shape(
                "No such file or directory",
                r"(?P<said>No such file or directory: \"?'?[^'\"\n]*\.(?:safetensors|bin|gguf|pt)\b)",
            ),
            shape("No safetensors", r"(?P<said>No safetensors (?:files|weights) found[^\n]{0,80})"),
            shape(
                "weights were not initialized",
                r"(?P<said>Following weights were not initialized from checkpoint: .{0,200})",
            ),
            shape("Missing key(s) in state_dict", r"(?P<said>Missing key\(s\) in state_dict.{0,120})"),
        ),
    ),
    Known(
        "weights-shapes",
        what="the weights do not fit the model's configuration",
        cause="{said}: files of two models or of two revisions, a quantisation that config.json does not "
        "tell, or a size of tensor parallel that it does not bear",
        fix="bring one whole revision: medley pull MODEL; try without tensor parallel: medley serve MODEL "
        "--tp 1",
        shapes=(
            shape(
                "ttempted to load weight",
                r"(?P<said>[Aa]ttempted to load weight \(.+?\)\s*into parameter \(.+?\))",
            ),
            shape(
                "must match the size of tensor",
                r"(?P<said>The size of tensor a \(\d+\) must match the size of tensor b \(\d+\)[^\n]{0,60})",
            ),
            shape(
                "exceeds dimension size",
                r"(?P<said>start \(\d+\) \+ length \(\d+\) exceeds dimension size \(\d+\))",
            ),
            shape("assert param_data.shape", r"(?P<said>param_data\.shape == loaded_weight\.shape)"),
            shape("weight shape mismatch", r"(?P<said>weight shape mismatch: .+)"),
            shape("size mismatch for", r"(?P<said>size mismatch for \S+)"),
            shape(
                "no module or parameter named",
                r"(?P<said>There is no module or parameter named '\S+' in \w+)",
            ),
            shape(
                "KeyError",
                r"KeyError: (?P<said>'(?:model\.)?(?:language_model\.)?(?:layers|blocks|h)\.\d+\.[\w.]+')",
            ),
            shape(
                "shapes cannot be multiplied",
                r"(?P<said>mat1 and mat2 shapes cannot be multiplied \(\S+ and \S+\))",
            ),
        ),
        echoes=True,
    ),
    Known(
        "layer-quantized",
        what="the engine's code of this model does not take its quantization",
        cause="{said}: the layer has its weights in another form",
        fix="try the other engine: medley serve MODEL --engine vllm; or another form of the model: medley "
        "plan MODEL",
        shapes=(
            shape(
                "object has no attribute '",
                r"^AttributeError: (?P<said>'\w*(?:Linear|Embedding|MoE|Head|Experts?|Proj|Attention)\w*' ob"
                r"ject has no attribute "
                r"'(?:q?weight\w*|w\d+_\w+|qzeros|scales|\w*_scale)')",
            ),
        ),
    ),
    Known(
        "tokenizer-broken",
        what="the model's tokenizer could not be loaded: its files are missing or too new",
        cause="{said}",
        fix="bring all of its files: medley pull MODEL; a tokenizer newer than the environment needs a "
        "newer one: medley env build",
        more=4,
        echoes=True,
        shapes=(
            shape(
                "SentencePieceProcessor_LoadFromFile(",
                r"LoadFromFile\([^\n]*\n(?:[^\n]*\n){0,3}?(?P<line>(?P<said>(?:TypeError: not a string|Runti"
                r"meError: Internal|OSError: Not found).*))",
            ),
            shape(
                "nstantiate the backend tokenizer", r"(?P<said>Couldn't instantiate the backend tokenizer)"
            ),
            shape(
                "untagged enum ModelWrapper",
                r"(?P<said>data did not match any variant of untagged enum ModelWrapper)",
            ),
            shape(
                "Tokenizer class",
                r"(?P<said>Tokenizer class \S+ does not exist or is not currently imported)",
            ),
            shape("Can't load tokenizer for", r"(?P<said>Can't load tokenizer for '[^']*')"),
            shape("Failed to load the tokenizer", r"(?P<said>Failed to load the tokenizer)"),
        ),
    ),
    Known(
        "chat-template-none",
        what="the model has no chat template",
        cause="its tokenizer names none, so chat requests are refused",
        fix="give one: medley serve MODEL -- --chat-template FILE.jinja; or ask for completions instead "
        "of chat",
        shapes=(
            shape("default chat template is no longer"),
            shape("chat_template is not set", r"tokenizer\.chat_template is not set"),
        ),
        quiet=True,
        stays=True,
    ),
)
