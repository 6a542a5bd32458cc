//! All integration tests, one program: linking costs more than running most of them.
//!
//! Where a thing is tested, by the commands and the parts of the program:
//!
//! | command | files |
//! |---|---|
//! | all that measure | `measuring` (and `ratio`, `heads`), `screens` (what is printed), `refusals` (what is refused) |
//! | `needle` | `needle`, `needle_languages`, `generate` (`--generate`), `texts` (haystacks, files of needles) |
//! | `context`, `shots`, `claims`, `nll` | `context`, `shots`, `claims`, `nll` |
//! | `heatmap`, `explore` | `heatmap`, `explore` |
//! | `quantize`, `ablate` | `quantize`, `treatments`, `patching` |
//! | `outliers` | `outliers` |
//! | `run`, `merge` | `resume` |
//! | `compare` | `compare` (and `properties` in it), `compare_replicates`, `compare_tables` |
//! | `report`, `show` | `report` (and `explorers` in it), `measuring` |
//! | `inspect` | `folders`, `models`, `screens` |
//! | `prompt` | `prompt` |
//! | `train` | `train` (and `starts` in it), `train_seeds`, `specs` (the specs that come with it), `files` (signals, full disks) |
//! | `completions`, `man` | `terminal`, `package` |
//!
//! | part | files |
//! |---|---|
//! | attention | `attention` against `dense`, its reference; `variants` (formulas), `layouts` (original layers), `gradients`, `quantize` |
//! | whole models | `families` (against `transformers`), `built_in`, `devices`, `real_models` |
//! | passes of models | `generate` (decoding), `prefixes` (shared), `treatments`, `patching` |
//! | numbers | `closed_form` (weights set by hand), `contribution`, `attribution`, `agreement`, `context`, `metrics` (their catalogue) |
//! | models as they are found | `folders`, `models` (names), `configurations`, `tokenizers`, `gguf`, `gguf_fields`, `hub` |
//! | what strangers wrote | `trust` (configurations, numbers, templates, memory, fuzzing), `tokenizers`, `texts` |
//! | runs on disk | `resume`, `files`, `library` (a run as a call) |
//! | the terminal | `terminal`, `screens`, `refusals` |
//! | figures and pages | `figures`, `heatmap`, `report`, `explore` |
//! | what is shipped | `docs`, `package`, `python`, `specs` |
//!
//! `common` has what they share: tiny models, and `Scratch`, a folder to run the binary in.

mod agreement;
mod attention;
mod attribution;
mod built_in;
mod claims;
mod closed_form;
mod common;
mod compare;
mod compare_replicates;
mod compare_tables;
mod configurations;
mod context;
mod contribution;
mod dense;
mod devices;
mod docs;
mod explore;
mod families;
mod figures;
mod files;
mod folders;
mod generate;
mod gguf;
mod gguf_fields;
mod gradients;
mod heatmap;
#[cfg(feature = "hub")]
mod hub;
mod layouts;
mod library;
mod measuring;
mod metrics;
mod models;
mod needle;
mod needle_languages;
mod nll;
mod outliers;
mod package;
mod patching;
mod prefixes;
mod prompt;
mod python;
mod quantize;
mod real_models;
mod refusals;
mod report;
mod resume;
mod screens;
mod shots;
mod specs;
mod terminal;
mod texts;
mod tokenizers;
mod train;
mod train_seeds;
mod treatments;
mod trust;
mod variants;
