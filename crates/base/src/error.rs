//! Error types, and the exit codes of the process.
//!
//! The library returns [`anyhow::Error`]. An error in the request is a [`Usage`] (exit code 2); everything else that
//! fails has exit code 1. Messages say what is wrong, where, and what to do.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// An error in the request: a flag, a spec or an experiment file. The process exits with 2.
#[derive(Debug)]
pub struct Usage(pub String);

/// A context length too short for a prompt: an error in the request, like [`Usage`], that callers can also handle by
/// skipping the prompt.
#[derive(Debug)]
pub struct TooShort(pub String);

/// More memory is needed than is free: an error in the request, like [`Usage`], that another machine, or the same one later, would
/// not make.
#[derive(Debug)]
pub struct NoRoom(pub String);

/// The run succeeded, but its results do not meet an expectation. The process exits with 3.
#[derive(Debug)]
pub struct ExpectationFailed(pub String);

/// Implements [`std::error::Error`] for types that hold a message.
macro_rules! messages {
    ($($error:ident)*) => {$(
        impl std::fmt::Display for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::error::Error for $error {}
    )*};
}

messages!(Usage TooShort NoRoom ExpectationFailed);

/// Returns early with a [`Usage`](crate::error::Usage) error, formatted as by `anyhow::bail!`.
#[macro_export]
macro_rules! bail_usage {
    ($($arg:tt)*) => { return Err(anyhow::Error::new($crate::error::Usage(format!($($arg)*)))) };
}

/// The exit code for an error: 2 for [`Usage`], [`TooShort`] or [`NoRoom`] anywhere in its chain, 3 for
/// [`ExpectationFailed`], 1 otherwise.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if is_usage(error) {
        2
    } else if error.chain().any(|cause| cause.is::<ExpectationFailed>()) {
        3
    } else {
        1
    }
}

/// Returns `true` if a request is in error, rather than what came of it.
pub fn is_usage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Usage>() || cause.is::<TooShort>() || cause.is::<NoRoom>())
}

/// Returns `true` if it is the machine that has no room for a request.
pub fn is_of_machine(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<NoRoom>())
}

/// Ignores a broken pipe, so that the caller continues although the reader of stdout has gone.
pub fn unless_broken_pipe(printed: anyhow::Result<()>) -> anyhow::Result<()> {
    printed.or_else(|error| if is_broken_pipe(&error) { Ok(()) } else { Err(error) })
}

/// Returns `true` if an error is that of a closed pipe, as of stdout into `head`.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

thread_local! {
    /// `true` while a panic of this thread will be converted to an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` of a library, and converts its panics to errors. Some libraries panic on malformed files: tokenizers when
/// parsing and encoding, candle on GGUF files.
pub fn guarded<T, E>(library: &str, work: impl FnOnce() -> Result<T, E>) -> anyhow::Result<T>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    silence_guarded_panics();
    let before = GUARDED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    match done {
        Ok(done) => done.map_err(|error| anyhow::anyhow!(error.into())),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(anyhow::anyhow!("the {library} library failed on it ({text})"))
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
