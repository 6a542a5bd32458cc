//! Progress bar of a download from the Hub.

use crate::hub::Transfer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Returns a progress bar on stderr for `bytes` bytes; hidden if stderr is not a terminal.
pub(super) fn bar(bytes: u64) -> Box<dyn Transfer> {
    let style = ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left: {msg}")
        .expect("a valid template");
    Box::new(DownloadBar(ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr()).with_style(style)))
}

struct DownloadBar(ProgressBar);

impl Transfer for DownloadBar {
    fn file(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    fn bytes(&self, n: u64) {
        self.0.inc(n);
    }
}

impl Drop for DownloadBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
