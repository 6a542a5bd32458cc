//! Files and folders of sorts that people have and that are not read: what each is, and what to do.

use base::files;
use base::model_files::{is_part, ADAPTER_CONFIG, CONFIG};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// First bytes of a GGUF file.
pub(super) const GGUF: &[u8; 4] = b"GGUF";

const CONVERT: &str = "save the model in safetensors with save_pretrained of transformers, and name that folder";

/// First bytes of files, with what such a file is.
const BEGINNINGS: [(&[u8], &str); 10] = [
    (b"version https://git-lfs", "a pointer of Git LFS instead of the file: fetch the file itself with git lfs pull"),
    (b"lmgg", "a file of llama.cpp from before GGUF: convert the original model to GGUF"),
    (b"fmgg", "a file of llama.cpp from before GGUF: convert the original model to GGUF"),
    (b"tjgg", "a file of llama.cpp from before GGUF: convert the original model to GGUF"),
    (b"algg", "an adapter of llama.cpp: merge it into its base model"),
    (b"\x89HDF", "weights of Keras or TensorFlow: name a folder of the same model in safetensors"),
    (b"\x1f\x8b", "an archive: unpack it, and name what is in it"),
    (b"7z\xbc\xaf", "an archive: unpack it, and name what is in it"),
    (b"<!", "a web page instead of the file: download the file again"),
    (b"<h", "a web page instead of the file: download the file again"),
];

/// Ends of file names, with what such a file is.
const ENDS: [(&[&str], &str); 6] = [
    (
        &[".safetensors", ".index.json"],
        "weights without their configuration: name the folder that has config.json and them",
    ),
    (&[".json"], "no weights: name the folder that has config.json and them"),
    (&[".bin", ".pt", ".pth", ".ckpt", ".pkl"], "weights of PyTorch, which can run code"),
    (&[".h5", ".keras", ".msgpack", ".tflite", ".npz", ".nemo"], "weights of another program"),
    (&[".onnx", ".onnx_data", ".xml", ".engine", ".mlmodel"], "a compiled model, whose attention cannot be observed"),
    (&[".zip", ".tar", ".tgz", ".7z", ".rar"], "an archive: unpack it, and name what is in it"),
];

/// Files and folders that tell what a folder without `config.json` is.
const SIGNS: [(&str, &str); 9] = [
    ("model_index.json", "an image pipeline of diffusers, which is no language model"),
    ("params.json", "weights as Meta or Mistral publish them: take the same model in the format of transformers"),
    ("results.csv", "the results of a run: name a model"),
    ("summary.csv", "a training that has not saved a model yet: let difftool train finish it with --resume"),
    ("manifests", "a store of Ollama: name the largest of the files in blobs that ollama show --modelfile names"),
    ("zero_to_fp32.py", "a checkpoint of DeepSpeed: convert it with its zero_to_fp32.py"),
    ("modules.json", "a model of sentence-transformers, which has no language model head"),
    ("saved_model.pb", "a model of TensorFlow: name a folder of the same model in safetensors"),
    ("openvino_model.xml", "a compiled model of OpenVINO: name a folder of the same model in safetensors"),
];

/// Returns `true` if a file is in GGUF, whatever it is called.
pub(super) fn is_gguf(path: &Path) -> bool {
    beginning(path).starts_with(GGUF)
}

/// Description of an unexpected file by its first bytes; `None` if they are not known.
pub(super) fn other_file(path: &Path) -> Option<&'static str> {
    let beginning = beginning(path);
    BEGINNINGS.iter().find(|(bytes, _)| beginning.starts_with(bytes)).map(|(_, what)| *what)
}

/// Why a file cannot be a model.
pub(super) fn of_file(path: &Path) -> String {
    if let Some(what) = other_file(path) {
        return format!("the file is {what}");
    }
    let name = path.to_string_lossy().to_lowercase();
    match ENDS.iter().find(|(ends, _)| ends.iter().any(|end| name.ends_with(end))) {
        Some((_, what)) if what.contains(": ") => format!("the file is {what}"),
        Some((_, what)) => format!("the file is {what}: {CONVERT}"),
        None => format!("the file is not in GGUF; of a model in safetensors, name the folder: {CONVERT}"),
    }
}

/// Why a folder without `config.json` is not a model.
pub(super) fn of_folder(folder: &Path) -> String {
    if let Some(adapter) = adapter(folder) {
        return adapter;
    }
    let names = names_in(folder);
    if let Some(repository) = cached_repository(folder) {
        return format!("the folder of a model in the cache of Hugging Face: write hf:{repository}");
    }
    if let Some(repository) = names.iter().find_map(|name| cached_repository(Path::new(name))) {
        return format!("the cache of Hugging Face: write hf: and the name of a model, as in hf:{repository}");
    }
    let ggufs: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_gguf(&folder.join(name))).collect();
    if !ggufs.is_empty() {
        let named: Vec<String> = ggufs.iter().take(5).map(|name| folder.join(name).display().to_string()).collect();
        return format!("a folder without config.json; name its GGUF file: {}", named.join(", "));
    }
    if let Some((_, what)) = SIGNS.iter().find(|(sign, _)| names.iter().any(|name| name == sign)) {
        return format!("the folder is {what}");
    }
    let mut inner: Vec<&String> = names.iter().filter(|name| folder.join(name).join(CONFIG).is_file()).collect();
    inner.sort_by_key(|name| (name.len(), *name));
    if let Some(last) = inner.last() {
        return format!("the folder has no config.json; there is a model in {}", folder.join(last).display());
    }
    "the folder has no config.json, which every model in the format of transformers has".to_owned()
}

/// What to do with weights in a folder that are not in safetensors.
pub(super) fn other_weights(folder: &Path) -> String {
    let names = names_in(folder);
    if let Some(adapter) = adapter(folder) {
        return adapter;
    }
    if let Some(part) = names.iter().find(|name| is_part(name)) {
        return format!("{part} is there, but not every other part of these weights; download or copy them too");
    }
    let weights = [".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".npz", ".gguf", ".bin.index.json"];
    match names.iter().find(|name| weights.iter().any(|end| name.ends_with(end)) && *name != "training_args.bin") {
        Some(gguf) if gguf.ends_with(".gguf") => format!("name its GGUF file: {}", folder.join(gguf).display()),
        Some(other) => format!("{other} is there: {CONVERT}"),
        None => "the weights are missing: download or copy them too".to_owned(),
    }
}

/// What to do with the folder of an adapter (LoRA and others, as PEFT saves them).
pub(super) fn adapter(folder: &Path) -> Option<String> {
    let text = files::bytes(&folder.join(ADAPTER_CONFIG), files::CONFIG_MAX).ok()?;
    let config = files::json(&text).unwrap_or_default();
    let kind = config["peft_type"].as_str().unwrap_or("PEFT");
    let base = config["base_model_name_or_path"].as_str().unwrap_or("its base model");
    Some(format!(
        "an adapter ({kind}) of {base}, not a model: merge it into {base} (merge_and_unload of peft, then \
         save_pretrained), and name that folder"
    ))
}

/// The name on the Hub of a folder `models--org--name`, or of a folder in it.
fn cached_repository(folder: &Path) -> Option<String> {
    let last = folder.components().next_back()?.as_os_str().to_str()?;
    Some(last.strip_prefix("models--")?.replacen("--", "/", 1))
}

/// The names in a folder, in order; none if it cannot be read.
pub(super) fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The first bytes of a file, or none if it cannot be read.
fn beginning(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if path.is_file() {
        let _ = File::open(path).map(|file| file.take(32).read_to_end(&mut bytes));
    }
    bytes
}
