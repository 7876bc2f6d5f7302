"""Codes DP84x to DP87x: folders of onnxruntime-genai."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP840": Code(
        "a genai_config.json that cannot be read",
        "error",
        "name a folder that onnxruntime-genai's model builder wrote",
    ),
    "DP841": Code("a key that onnxruntime-genai does not know", "error", "leave it out, or write it as it is known"),
    "DP842": Code(
        "a value that onnxruntime-genai does not take", "error", "write a value of the kind that the message names"
    ),
    "DP843": Code(
        "JSON that onnxruntime-genai does not read", "error", "save the file as UTF-8 without a byte-order mark"
    ),
    "DP844": Code("a key that stands there more than once", "warning", "leave one"),
    "DP845": Code("a path that leads out of the folder", "error", "copy the file into the folder, and name it there"),
    "DP846": Code("a file of the folder that is missing or broken", "error", "copy it into the folder again"),
    "DP847": Code("the tokenizer is missing or broken", "error", "copy tokenizer.json and tokenizer_config.json"),
    "DP848": Code(
        "an input or output that config and model do not both have", "error", "write the name that the model has"
    ),
    "DP849": Code("a name for the cache without a place for the layer", "error", "write %d where the number stands"),
    "DP850": Code("another number of layers than the model has", "error", "write the number of the model"),
    "DP851": Code("other heads or another head size than the model has", "error", "write the number of the model"),
    "DP852": Code("another vocabulary than the model has", "error", "write the size of the model's logits"),
    "DP853": Code("sequences that are longer than the model takes", "error", "write a smaller length"),
    "DP854": Code("another hidden size than the model has", "error", "write the size of the model"),
    "DP855": Code("an option of dml that is not read, or has no such value", "warning", "leave it out"),
    "DP856": Code(
        "a filter of devices that does not choose one", "error", "name the adapter with device_index or luid"
    ),
    "DP857": Code("a session option that DirectML does not take", "error", "leave it out"),
    "DP858": Code("provider options that contradict one another", "error", "leave one provider"),
    "DP859": Code("past and present are not one memory", "error", "set search.past_present_share_buffer to true"),
    "DP860": Code("an option of the search that does not fit", "error", "see the message"),
    "DP861": Code(
        "a node that keeps a model from graph capture", "error", "switch graph capture off, or export without it"
    ),
    "DP862": Code("weights and cache need more memory than there is", "error", "choose a smaller max_length or batch"),
    "DP864": Code("weights of a type that DirectML does not take", "error", "export the model in FP16"),
    "DP865": Code(
        "onnxruntime-genai-directml asks for a package that does not exist",
        "error",
        "install onnxruntime-genai-winml, or onnxruntime-genai-directml==0.12.2",
    ),
    "DP866": Code("the folder does not ask for DirectML", "note", 'write {"dml": {}} into provider_options'),
    "DP867": Code("a model that could not be checked", "error", "see the message"),
    "DP874": Code(
        "graph capture is off",
        "note",
        "dmlprep check on the decoder says which nodes run on the CPU; --graph-capture demands it all the same",
    ),
    "DP875": Code("genai_config.json was changed for DirectML", "note", "keep the folder that you gave for the others"),
    "DP876": Code(
        "a Hugging Face folder that is not given to genai's builder",
        "error",
        "save the model with safetensors and without code of its own",
    ),
    "DP877": Code(
        "genai's builder failed", "error", "the message has its last lines; its versions may not fit together"
    ),
    "DP878": Code(
        "a language model's folder that cannot be made ready for DirectML",
        "error",
        "build the folder again in another form; the page says which",
    ),
}
