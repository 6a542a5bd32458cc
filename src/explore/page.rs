//! The page: all data in one HTML file without external resources.

use super::detail::PooledQuantity;
use super::measure::{ModelMaps, PromptFacts};
use super::numbers::numbers;
use super::pack::{fitting_floor, pack_pairs, pack_pooled, HeadIndex, StoredHead, ROWS};
use super::probe::{Resolution, FINEST};
use crate::html::{self, PageCode};
use crate::measures::{Pooling, RowQuantity};
use anyhow::Result;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use minijinja::context;
use names::{HeadPlace, Region};
use plot::{region_colours, RegionColours};
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The style, with the colours of regions, which are those of figures.
static STYLE: LazyLock<String> = LazyLock::new(|| {
    let mut style = include_str!("style.css").to_owned();
    for region in Region::ALL {
        let RegionColours { ground, ink } = region_colours(region.name());
        style += &format!(".mark.{} {{ background: {ground}; color: {ink}; }}\n", region.name());
    }
    style
});

/// The script, in the order of dependencies.
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("data.js"),
    include_str!("colour.js"),
    include_str!("tiles.js"),
    include_str!("map.js"),
    include_str!("view.js"),
    include_str!("row.js"),
    include_str!("find.js"),
    include_str!("treatment.js"),
    include_str!("overview.js"),
    include_str!("main.js"),
);

/// Style and script of the page.
pub(crate) fn code() -> PageCode {
    PageCode { style: &STYLE, script: SCRIPT }
}

/// Opens an element with data. The script of the page has no type.
const DATA: &str = "\n<script type=\"";

/// Returns `true` if a page is one of this build: besides its title and its data, a report takes nothing from a file that somebody
/// may have changed.
pub(crate) fn is_own(page: &str) -> Result<bool> {
    let own = PageData { texts: vec![ElementText::default()], ..PageData::default() }.html()?;
    let frame = without_data(page);
    Ok(frame.is_some() && frame == without_data(&own))
}

/// The pieces of a page around its title and its data, which are the same for every page of a build; `None` if title or data are
/// not plain text, and could hold elements of their own.
fn without_data(page: &str) -> Option<Vec<&str>> {
    let (head, rest) = page.split_once("<title>")?;
    let (title, body) = rest.split_once("</title>")?;
    let (before, after) = body.split_once(&format!("<bdi>{title}</bdi>"))?;
    let mut elements = after.split(DATA);
    let mut frame = vec![head, before, elements.next()?];
    for element in elements {
        let (opening, rest) = element.split_once('>')?;
        let (text, rest) = rest.split_once("</script>")?;
        let (kind, id) = opening.strip_suffix('"')?.split_once("\" id=\"")?;
        let is_base64 = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        let is_data = (kind == "text/plain" && is_base64) || (kind == "application/json" && !text.contains('<'));
        if !is_data || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return None;
        }
        frame.extend((!rest.is_empty()).then_some(rest)); // between data, there is nothing
    }
    (!title.contains('<')).then_some(frame)
}

/// Share of the budget for style, script and the numbers of heads, in bytes.
const RESERVED: usize = 200_000;

/// One model under one condition.
pub(crate) struct ExplorerModel<'a> {
    pub(crate) name: &'a str,
    /// Name of the condition; `None` for the untreated pass, which comes first for each model.
    pub(crate) condition: Option<String>,
    /// Description of the attention.
    pub(crate) layout: &'a str,
    /// Number of softmax maps per head: 1 or 2.
    pub(crate) maps_per_head: usize,
    pub(crate) resolution: Resolution,
    pub(crate) maps: &'a ModelMaps,
    /// Numbers of every head by name.
    pub(crate) numbers: BTreeMap<HeadPlace, BTreeMap<String, f64>>,
    /// Scores of the answer by name.
    pub(crate) answers: BTreeMap<String, f64>,
}

/// Contents of the page.
pub(crate) struct ExplorerPage<'a> {
    pub(crate) title: String,
    pub(crate) caption: String,
    /// Names and values of the settings.
    pub(crate) recipe: Vec<(String, String)>,
    pub(crate) models: Vec<ExplorerModel<'a>>,
    /// Intended maximum size of the page, in bytes.
    pub(crate) budget: usize,
}

/// Id of an element and its text.
type ElementText = (String, String);

/// Contents of one page, encoded as the texts of its elements.
#[derive(Default)]
struct PageData {
    title: String,
    /// JSON of everything but the texts of tokens.
    contents: String,
    /// Bytes that are displayed first, as base64.
    first: Vec<ElementText>,
    /// JSON of the texts of tokens.
    texts: Vec<ElementText>,
    /// The other bytes, as base64.
    later: Vec<ElementText>,
}

impl PageData {
    fn html(self) -> Result<String> {
        let values = context! {
            head => html::head(&self.title, &code(), None),
            script => SCRIPT,
            contents => self.contents,
            // Blobs displayed first come before the script, so that it can start before the rest of the file is loaded.
            first => self.first,
            texts => self.texts,
            later => self.later,
        };
        let text = html::render("explore.html", include_str!("explore.html"), values)?;
        Ok(format!("{}\n", text.trim_end()))
    }
}

/// A model as bytes. What is displayed first is not compressed, because decompression would delay the first display.
struct PackedModel {
    /// The small maps of all heads, concatenated. All have the same size.
    thumbs: Vec<u8>,
    /// The pooled mixture map of the head that is shown first.
    first: Vec<u8>,
    heads: Vec<PackedHead>,
}

/// A detailed head as bytes.
struct PackedHead {
    index: HeadIndex,
    pooled: Vec<u8>,
    pairs: Vec<u8>,
}

impl PackedModel {
    /// Compresses everything except pairs.
    fn pooled(maps: &ModelMaps) -> Result<Self> {
        let mut heads = Vec::new();
        for head in &maps.details {
            let mut pooled = Vec::new();
            let index = pack_pooled(&head.kept, &mut pooled)?;
            heads.push(PackedHead { index, pooled, pairs: Vec::new() });
        }
        let thumbs = maps.sketches.values().flat_map(|head| head.thumb.iter().copied()).collect();
        let wanted = (PooledQuantity::Of(RowQuantity::Effective), Pooling::Max);
        let mut grids = maps.details.iter().take(1).flat_map(|head| &head.kept.pooled);
        let first = grids.find(|(pooled, pooling, _)| (*pooled, *pooling) == wanted);
        let first = first.map(|(.., bytes)| bytes.clone()).unwrap_or_default();
        Ok(Self { thumbs, first, heads })
    }

    fn bytes(&self) -> usize {
        let heads = self.heads.iter().map(|head| head.pooled.len());
        self.thumbs.len() + self.first.len() + heads.sum::<usize>()
    }
}

impl ExplorerPage<'_> {
    /// The page as text, with the finest steps that fit the budget.
    pub(crate) fn html(&self) -> Result<String> {
        let models = self.models.iter();
        let mut packed: Vec<PackedModel> =
            models.map(|model| PackedModel::pooled(model.maps)).collect::<Result<_>>()?;
        let pooled: usize = packed.iter().map(PackedModel::bytes).sum();
        let words: usize = self.texts()?.iter().map(|(_, text)| text.len()).sum();
        // Base64 encodes three bytes as four.
        let left = (self.budget.saturating_sub(RESERVED + words) / 4 * 3).saturating_sub(pooled);
        let mut heads = Vec::new();
        for ModelMaps { details, keep, .. } in self.models.iter().map(|model| model.maps) {
            heads.extend(details.iter().map(|head| StoredHead { detail: &head.kept, keep }));
        }
        let floor = fitting_floor(&heads, left)?;
        for (head, packed) in heads.into_iter().zip(packed.iter_mut().flat_map(|model| &mut model.heads)) {
            pack_pairs(head, floor, &mut packed.pairs, &mut packed.index)?;
        }
        self.frame(&packed, floor)
    }

    /// The different prompts of the models.
    fn prompts(&self) -> Vec<&PromptFacts> {
        let mut prompts: Vec<&PromptFacts> = Vec::new();
        for prompt in self.models.iter().map(|model| &model.maps.prompt) {
            if !prompts.contains(&prompt) {
                prompts.push(prompt);
            }
        }
        prompts
    }

    /// The token texts of each prompt, as JSON.
    fn texts(&self) -> Result<Vec<ElementText>> {
        let mut texts = Vec::new();
        for (i, prompt) in self.prompts().into_iter().enumerate() {
            texts.push((format!("texts-{i}"), script_json(&serde_json::to_string(&prompt.texts)?)));
        }
        Ok(texts)
    }

    fn frame(&self, packed: &[PackedModel], floor: i8) -> Result<String> {
        let prompts = self.prompts();
        let mut first = Vec::new();
        let mut later = Vec::new();
        let mut models = Vec::new();
        for (i, (model, packed)) in self.models.iter().zip(packed).enumerate() {
            if model.condition.is_none() {
                first.push(named(format!("thumbs-{i}"), &packed.thumbs));
                first.push(named(format!("first-{i}"), &packed.first));
            }
            for (j, head) in packed.heads.iter().enumerate() {
                later.push(named(format!("blob-{i}-{j}"), &head.pooled));
                later.push(named(format!("pairs-{i}-{j}"), &head.pairs));
            }
            models.push(model.contents(&prompts, packed));
        }
        let contents = json!({
            "title": self.title,
            "caption": self.caption,
            "recipe": self.recipe,
            "rows_per_part": ROWS,
            "floor": floor,
            "finest": FINEST,
            "prompts": prompts,
            "models": models,
            "numbers": numbers(),
        });
        let contents = script_json(&contents.to_string());
        PageData { title: self.title.clone(), contents, first, texts: self.texts()?, later }.html()
    }
}

fn named(id: String, bytes: &[u8]) -> ElementText {
    (id, STANDARD.encode(bytes))
}

impl ExplorerModel<'_> {
    fn contents(&self, prompts: &[&PromptFacts], packed: &PackedModel) -> Value {
        let maps = self.maps;
        let mut heads = Vec::new();
        for (at, sketch) in &maps.sketches {
            heads.push(json!({ "layer": at.layer, "head": at.head, "sinks": sketch.sinks }));
        }
        let mut details = Vec::new();
        for (candidate, packed) in maps.details.iter().zip(&packed.heads) {
            let HeadPlace { layer, head } = candidate.at;
            let window = candidate.kept.window;
            details.push(json!({ "layer": layer, "head": head, "window": window, "index": packed.index }));
        }
        let mut numbers = Map::new();
        for (at, of_head) in &self.numbers {
            numbers.insert(at.to_string(), json!(of_head));
        }
        json!({
            "name": self.name,
            "condition": self.condition,
            "answers": self.answers,
            "numbers": numbers,
            "layout": self.layout,
            "maps": self.maps_per_head,
            "prompt": prompts.iter().position(|&prompt| *prompt == maps.prompt),
            "keep": maps.keep,
            "bin_tok": self.resolution.bin_tok,
            "thumb_tok": self.resolution.thumb_tok,
            "heads": heads,
            "details": details,
        })
    }
}

/// Escapes JSON for use in a script element: nothing in it opens or closes an element, or ends a line of JavaScript.
fn script_json(json: &str) -> String {
    let escaped = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    escaped.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_and_script_cannot_end_their_elements_and_fetch_nothing() {
        html::assert_harmless(&[&STYLE, SCRIPT]);
    }

    #[test]
    fn a_report_holds_a_page_as_it_is_and_no_page_whose_parts_are_others_or_elsewhere() {
        let blob = |id: &str| named(id.to_owned(), b"bytes");
        let texts = vec![("texts-0".to_owned(), "[]".to_owned())];
        let first = vec![blob("first-0")];
        let later = vec![blob("blob-0-0")];
        let page =
            PageData { title: "a <b>".to_owned(), contents: "{}".to_owned(), first, texts, later }.html().unwrap();
        assert!(is_own(&page).unwrap());
        let title = "<title>a &lt;b&gt;</title>";
        for (place, forged) in [
            ("\"texts-0\">[]", "\"texts-0\"><!--"),
            ("id=\"blob-0-0\"", "id=\"blob-0-0\" src=\"x\""),
            ("<main>", "<main><p>"),
            ("<main>", "<main>\n<script type=\"text/plain\" id=\"x\">AAAA</script>"),
            ("default-src", &format!("{title}default-src")),
        ] {
            assert!(page.contains(place) && page.contains(title), "{place}");
            let moved = page.replacen(place, forged, 1);
            assert!(!is_own(&moved).unwrap(), "{forged}");
        }
    }

    #[test]
    fn hostile_text_is_harmless_json() {
        let text = "</script><!--<script>&\u{2028}\u{202e}\u{0}";
        let escaped = script_json(&serde_json::to_string(text).unwrap());
        assert!(!escaped.contains(['<', '>', '&', '\u{2028}', '\0']), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
    }
}
