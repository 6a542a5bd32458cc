//! Checks of a training spec that its types cannot express.

use super::spec::{Contrast, LossSpec, ModelSpec, OptimizerSpec, Stage, StartSpec, TrainSpec, VariantSpec, WatchSpec};
use anyhow::{Context, Result};
use base::bail_usage;
use engine::model::{LARGEST_SIZE, MOST_LAYERS};
use names::values::MOST_TOKENS;
use text::CitySet;

impl TrainSpec {
    /// Checks everything.
    pub(super) fn check(&self) -> Result<()> {
        if self.variants.is_empty() || self.stages.is_empty() {
            bail_usage!("a spec needs at least one [[variant]] and one [[stage]]");
        }
        self.watch.check()?;
        self.check_seeds()?;
        self.optimizer.check()?;
        for VariantSpec { name, rate, .. } in &self.variants {
            if let Some(rate) = rate.filter(|&rate| !is_rate(rate)) {
                bail_usage!("variant {name}: rate {rate} is not a learning rate above 0");
            }
        }
        self.loss.check()?;
        if self.stages[0].cycle_rate.is_some() {
            bail_usage!(
                "stage: the first one has a cycle_rate, but its peak is optimizer.rate; later stages may have one"
            );
        }
        match &self.start {
            None => self.check_model(self.model()?)?,
            Some(start) => self.check_start(start)?,
        }
        self.check_names()?;
        self.check_contrasts()?;
        self.stages.iter().try_for_each(|stage| self.check_stage(stage))?;
        self.check_length()
    }

    /// Documents are numbered in 32 bits, so that no two seeds have the same.
    fn check_length(&self) -> Result<()> {
        let tokens = self.stages.iter().try_fold(0_usize, |sum, stage| sum.checked_add(stage.tokens));
        let documents: usize =
            self.stages.iter().map(|stage| stage.tokens / stage.ctx_tok).fold(0, usize::saturating_add);
        if tokens.is_none() || documents as u64 > u64::from(u32::MAX) {
            bail_usage!("the stages have {documents} documents; a run can have at most {}", u32::MAX);
        }
        Ok(())
    }

    fn check_seeds(&self) -> Result<()> {
        let seeds = self.seeds();
        match (self.seed, &self.seeds) {
            (Some(_), Some(_)) => bail_usage!("seed and seeds are both given; leave one of them out"),
            (None, None) => bail_usage!("seed is missing; give seed = 1, or several: seeds = [1, 2, 3]"),
            _ if seeds.is_empty() => bail_usage!("seeds is empty"),
            _ => {}
        }
        for (i, seed) in seeds.iter().enumerate() {
            if *seed > u64::from(u32::MAX) {
                bail_usage!(
                    "seed {seed} is too large: give one below 2^32, so that no two seeds have the same documents"
                );
            }
            if seeds[..i].contains(seed) {
                bail_usage!("seeds: {seed} is given twice");
            }
        }
        Ok(())
    }

    /// Variants of a start model have its sizes and its weights. Whether they can hold its function is checked when it is
    /// opened.
    fn check_start(&self, start: &StartSpec) -> Result<()> {
        if start.from.is_empty() {
            bail_usage!("start: from is empty; name a model, as --model does");
        }
        if !(0.0..=1.0).contains(&start.noise) {
            bail_usage!("start: noise {} is not a share of a row's norm from 0 to 1", start.noise);
        }
        for variant in &self.variants {
            let VariantSpec { name, ffn, heads, head_dim, qk_norm, embedding_deviation, zero_output, .. } = variant;
            variant.attention.resolve().with_context(|| format!("variant {name}"))?;
            for (key, is_given) in [
                ("ffn", ffn.is_some()),
                ("heads", heads.is_some()),
                ("head_dim", head_dim.is_some()),
                ("qk_norm", *qk_norm),
                ("embedding_deviation", embedding_deviation.is_some()),
                ("zero_output", *zero_output),
            ] {
                if is_given {
                    bail_usage!("variant {name}: {key} is that of the model in start.from; leave it out");
                }
            }
        }
        Ok(())
    }

    fn check_model(&self, m: &ModelSpec) -> Result<()> {
        for (key, size, most) in [
            ("width", m.width, LARGEST_SIZE),
            ("layers", m.layers, MOST_LAYERS),
            ("heads", m.heads, LARGEST_SIZE),
            ("head_dim", m.head_dim, LARGEST_SIZE),
            ("ffn", m.ffn, LARGEST_SIZE),
            ("max_ctx_tok", m.max_ctx_tok, MOST_TOKENS),
        ] {
            if size == 0 || size as u64 > most {
                bail_usage!("model: {key} is {size}, expected 1 to {most}");
            }
        }
        if !is_rate(m.rope_theta) {
            bail_usage!("model: rope_theta is {}, expected a number above 0", m.rope_theta);
        }
        for VariantSpec { name, ffn, heads, head_dim, .. } in &self.variants {
            for (key, size) in [("ffn", ffn), ("heads", heads), ("head_dim", head_dim)] {
                if let Some(size) = size.filter(|&size| size == 0 || size as u64 > LARGEST_SIZE) {
                    bail_usage!("variant {name}: {key} is {size}, expected 1 to {LARGEST_SIZE}");
                }
            }
        }
        if !m.heads.is_multiple_of(2) || m.kv_heads.is_some_and(|kv| kv == 0 || !m.heads.is_multiple_of(kv)) {
            bail_usage!("model: heads {} must be even and a multiple of kv_heads", m.heads);
        }
        for variant in &self.variants {
            if let Some(deviation) = variant.embedding_deviation.filter(|&deviation| !is_rate(deviation)) {
                bail_usage!("variant {}: embedding_deviation {deviation} is not above 0", variant.name);
            }
            let config = self.config(variant, 1).with_context(|| format!("variant {}", variant.name))?;
            if let Err(error) = config.check() {
                bail_usage!("variant {}: {error:#}", variant.name);
            }
        }
        Ok(())
    }

    /// Names of variants are names of folders.
    fn check_names(&self) -> Result<()> {
        for (i, VariantSpec { name, .. }) in self.variants.iter().enumerate() {
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
                bail_usage!("variant name \"{name}\": use letters, digits, - and _");
            }
            if self.variants[..i].iter().any(|other| other.name == *name) {
                bail_usage!("two variants have the same name, {name}");
            }
        }
        Ok(())
    }

    fn check_contrasts(&self) -> Result<()> {
        for Contrast { name, of, less } in &self.contrasts {
            if of.is_empty() || less.is_empty() {
                bail_usage!("contrast {name:?}: of and less each name at least one variant");
            }
            let mut named = of.iter().chain(less);
            if let Some(unknown) = named.find(|name| !self.variants.iter().any(|variant| variant.name == **name)) {
                let names: Vec<&str> = self.variants.iter().map(|variant| variant.name.as_str()).collect();
                bail_usage!("contrast {name:?}: {unknown} is not a variant; there are {}", names.join(", "));
            }
        }
        Ok(())
    }

    fn check_stage(&self, stage: &Stage) -> Result<()> {
        let Stage { ctx_tok, step_tok, tokens, .. } = *stage;
        if ctx_tok == 0 || step_tok == 0 || !step_tok.is_multiple_of(ctx_tok) {
            bail_usage!("stage: step_tok {step_tok} is not a multiple of ctx_tok {ctx_tok}");
        }
        if let Some(rate) = stage.cycle_rate.filter(|&rate| !is_rate(rate)) {
            bail_usage!("stage: cycle_rate {rate} is not a learning rate above 0");
        }
        if tokens < step_tok {
            bail_usage!("stage: {tokens} tokens are less than one step of {step_tok}");
        }
        let needles = self.watch.evaluated().into_iter().map(|(needles, ..)| needles).max().unwrap_or(0);
        if ctx_tok < needles {
            bail_usage!("stage: ctx_tok {ctx_tok} has no room for the {needles} needles of its evaluations");
        }
        if let Some(model) = self.model.as_ref().filter(|model| ctx_tok > model.max_ctx_tok) {
            bail_usage!("stage: ctx_tok {ctx_tok} exceeds model.max_ctx_tok {}", model.max_ctx_tok);
        }
        stage.data.check().with_context(|| format!("stage of {ctx_tok} tokens"))
    }
}

impl OptimizerSpec {
    fn check(&self) -> Result<()> {
        let Self { rate, final_fraction, beta1, beta2, weight_decay, clip, .. } = *self;
        for (key, value, fits, what) in [
            ("rate", rate, is_rate(rate), "a learning rate above 0"),
            ("final_fraction", final_fraction, (0.0..=1.0).contains(&final_fraction), "a fraction from 0 to 1"),
            ("beta1", beta1, (0.0..1.0).contains(&beta1), "a decay from 0 to below 1"),
            ("beta2", beta2, (0.0..1.0).contains(&beta2), "a decay from 0 to below 1"),
            ("weight_decay", weight_decay, weight_decay >= 0.0 && weight_decay.is_finite(), "a decay of 0 or more"),
            ("clip", clip, is_rate(clip), "a gradient norm above 0"),
        ] {
            if !fits {
                bail_usage!("optimizer: {key} {value} is not {what}");
            }
        }
        Ok(())
    }
}

impl LossSpec {
    fn check(&self) -> Result<()> {
        let LossSpec { first_digit, other_digits, new_digits } = *self;
        for (key, weight) in [("first_digit", first_digit), ("other_digits", other_digits), ("new_digits", new_digits)]
        {
            if !(0.0..f64::INFINITY).contains(&weight) {
                bail_usage!("loss: {key} {weight} is not a weight; give 0 or more");
            }
        }
        Ok(())
    }
}

impl WatchSpec {
    fn check(&self) -> Result<()> {
        for (key, tokens) in [
            ("log_every_tok", self.log_every_tok),
            ("eval_every_tok", self.eval_every_tok),
            ("save_every_tok", self.save_every_tok),
        ] {
            if tokens == 0 {
                bail_usage!("watch: {key} is 0; give a number of tokens, a large one for never");
            }
        }
        let cities = CitySet::Train.cities().len();
        for (i, &needles) in self.needles.iter().enumerate() {
            if needles == 0 || needles > cities {
                bail_usage!("watch: needles has {needles}, expected 1 to {cities}");
            }
            let usual = [1, 2, 4].contains(&needles);
            if usual || self.needles[..i].contains(&needles) {
                bail_usage!("watch: needles has {needles}, which is asked for already (1, 2 and 4 always are)");
            }
        }
        Ok(())
    }
}

fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate.is_finite()
}
