//! Specs that add to a study: seeds, variants or stages, where what is trained stays as it is.

use super::spec::TrainSpec;
use anyhow::Result;
use base::bail_usage;
use serde_json::Value;

impl TrainSpec {
    /// Checks that this spec is an earlier one, or that with more seeds, more variants, and further stages at the end.
    /// Contrasts, which training does not depend on, may be others.
    ///
    /// # Errors
    /// A usage error that names what differs.
    pub fn check_extends(&self, kept: &Self) -> Result<()> {
        if let (Some(seed), Some(_)) = (kept.seed, &self.seeds) {
            bail_usage!("seed = {seed} has become seeds, whose runs are in other folders; begin in a new one");
        }
        if let Some(seed) = kept.seeds().iter().find(|seed| !self.seeds().contains(seed)) {
            bail_usage!("seed {seed} is trained, and no longer in the spec");
        }
        if self.variants.len() < kept.variants.len() || self.stages.len() < kept.stages.len() {
            bail_usage!("a variant or a stage is trained, and no longer in the spec");
        }
        if let Some(stage) = self.stages.get(kept.stages.len()).filter(|stage| stage.cycle_rate.is_none()) {
            bail_usage!(
                "the further stage of {} tokens has no cycle_rate: the cosine would go on in it, and the steps before would \
                 have had other rates",
                stage.tokens
            );
        }
        let mut without = self.clone();
        (without.seeds, without.contrasts) = (kept.seeds.clone(), kept.contrasts.clone());
        without.variants.truncate(kept.variants.len());
        without.stages.truncate(kept.stages.len());
        let [is, was] = [&without, kept].map(serde_json::to_value);
        if let Some(key) = first_difference(&is?, &was?) {
            bail_usage!("{key} differs; only more seeds, and more variants and stages at the end, leave what is trained as it is");
        }
        Ok(())
    }
}

/// The first key whose values differ, as `optimizer.rate` or `variant[1].attention`.
fn first_difference(a: &Value, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys = a.keys().chain(b.keys());
            keys.find_map(|key| {
                let within = first_difference(a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null))?;
                Some(joined(key, &within))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(i, (a, b))| Some(joined(&format!("[{i}]"), &first_difference(a, b)?)))
        }
        _ => (a != b).then(String::new),
    }
}

fn joined(key: &str, within: &str) -> String {
    if within.is_empty() || within.starts_with('[') {
        format!("{key}{within}")
    } else {
        format!("{key}.{within}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = include_str!("../../experiments/study-a-norm.toml");

    fn spec(text: &str) -> TrainSpec {
        TrainSpec::parse(text, "x.toml").unwrap()
    }

    fn kept() -> TrainSpec {
        spec(KEPT)
    }

    #[test]
    fn seeds_variants_and_stages_with_a_cycle_of_their_own_may_be_added() {
        kept().check_extends(&kept()).unwrap();
        let mut more = kept();
        more.seeds.as_mut().unwrap().push(99);
        let mut variant = more.variants[0].clone();
        variant.name = "one-more".to_owned();
        more.variants.push(variant);
        let mut stage = more.stages[0].clone();
        stage.cycle_rate = Some(1e-3);
        more.stages.push(stage);
        more.contrasts.clear();
        more.check_extends(&kept()).unwrap();
        // The rates of the steps that were trained are the same.
        let total = kept().total_tokens();
        for tokens in [0, 1000, total / 2, total - 1] {
            assert_eq!(more.rate_at(tokens), kept().rate_at(tokens), "after {tokens} tokens");
        }
        assert!(kept().check_extends(&more).is_err(), "nothing may be taken away");
    }

    #[test]
    fn what_would_change_trained_runs_is_refused_by_its_key() {
        type Change = fn(&mut TrainSpec);
        let changes: [(Change, &str); 7] = [
            (|spec| spec.optimizer.rate *= 2.0, "optimizer.rate differs"),
            (|spec| spec.variants[1].qk_norm = true, "variant[1].qk_norm differs"),
            (|spec| spec.stages[0].data.prose = 0.123, "stage[0].data.prose differs"),
            (|spec| spec.variants.swap(0, 1), "variant[0]."),
            (|spec| spec.seeds.as_mut().unwrap().truncate(4), "seed 5 is trained, and no longer in the spec"),
            (|spec| spec.stages.push(spec.stages[0].clone()), "has no cycle_rate"),
            (|spec| spec.variants.truncate(1), "a variant or a stage is trained"),
        ];
        for (change, says) in changes {
            let mut spec = kept();
            change(&mut spec);
            let error = spec.check_extends(&kept()).unwrap_err();
            assert!(error.to_string().contains(says) && base::error::exit_code(&error) == 2, "{says}: {error}");
        }
    }
}
