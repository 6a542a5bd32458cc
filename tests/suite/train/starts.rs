//! Training that begins with a model, and on texts of people.

use super::*;

/// A spec that starts from a model, with the differential variants that can hold its function.
fn started(from: &str) -> String {
    let from = toml::Value::from(from);
    let variants = r#"
[[variant]]
name = "minus"
attention = "diff-v2"

[[variant]]
name = "averaged"
attention = { preset = "diff-v2", lambda = "fixed", lambda_init = -1 }
"#;
    let begin = SPEC.find("[model]").unwrap();
    let end = SPEC.find("[[variant]]\nname = \"diff\"").unwrap();
    let optimizer = SPEC.find("[optimizer]").unwrap();
    let standard = &SPEC[SPEC.find("[[variant]]").unwrap()..end];
    format!("{}[start]\nfrom = {from}\n\n{standard}{variants}\n{}", &SPEC[..begin], &SPEC[optimizer..])
}

/// What runs said before their first steps.
#[derive(Default)]
struct Said(std::sync::Mutex<Vec<String>>);

impl Progress for Said {
    fn step(&self, _run: usize, _tokens: usize, _message: &str) {}
    fn say(&self, _run: usize, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}

/// Trains a spec that starts from a model, for one step; returns the `config.json` of each variant.
fn forked(text: &str, out: &Path) -> (TrainSpec, Vec<serde_json::Value>, Vec<String>) {
    let mut spec = TrainSpec::parse(text, "spec.toml").unwrap();
    spec.stages.truncate(1);
    spec.stages[0].tokens = spec.stages[0].step_tok;
    let (said, stop) = (Said::default(), AtomicBool::new(false));
    assert_eq!(train(&spec, out, false, &stop, &said).unwrap(), TrainOutcome::Finished);
    let json = |variant: &VariantSpec| {
        let text = std::fs::read_to_string(out.join(&variant.name).join("config.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let configs = spec.variants.iter().map(json).collect();
    (spec, configs, said.0.into_inner().unwrap())
}

#[test]
fn variants_start_as_the_embedded_model_to_the_last_bit_and_say_so() {
    let out = tempfile::tempdir().unwrap();
    let (spec, configs, said) = forked(&started("transformer"), out.path());
    assert_eq!(said.len(), 3);
    assert!(said.iter().all(|said| said.contains("logits at step 0 differ by at most 0")), "{said:?}");
    assert_eq!(said.iter().filter(|said| said.contains("set start.noise")).count(), 1, "{said:?}");
    for (variant, (json, config)) in spec.variants.iter().zip(configs.iter().zip(spec.configs().unwrap())) {
        let start = &json["difftool"]["start"];
        assert_eq!((&start["from"], &start["largest_logit_difference"]), (&"transformer".into(), &0.0.into()));
        assert_eq!(start["weights_sha256"].as_str().unwrap().len(), 64);
        assert_eq!((config.max_ctx_tok, json["rope_theta"].as_f64()), (4096, Some(1e6)), "{}", variant.name);
        assert_reloads(&out.path().join(&variant.name), &config);
    }
    assert_eq!(configs[0]["architectures"][0], "LlamaForCausalLM");
}

#[test]
fn a_model_in_the_shape_of_smollm2_forks_without_a_difference() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sizes = DecoderSizes { width: 36, heads: 9, kv_heads: 3, ..tiny_sizes("transformer") };
    random_model(folder.path(), "transformer", sizes, DType::F32);
    edit_tensor(folder.path(), "model.layers.0.self_attn.q_proj.weight", |values| {
        values.iter_mut().for_each(|x| *x *= 20.0);
    });
    let text = started(folder.path().to_str().unwrap()).replace("[start]", "[start]\nnoise = 0.02");
    let (_, configs, said) = forked(&text, out.path());
    let differ = "differ by at most 0";
    assert!(said.iter().all(|said| said.contains(differ)), "{said:?}");
    assert_eq!(said.iter().filter(|said| said.ends_with("before noise of 2 %")).count(), 2, "{said:?}");
    assert!(configs.iter().all(|json| json["num_attention_heads"] == 9 && json["num_key_value_heads"] == 3));
}

#[test]
fn what_cannot_start_from_a_model_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    tiny_model(folder.path(), "diff");
    let diff = folder.path().to_str().unwrap().to_owned();
    let usual = started("transformer");
    for (text, says) in [
        (usual.replace("\"diff-v2\"\n", "\"diff\"\n"), "variant minus: it cannot hold the function of transformer: a norm"),
        (usual.replace("\"diff-v2\"\n", "\"diff-no-norm\"\n"), "doubled values"),
        (started(&diff), "only a standard model can become another variant"),
        (started("no/such/model"), "start.from: model no/such/model: there is no such file"),
        (usual.replace("\"diff-v2\"\n", "\"diff-v2\"\nffn = 40\n"), "variant minus: ffn is that of the model in start.from"),
        (usual.replace("[start]", "[start]\nnoise = -1"), "start: noise -1"),
        (usual.replace("[start]", "[start]\nnoises = 1"), "noises"),
        (usual.replace("ctx_tok = 64", "ctx_tok = 8192").replacen("step_tok = 256", "step_tok = 8192", 1).replace("tokens = 3072", "tokens = 8192"), "exceeds the 4096 tokens of transformer"),
        (format!("{usual}\n[model]\nwidth = 64\nlayers = 4\nheads = 8\nhead_dim = 32\nffn = 344\nrope_theta = 1e6\nmax_ctx_tok = 4096\n"), "model: width is 64, but 128 in start.from"),
        (SPEC.replacen("[model]", "[models]", 1), "models"),
    ] {
        let refused = TrainSpec::parse(&text, "spec.toml").and_then(|spec| spec.configs());
        let error = refused.expect_err(says);
        let message = format!("{error:#}");
        assert_eq!(exit_code(&error), 2, "{message}");
        assert!(message.contains(says) && !message.contains('\n'), "{message}");
    }
}

/// A folder of documents, of which some are held out.
fn documents(folder: &Path) -> String {
    for i in 0..60 {
        let text = format!("Text number {i} tells of a river, and of the boats on it in the year {}. ", 1900 + i);
        std::fs::write(folder.join(format!("{i:02}.txt")), text.repeat(6)).unwrap();
    }
    toml::Value::from(folder.to_str().unwrap()).to_string()
}

#[test]
fn peoples_texts_are_trained_on_and_those_held_out_have_a_loss_that_falls() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = format!("text = [{}], text_share = 0.75, facts", documents(folder.path()));
    let with_text = SPEC.replacen("data = { facts", &format!("data = {{ {text}"), 1);
    let mut spec = TrainSpec::parse(&with_text, "spec.toml").unwrap();
    spec.variants.truncate(1);
    (spec.watch.eval_samples, spec.watch.held_out_windows) = (2, 4);
    finish(&spec, out.path());
    let dir = out.path().join("transformer");
    let held_out = std::fs::read_to_string(dir.join(HELD_OUT_FILE)).unwrap();
    let mut lines = csv::Reader::from_reader(held_out.as_bytes());
    let lines: Vec<HeldOutLine> = lines.deserialize().map(Result::unwrap).collect();
    // The second stage has no texts.
    let at: Vec<_> = lines.iter().map(|line| (line.tokens, line.ctx_tok, line.windows)).collect();
    assert_eq!(at, [(2048, 64, 4)]);
    assert!(lines[0].heldout_nats < 0.9 * (Tokenizer::embedded().vocab_size() as f64).ln(), "{held_out}");
    let eval = std::fs::read_to_string(dir.join("eval.csv")).unwrap();
    assert!(eval.lines().count() > 4, "needle prompts are evaluated beside them: {eval}");

    let parts = tempfile::tempdir().unwrap();
    assert_eq!(run(&spec, parts.path(), false, 9), TrainOutcome::Stopped);
    assert_eq!(run(&spec, parts.path(), true, usize::MAX), TrainOutcome::Finished);
    for file in [TENSOR_FILE, HELD_OUT_FILE] {
        assert!(bytes(&dir, file) == bytes(&parts.path().join("transformer"), file), "{file} of a resumed run");
    }
}

#[test]
fn a_start_model_keeps_its_tokenizer_which_may_join_digits_where_no_facts_are_taught() {
    let (folder, texts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let usual = tiny_sizes("transformer");
    random_model(folder.path(), "transformer", DecoderSizes { vocab: usual.vocab + 1, ..usual }, DType::F32);
    let mut tokenizer: serde_json::Value = serde_json::from_str(&Tokenizer::embedded().json).unwrap();
    tokenizer["added_tokens"].as_array_mut().unwrap().push(serde_json::json!({
        "id": usual.vocab, "content": "98", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": false,
    }));
    let tokenizer = tokenizer.to_string();
    std::fs::write(folder.path().join("tokenizer.json"), &tokenizer).unwrap();
    let from = started(folder.path().to_str().unwrap());
    let error = TrainSpec::parse(&from, "spec.toml").unwrap().open().err().unwrap();
    assert_eq!(exit_code(&error), 2);
    assert!(format!("{error:#}").contains("does not make one token of each digit"), "{error:#}");

    let data = format!("data = {{ text = [{}], facts", documents(texts.path()));
    let out = tempfile::tempdir().unwrap();
    let (_, configs, _) = forked(&from.replace("data = { facts", &data), out.path());
    assert_eq!((&configs[1]["vocab_size"], &configs[1]["bos_token_id"]), (&(usual.vocab + 1).into(), &0.into()));
    let dir = out.path().join("minus");
    assert_eq!(String::from_utf8(bytes(&dir, "tokenizer.json")).unwrap(), tokenizer);
    assert!(!bytes(&dir, HELD_OUT_FILE).is_empty() && bytes(&dir, "eval.csv").is_empty());
}

#[test]
fn texts_without_a_window_of_the_context_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let documents = documents(folder.path());
    for (text, says) in [
        (format!("text = [{documents}], text_share = 2.0, facts"), "text_share = 2"),
        ("text = [\"no/such.txt\"], facts".to_owned(), "no/such.txt"),
    ] {
        let spec = SPEC.replacen("data = { facts", &format!("data = {{ {text}"), 1);
        let error = TrainSpec::parse(&spec, "spec.toml").and_then(|spec| spec.open().map(drop)).expect_err(says);
        assert!(exit_code(&error) == 2 && format!("{error:#}").contains(says), "{error:#}");
    }
    let long = SPEC.replace("max_ctx_tok = 128", "max_ctx_tok = 4096").replace(
        "ctx_tok = 128\ntokens = 2048\nstep_tok = 256\ndata = { facts",
        &format!("ctx_tok = 2048\ntokens = 2048\nstep_tok = 2048\ndata = {{ text = [{documents}], facts"),
    );
    let error = TrainSpec::parse(&long, "spec.toml").unwrap().open().map(drop).unwrap_err();
    assert!(format!("{error:#}").contains("a window takes 2048"), "{error:#}");
}

#[test]
fn an_architecture_that_cannot_be_trained_is_refused_by_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    for (change, says) in [
        (r#"{"rope_scaling": {"rope_type": "linear", "factor": 2.0}}"#, "scaled or partial RoPE"),
        (r#"{"model_type": "mistral", "sliding_window": 32}"#, "sliding windows"),
        (r#"{"hidden_act": "gelu"}"#, "SwiGLU"),
    ] {
        tiny_model(folder.path(), "transformer");
        let path = folder.path().join("config.json");
        let mut json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let change: serde_json::Map<String, serde_json::Value> = serde_json::from_str(change).unwrap();
        json.as_object_mut().unwrap().extend(change);
        std::fs::write(&path, json.to_string()).unwrap();
        let spec = TrainSpec::parse(&started(folder.path().to_str().unwrap()), "spec.toml").unwrap();
        let error = spec.configs().expect_err(says);
        assert!(exit_code(&error) == 2 && format!("{error:#}").contains(says), "{error:#}");
    }
}
