//! Error types, and the exit codes of the process.
//!
//! The library returns [`anyhow::Error`]. An error in the request is a [`Usage`] (exit code 2); everything else that
//! fails has exit code 1. Messages say what is wrong, where, and what to do.

/// An error in the request: a flag, a spec or an experiment file. The process exits with 2.
#[derive(Debug)]
pub struct Usage(pub String);

/// A context length too short for a prompt: an error in the request, like [`Usage`], that callers can also handle by
/// skipping the prompt.
#[derive(Debug)]
pub struct TooShort(pub String);

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

messages!(Usage TooShort ExpectationFailed);

/// Returns early with a [`Usage`](crate::base::error::Usage) error, formatted as by `anyhow::bail!`.
#[macro_export]
macro_rules! bail_usage {
    ($($arg:tt)*) => { return Err(anyhow::Error::new($crate::base::error::Usage(format!($($arg)*)))) };
}

/// Returns the exit code for an error: 2 for [`Usage`] or [`TooShort`] anywhere in its chain, 3 for
/// [`ExpectationFailed`], 1 otherwise.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<Usage>() || cause.is::<TooShort>()) {
        2
    } else if error.chain().any(|cause| cause.is::<ExpectationFailed>()) {
        3
    } else {
        1
    }
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
