//! The page: what was kept, as text in one HTML file that asks for nothing from outside.

use super::measure::ModelMaps;
use super::pack::{fitting_floor, pack_pairs, pack_pooled, Blob, HeadIndex, ROWS};
use super::probe::{Resolution, FINEST};
use anyhow::{Context, Result};
use askama::Template;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use serde::Serialize;
use serde_json::{json, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const STYLE: &str = include_str!("style.css");

/// The script, in the order in which its parts build on each other.
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("data.js"),
    include_str!("colour.js"),
    include_str!("tiles.js"),
    include_str!("map.js"),
    include_str!("view.js"),
    include_str!("row.js"),
    include_str!("overview.js"),
    include_str!("main.js"),
);

/// What of the budget is not for token pairs and pooled maps: style, script and words.
const RESERVED: usize = 120_000;

/// One model in the explorer.
pub struct Explored<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its attention, in words.
    pub layout: &'a str,
    /// Softmax maps per head: 1 or 2.
    pub maps: usize,
    /// How much was kept.
    pub resolution: Resolution,
    /// What was kept.
    pub found: &'a ModelMaps,
    /// Numbers of every head, by layer and head: name and value.
    pub numbers: BTreeMap<(usize, usize), BTreeMap<String, f64>>,
}

/// Everything that the page shows.
pub struct Explorer<'a> {
    /// Heading.
    pub title: String,
    /// What was explored, in words.
    pub caption: String,
    /// How it was made.
    pub recipe: Vec<(String, String)>,
    /// The models, in order.
    pub models: Vec<Explored<'a>>,
    /// The page takes no more bytes than this, if it can.
    pub budget: usize,
}

/// A page and what it came to.
pub struct Page {
    /// The HTML.
    pub html: String,
    /// Token pairs away from the answer's rows are told in steps of 2^`floor`.
    pub floor: i8,
}

/// What the script reads.
#[derive(Serialize)]
struct Contents<'a> {
    caption: &'a str,
    recipe: &'a [(String, String)],
    rows_per_part: usize,
    floor: i8,
    finest: i8,
    prompts: Vec<&'a super::PromptFacts>,
    models: Vec<Value>,
}

#[derive(Template)]
#[template(path = "explore.html")]
struct Frame<'a> {
    title: &'a str,
    policy: String,
    style: &'static str,
    script: &'static str,
    contents: String,
    blobs: Vec<(String, String)>,
}

impl Explorer<'_> {
    /// The page, with token pairs as fine as the budget allows.
    ///
    /// # Errors
    /// None but of the template and the compression, which have none for what is put into them.
    pub fn page(&self) -> Result<Page> {
        let mut heads: Vec<Vec<(HeadIndex, Blob)>> = Vec::new();
        let (mut thumbs, mut pooled) = (Vec::new(), 0);
        for model in &self.models {
            let mut blob = Blob::default();
            let parts: Vec<_> =
                model.found.sketches.values().map(|head| blob.add(&head.thumb)).collect::<Result<_>>()?;
            pooled += blob.bytes.len();
            thumbs.push((parts, blob));
            let mut of_model = Vec::new();
            for head in &model.found.details {
                let mut blob = Blob::default();
                let index = pack_pooled(&head.kept, &mut blob)?;
                pooled += blob.bytes.len();
                of_model.push((index, blob));
            }
            heads.push(of_model);
        }
        let words = serde_json::to_string(&self.prompts())?.len();
        // Base64 takes four bytes for three.
        let left = (self.budget.saturating_sub(RESERVED + words) / 4 * 3).saturating_sub(pooled);
        let all = self.models.iter().flat_map(|m| m.found.details.iter().map(|head| (&head.kept, &m.found.keep)));
        let floor = fitting_floor(&all.collect::<Vec<_>>(), left)?;
        for (model, heads) in self.models.iter().zip(&mut heads) {
            for (head, (index, blob)) in model.found.details.iter().zip(heads) {
                pack_pairs(&head.kept, &model.found.keep, floor, blob, index)?;
            }
        }
        Ok(Page { html: self.frame(&heads, &thumbs, floor)?, floor })
    }

    /// The prompts, each once, as the models have them.
    fn prompts(&self) -> Vec<&super::PromptFacts> {
        let mut prompts: Vec<&super::PromptFacts> = Vec::new();
        for prompt in self.models.iter().map(|model| &model.found.prompt) {
            if !prompts.contains(&prompt) {
                prompts.push(prompt);
            }
        }
        prompts
    }

    fn frame(
        &self,
        heads: &[Vec<(HeadIndex, Blob)>],
        thumbs: &[(Vec<(usize, usize)>, Blob)],
        floor: i8,
    ) -> Result<String> {
        let prompts = self.prompts();
        let mut blobs = Vec::new();
        let mut models = Vec::new();
        for (i, model) in self.models.iter().enumerate() {
            let (parts, blob) = &thumbs[i];
            blobs.push((format!("blob-{i}-thumbs"), STANDARD.encode(&blob.bytes)));
            for (j, (_, blob)) in heads[i].iter().enumerate() {
                blobs.push((format!("blob-{i}-{j}"), STANDARD.encode(&blob.bytes)));
            }
            models.push(model.contents(&prompts, parts, &heads[i]));
        }
        let (caption, recipe, finest) = (self.caption.as_str(), self.recipe.as_slice(), FINEST);
        let contents = Contents { caption, recipe, rows_per_part: ROWS, floor, finest, prompts, models };
        let frame = Frame {
            title: &self.title,
            policy: policy(),
            style: STYLE,
            script: SCRIPT,
            contents: script_json(&serde_json::to_string(&contents)?),
            blobs,
        };
        let text = frame.render().context("the explorer cannot be written as HTML")?;
        Ok(format!("{}\n", text.trim_end()))
    }
}

impl Explored<'_> {
    fn contents(
        &self,
        prompts: &[&super::PromptFacts],
        thumbs: &[(usize, usize)],
        heads: &[(HeadIndex, Blob)],
    ) -> Value {
        let found = self.found;
        let all = found.sketches.iter().zip(thumbs).map(|((&(layer, head), sketch), thumb)| {
            let numbers = self.numbers.get(&(layer, head));
            json!({ "layer": layer, "head": head, "sinks": sketch.sinks, "thumb": thumb, "numbers": numbers })
        });
        let details = found.details.iter().zip(heads).map(|(entrant, (index, _))| {
            let (layer, head) = entrant.at;
            json!({ "layer": layer, "head": head, "window": entrant.kept.window, "index": index })
        });
        json!({
            "name": self.name,
            "layout": self.layout,
            "maps": self.maps,
            "prompt": prompts.iter().position(|&prompt| *prompt == found.prompt),
            "keep": found.keep,
            "bin_tok": self.resolution.bin_tok,
            "thumb_bins": self.resolution.thumb_bins,
            "heads": all.collect::<Vec<_>>(),
            "details": details.collect::<Vec<_>>(),
        })
    }
}

/// JSON that can stand in a script element: nothing in it opens or closes one, or ends a line of JavaScript.
fn script_json(json: &str) -> String {
    let escaped = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    escaped.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// What the browser is to allow: our style and our script. Nothing is fetched, and no script that came in with a name or a
/// token would run even if it were not escaped.
fn policy() -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())));
    format!("default-src 'none'; style-src {}; script-src {}", hash(STYLE), hash(SCRIPT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_and_script_cannot_end_their_elements_and_fetch_nothing() {
        for word in
            ["</", "http:", "https:", "url(", "@import", "fetch", "XMLHttpRequest", "import(", "innerHTML", "eval"]
        {
            assert!(!STYLE.contains(word) && !SCRIPT.contains(word), "{word}");
        }
    }

    #[test]
    fn the_policy_lets_nothing_in_but_our_style_and_script() {
        let policy = policy();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert_eq!(policy.matches("'sha256-").count(), 2);
        assert!(!policy.contains("unsafe"));
    }

    #[test]
    fn hostile_text_is_harmless_json() {
        let text = "</script><!--<script>&\u{2028}\u{202e}\u{0}";
        let escaped = script_json(&serde_json::to_string(text).unwrap());
        assert!(!escaped.contains(['<', '>', '&', '\u{2028}', '\0']), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
    }
}
