//! The bar of a model that comes from the Hub.

use crate::hub::Transfer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on stderr for so many bytes; silent when stderr is not a terminal.
pub(super) fn bar(bytes: u64) -> Box<dyn Transfer> {
    let style = ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left: {msg}")
        .expect("a valid template");
    Box::new(Bar(ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr()).with_style(style)))
}

struct Bar(ProgressBar);

impl Transfer for Bar {
    fn file(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    fn bytes(&self, n: u64) {
        self.0.inc(n);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
