//! Conversion of library panics to errors. Some libraries panic on malformed files: tokenizers when parsing and
//! encoding, candle on GGUF files.

use anyhow::{anyhow, Result};
use std::cell::Cell;
use std::error::Error;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread will be converted to an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` of a library, and converts its panics to errors.
pub(crate) fn guarded<T, E>(library: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    silence_guarded_panics();
    let before = GUARDED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    match done {
        Ok(done) => done.map_err(|error| anyhow!(error.into())),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(anyhow!("the {library} library failed on it ({text})"))
        }
    }
}

/// Silences the panic hook for guarded panics.
fn silence_guarded_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                others(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let run = |work: fn() -> Result<u8, String>| guarded("tokenizers", work).map_err(|error| error.to_string());
        let failed = run(|| panic!("index {} out of range", 7));
        assert_eq!(failed.unwrap_err(), "the tokenizers library failed on it (index 7 out of range)");
        assert_eq!(run(|| Ok(5)), Ok(5));
        assert_eq!(run(|| Err("no".into())).unwrap_err(), "no");
    }
}
