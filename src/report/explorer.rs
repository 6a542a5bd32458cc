//! An explorer of a run's maps, beside a report or in it.
//!
//! In a report it is the page that `difftool explore` wrote, deflated and as base64 in an element that no browser runs. When
//! its part of the report is opened for the first time, it becomes a frame without an origin, which may run scripts and
//! nothing else (`sandbox="allow-scripts"`): it sees nothing of the report, and leads nowhere. The report's content policy
//! holds for it too, and lets in the style and the script of this build's explorer by their hashes: a run folder may come from
//! anybody, and no script that stands in it runs. So a report with an explorer is one file that asks the network for nothing,
//! and what is not opened costs no more than its bytes. A page of another build is left out, and the report says so.

use crate::explore::page_hashes;
use crate::hash::sha256;
use anyhow::{ensure, Context, Result};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use flate2::write::DeflateEncoder;
use flate2::Compression;
use std::io::Write as _;
use std::path::Path;

/// How readers get to an explorer.
#[derive(Debug)]
pub(super) enum Explorer {
    /// By a link to its page.
    Linked(String),
    /// It is in the report.
    Included(Included),
    /// It is not: why.
    LeftOut(String),
}

/// An explorer's page.
#[derive(Debug)]
pub(super) struct Included {
    /// Deflated, as base64: about as long as the page, most of which is base64 itself.
    pub(super) text: String,
}

impl Included {
    /// Reads a page; nothing if it is not one that this build has written.
    ///
    /// # Errors
    /// If it cannot be read, or is not the file with this SHA-256 hash.
    pub(super) fn read(path: &Path, expected: &str) -> Result<Option<Self>> {
        let shown = path.display();
        let page = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
        ensure!(
            sha256(&page) == expected,
            "{shown} is not the file that the manifest beside it describes (its SHA-256 differs): it was changed after the run"
        );
        let text = std::str::from_utf8(&page).with_context(|| format!("{shown} is not UTF-8"))?;
        if !text.contains(&page_hashes().head()) {
            return Ok(None);
        }
        // Base64 holds 6 bits in 8: what deflating gains is what base64 loses again.
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        let deflated =
            encoder.write_all(&page).and_then(|()| encoder.finish()).context("an explorer cannot be deflated")?;
        Ok(Some(Self { text: STANDARD.encode(deflated) }))
    }

    /// Size that it adds to the report, in MB.
    pub(super) fn megabytes(&self) -> String {
        format!("{:.1}", self.text.len() as f64 / 1e6)
    }
}
