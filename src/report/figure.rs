//! A figure of a run, ready to be embedded.

use crate::tables::Sheet;
use anyhow::{Context, Result};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use std::io::Cursor;
use std::path::Path;

/// A PNG file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// Its name in the run folder.
    pub(super) file: String,
    /// Pixels across and down.
    pub(super) width: u32,
    pub(super) height: u32,
    /// How its numbers were pooled, if its recipe says so.
    pub(super) pooling: Option<String>,
    /// `data:image/png;base64,…`.
    pub(super) uri: String,
}

/// What the figures of the commands show, by the beginning of their names, and the tables that have the numbers.
const SHOWN: [(&str, &str, &[&str]); 10] = [
    ("accuracy", "Needles found, in percent, by depth of the answer and number of needles", &["accuracy", "depth"]),
    (
        "allocation",
        "Shares of the heads' output, and of their weights, by region of the prompt and depth",
        &["attention", "depth"],
    ),
    ("heads-out", "What is left when heads are taken out, the best ones and random ones", &["heads-out"]),
    ("heads", "A grid of all layers and heads, coloured by what they are for", &["heads", "roles"]),
    (
        "heatmap",
        "Attention maps: queries from top to bottom, keys from left to right, brighter where the weight is larger",
        &[],
    ),
    ("bits", "Accuracy and what else is left, by bits of the attention logits", &["accuracy", "fidelity"]),
    ("ccdf", "How often a logit or hidden state is larger than a size, on logarithmic axes", &["outliers"]),
    ("nll", "Mean negative log-likelihood by position in the text", &["nll"]),
    ("curves", "Loss by training step", &[]),
    (
        "conditions",
        "What each treatment costs: differences to the untreated passes with their intervals",
        &["conditions"],
    ),
];

impl Figure {
    /// What is seen, of which models, and where the numbers are.
    pub(super) fn alt(&self, models: &[&str], sheets: &[Sheet]) -> String {
        let found = SHOWN.iter().find(|(name, ..)| self.file.starts_with(name));
        let (shown, tables) = found.map_or(("Figure", &[][..]), |(_, shown, tables)| (shown, tables));
        let of = if models.is_empty() { String::new() } else { format!(", for {}", models.join(" and ")) };
        let pooled = self.pooling.as_ref().map(|pooling| format!(" ({pooling})")).unwrap_or_default();
        let there: Vec<&str> =
            sheets.iter().filter(|sheet| tables.contains(&sheet.id)).map(|sheet| sheet.title).collect();
        let numbers = match there.as_slice() {
            [] => String::new(),
            [one] => format!(" The numbers are in the table {one}."),
            several => format!(" The numbers are in the tables {}.", several.join(", ")),
        };
        format!("{shown}{of}{pooled}.{numbers}")
    }

    /// Reads a PNG and the recipe that it carries.
    pub(super) fn read(path: &Path, file: &str) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let broken = || format!("{} is not a PNG that can be read", path.display());
        let reader = png::Decoder::new(Cursor::new(&bytes)).read_info().with_context(broken)?;
        let info = reader.info();
        let pooling = info.utf8_text.iter().find(|chunk| chunk.keyword == "pooling");
        Ok(Self {
            file: file.to_owned(),
            width: info.width,
            height: info.height,
            pooling: pooling.map(|chunk| chunk.get_text()).transpose().with_context(broken)?,
            uri: format!("data:image/png;base64,{}", STANDARD.encode(&bytes)),
        })
    }
}
