//! What may be named as a model: folders, their files by other names, built-in models, and what is no model.

use crate::common::{tiny_model, Scratch, NEEDLE};
use engine::attention::Stream;
use engine::model::open::{self, LoadOptions};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

#[test]
fn a_tied_matrix_may_have_either_name() {
    let dir = Scratch::new();
    let of = |name: &str| {
        let folder = dir.path(name);
        tiny_model(&folder, "transformer");
        folder
    };
    let (plain, renamed) = (of("plain"), of("renamed"));
    let path = renamed.join("model.safetensors");
    let mut tensors: HashMap<String, candle_core::Tensor> =
        candle_core::safetensors::load(&path, &candle_core::Device::Cpu).unwrap();
    let embedding = tensors.remove("model.embed_tokens.weight").unwrap();
    tensors.insert("lm_head.weight".into(), embedding);
    candle_core::safetensors::save(&tensors, &path).unwrap();
    let logits = |folder: &Path| {
        let model = open::load(folder.to_str().unwrap(), LoadOptions::default()).unwrap();
        let hidden = model.transformer.hidden(&[vec![1, 2, 3]], &mut Stream::new(&[])).unwrap();
        model.transformer.logits(&hidden).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    assert_eq!(logits(&plain), logits(&renamed));
}

#[test]
fn a_configuration_alone_says_whether_its_family_is_supported() {
    let bench = Scratch::with_model();
    fs::remove_file(bench.path("m/model.safetensors")).unwrap();
    for model in ["m", "m/config.json"] {
        let shown = bench.run(format!("inspect {model}"));
        shown.succeeded();
        assert!(shown.stdout.contains("none: this is the configuration of a supported family"), "{}", shown.stdout);
    }
    bench.run(format!("{NEEDLE} --model m --out out -q")).refused(1, &["m: has neither model.safetensors"]);
    bench.edit_json("m/config.json", |config| config["model_type"] = json!("mamba"));
    bench.run("inspect m/config.json").refused(1, &["m/config.json", "\"mamba\" is not supported"]);
}

#[test]
#[cfg(unix)]
fn a_link_that_leads_nowhere_is_an_error_and_no_absent_file() {
    let bench = Scratch::with_model();
    for file in ["tokenizer_config.json", "generation_config.json"] {
        std::os::unix::fs::symlink("nowhere", bench.path(format!("m/{file}"))).unwrap();
        bench.run("inspect m").refused(1, &[file]);
        fs::remove_file(bench.path(format!("m/{file}"))).unwrap();
    }
}

#[test]
fn a_folder_has_one_name_however_it_is_written() {
    let bench = Scratch::with_model();
    bench.write("ids.txt", "5 6 7 8 9 10 11 5 6 7 8 9 10 11 99 100 101 102");
    let models = |out: &str| {
        let records = bench.read(format!("{out}/results.csv"));
        let columns: Vec<&str> = records.lines().next().unwrap().split(',').collect();
        let model = columns.iter().position(|&column| column == "model").unwrap();
        records.lines().nth(1).unwrap().split(',').nth(model).unwrap().to_owned()
    };
    for (i, name) in ["m", "m/", "./m", ".//m/./"].into_iter().enumerate() {
        bench.run(format!("nll --ids ids.txt --ctx 16 --model {name} --out out{i} -q")).succeeded();
        assert_eq!(models(&format!("out{i}")), "m", "{name}");
    }
    let absolute = bench.path("m").display().to_string();
    for other in ["m/", "./m", &absolute] {
        let twice = bench.run(format!("nll --ids ids.txt --ctx 16 --model m --model {other} --out twice -q"));
        twice.refused(2, &["is named twice"]);
    }
    fs::rename(bench.path("m"), bench.path("diff")).unwrap();
    bench.run("inspect ./diff/").succeeded();
    bench.run("nll --ids ids.txt --ctx 16 --model ./diff/ --out own -q").succeeded();
    assert_eq!(models("own"), "./diff", "the built-in model is another");
}

#[test]
fn a_folder_with_the_name_of_a_built_in_model_is_not_passed_over() {
    let bench = Scratch::with_model();
    let models = |out: &str| {
        let manifest: Value = bench.json(format!("{out}/manifest.json"));
        let models = manifest["models"].as_array().unwrap().iter();
        models.map(|model| model["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (i, (folder, own)) in [("diff", "./diff"), ("diff-v2/seed-3", "diff-v2/seed-3")].into_iter().enumerate() {
        let name = folder.split('/').next().unwrap();
        let built_in = format!("built-in:{name}");
        bench.run(format!("{NEEDLE} --model {built_in} --out alone{i} -q")).succeeded();
        assert_eq!(models(&format!("alone{i}")), [name], "nothing else has this name");
        tiny_model(&bench.path(folder), "diff");
        let refused = bench.run(format!("{NEEDLE} --model m --model {name} --out no -q"));
        refused.refused(2, &[&format!("model {name}: "), &format!("./{name} for the folder"), &built_in]);
        bench.run(format!("{NEEDLE} --model {built_in} --model ./{folder} --out both{i} -q")).succeeded();
        assert_eq!(models(&format!("both{i}")), [&*built_in, own]);
    }
    bench.run("inspect diff").refused(2, &["./diff for the folder", "built-in:diff"]);
    assert!(bench.run("inspect built-in:diff").succeeded().stdout.contains("DIFF V1"));
    bench.run(format!("{NEEDLE} --out default -q")).succeeded();
    assert_eq!(models("default"), ["transformer", "built-in:diff", "built-in:diff-v2"]);
    let experiment = bench.run(format!("{NEEDLE} --model all --print-experiment"));
    bench.write("again.toml", &experiment.succeeded().stdout);
    bench.run("run again.toml --out again -q").succeeded();
    assert_eq!(models("again"), ["transformer", "built-in:diff", "built-in:diff-v2", "diff-no-norm"]);
    bench
        .run(format!("{NEEDLE} --model built-in:dif --out no -q"))
        .refused(2, &["built-in models are transformer, diff"]);
}

#[test]
fn weights_of_another_name_are_found_or_named() {
    let bench = Scratch::with_model();
    bench.write("ids.txt", "5 6 7 8 9 10 11 5 6 7 8 9 10 11 99 100 101 102");
    let nll = |model: &str, out: &str| bench.run(format!("nll --ids ids.txt --ctx 16 --model {model} --out {out} -q"));
    let sha256 = |out: &str| {
        let manifest: Value = bench.json(format!("{out}/manifest.json"));
        manifest["models"][0]["weights_sha256"].clone()
    };
    nll("m", "usual").succeeded();
    fs::rename(bench.path("m/model.safetensors"), bench.path("m/step-9.safetensors")).unwrap();
    nll("m", "found").succeeded();
    nll("m/step-9.safetensors", "named").succeeded();
    assert!(sha256("usual") == sha256("found") && sha256("usual") == sha256("named"));
    assert!(bench.run("inspect m/step-9.safetensors").succeeded().stdout.contains("prompts begin with <bos>"));
    let mut beside = bench.command("inspect step-9.safetensors");
    beside.current_dir(bench.path("m")).assert().success();

    tiny_model(&bench.path("other"), "diff");
    fs::rename(bench.path("other/model.safetensors"), bench.path("m/ema.safetensors")).unwrap();
    nll("m", "no").refused(2, &["which of its files has the weights", "m/ema.safetensors, m/step-9.safetensors"]);
    bench.run("inspect m").refused(2, &["m/ema.safetensors, m/step-9.safetensors"]);
    nll("m/step-9.safetensors", "still").succeeded();
    nll("m/ema.safetensors", "misfit").refused(1, &["m/ema.safetensors: tensor"]);
    fs::rename(bench.path("m/ema.safetensors"), bench.path("m/model-00001-of-00002.safetensors")).unwrap();
    nll("m", "part").succeeded();
    nll("m/model-00001-of-00002.safetensors", "no").refused(2, &["one of several files", "name their folder"]);
}

#[test]
fn what_is_no_model_is_called_by_its_name() {
    let bench = Scratch::with_model();
    let folder = |name: &str, files: &[(&str, &str)]| {
        for (file, text) in files {
            fs::create_dir_all(bench.path(format!("{name}/{file}")).parent().unwrap()).unwrap();
            bench.write(format!("{name}/{file}"), text);
        }
    };
    let lora = r#"{"peft_type": "LORA", "base_model_name_or_path": "org/base"}"#;
    folder("lora", &[("adapter_config.json", lora), ("adapter_model.safetensors", "")]);
    folder("cache/models--org--name", &[("snapshots/0123/config.json", "{}"), ("refs/main", "0123")]);
    folder("training", &[("checkpoint-20/config.json", "{}"), ("checkpoint-100/config.json", "{}")]);
    folder("meta", &[("params.json", "{}"), ("consolidated.00.pth", "")]);
    folder("pipeline", &[("model_index.json", "{}"), ("unet/config.json", "{}")]);
    folder("run", &[("results.csv", "model"), ("manifest.json", "{}")]);
    folder("empty", &[("README.md", "")]);
    folder("gguf", &[("b.gguf", "GGUF"), ("sha256-01", "GGUF"), ("README.md", "")]);
    let llama = bench.read("m/config.json");
    folder("torch", &[("config.json", &llama), ("pytorch_model.bin", "")]);
    folder("shards", &[("config.json", &llama), ("model-00001-of-00002.safetensors", "")]);
    folder("bert", &[("config.json", r#"{"model_type": "bert"}"#), ("pytorch_model.bin", ""), ("vocab.txt", "")]);
    folder("old-bert", &[("config.json", r#"{"architectures": ["BertForMaskedLM"]}"#)]);
    let fp8 = r#"{"model_type": "kimi_k2", "quantization_config": {"quant_method": "fp8"}}"#;
    folder("kimi", &[("config.json", fp8), ("tokenizer.json", "?"), ("model.safetensors", "")]);
    let mlx = llama.replacen('{', r#"{"quantization": {"group_size": 64, "bits": 4},"#, 1);
    folder("mlx", &[("config.json", &mlx), ("model.safetensors", "")]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    folder("lfs", &[("config.json", &llama), ("model.safetensors", pointer)]);
    folder(
        "files",
        &[("a.pt", "PK"), ("b.onnx", ""), ("c.safetensors", ""), ("d.gguf", pointer), ("e", "lmgg"), ("f", "")],
    );
    for (model, words) in [
        ("lora", &["an adapter (LORA) of org/base", "merge it into org/base"][..]),
        ("cache/models--org--name", &["write hf:org/name"]),
        ("cache", &["the cache of Hugging Face", "hf:org/name"]),
        ("training", &["there is a model in training/checkpoint-100"]),
        ("meta", &["as Meta or Mistral publish them", "format of transformers"]),
        ("pipeline", &["diffusers", "no language model"]),
        ("run", &["the results of a run"]),
        ("empty", &["has no config.json"]),
        ("gguf", &["name its GGUF file: gguf/b.gguf, gguf/sha256-01"]),
        ("torch", &["torch: has neither model.safetensors", "pytorch_model.bin is there", "save_pretrained"]),
        ("shards", &["shards: has neither model.safetensors", "model-00001-of-00002.safetensors is there", "index"]),
        ("bert", &["bert/config.json: model_type \"bert\" is not supported"]),
        ("old-bert", &["old-bert/config.json: model_type is missing", "BertForMaskedLM"]),
        ("kimi", &["kimi/config.json: model_type \"kimi_k2\" is not supported"]),
        ("mlx", &["mlx/config.json: quantization: weights in 4 bits", "bf16"]),
        ("lfs", &["lfs/model.safetensors is a pointer of Git LFS", "git lfs pull"]),
        ("files/a.pt", &["weights of PyTorch", "save_pretrained"]),
        ("files/b.onnx", &["a compiled model", "save_pretrained"]),
        ("files/c.safetensors", &["name the folder that has config.json"]),
        ("files/d.gguf", &["a pointer of Git LFS", "git lfs pull"]),
        ("files/e", &["llama.cpp from before GGUF", "convert"]),
        ("files/f", &["not in GGUF", "name the folder"]),
    ] {
        let run = bench.run(format!("{NEEDLE} --model {model} --out out -q"));
        run.refused(run.code.unwrap(), words);
        assert!(matches!(run.code, Some(1 | 2)), "{}", run.stderr);
    }
    bench.write("m/adapter_config.json", lora);
    assert!(bench.run("inspect m").succeeded().stderr.contains("the adapter is not applied"));
}

#[test]
fn an_end_token_outside_the_vocabulary_matters_to_generation_alone() {
    let bench = Scratch::with_model();
    for eos in [json!(50_256), json!([50_256, 60_000])] {
        bench.edit_json("m/config.json", |config| config["eos_token_id"] = eos.clone());
        let shown = bench.run("inspect m");
        assert!(shown.succeeded().stderr.contains("eos_token_id"), "{}", shown.stderr);
        bench.run(format!("{NEEDLE} --model m --out out{} -q", eos.is_array())).succeeded();
        let generating = bench.run(format!("{NEEDLE} --generate --model m --out generated -q"));
        generating.refused(2, &["--generate", "m/config.json: eos_token_id", "outside the vocabulary"]);
    }
    bench.edit_json("m/config.json", |config| config["eos_token_id"] = json!([1, 50_256]));
    bench.run(format!("{NEEDLE} --generate --model m --out generated -q")).succeeded();
}

#[cfg(unix)]
#[test]
fn a_link_to_nothing_is_an_error_and_not_an_absent_file() {
    let bench = Scratch::with_model();
    bench.write(
        "m/tokenizer_config.json",
        r#"{"chat_template": "OTHER {{ messages[0].content }} ", "bos_token": "<bos>"}"#,
    );
    fs::create_dir(bench.path("texts")).unwrap();
    bench.write("texts/a.txt", "A sentence of this text. ".repeat(200));
    for (link, command) in [
        ("m/chat_template.jinja", format!("{NEEDLE} --model m --chat-template --out out")),
        ("m/special_tokens_map.json", format!("{NEEDLE} --model m --out out")),
        ("m/added_tokens.json", format!("{NEEDLE} --model m --out out")),
        ("m/generation_config.json", format!("{NEEDLE} --model m --out out")),
        ("texts/b.txt", format!("{NEEDLE} --model m --haystack texts --out out")),
    ] {
        for target in ["gone", link.rsplit('/').next().unwrap()] {
            std::os::unix::fs::symlink(target, bench.path(link)).unwrap();
            let out = bench.run(&command);
            assert!(
                out.code != Some(0) && out.stderr.contains(link),
                "{link} -> {target}: {:?} {}",
                out.code,
                out.stderr
            );
            fs::remove_file(bench.path(link)).unwrap();
        }
    }
}
