//! Errors are for people: what is wrong, where, and what to do.
//!
//! The library passes [`anyhow::Error`] about. The one distinction that matters outside is whether the *request* was
//! wrong (exit code 2) or something failed while carrying it out (exit code 1): a request error is a [`Usage`].

/// A mistake in the request: a flag, a spec or an experiment file. The process exits with 2.
#[derive(Debug)]
pub struct Usage(pub String);

/// A prompt that a context has no room for: a mistake in the request, as [`Usage`] is, but for those who can leave it out.
#[derive(Debug)]
pub struct TooShort(pub String);

/// Everything worked, but the results are not what they have to be, by what was expected of them. The process exits
/// with 3.
#[derive(Debug)]
pub struct Unmet(pub String);

/// Errors that are nothing but their message.
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

messages!(Usage TooShort Unmet);

/// Returns early with a [`Usage`] error, formatted like `anyhow::bail!`.
#[macro_export]
macro_rules! bail_usage {
    ($($arg:tt)*) => { return Err(anyhow::Error::new($crate::error::Usage(format!($($arg)*)))) };
}

/// The process's exit code for an error: 2 for [`Usage`] or [`TooShort`] anywhere in the chain, 3 for [`Unmet`], 1 otherwise.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<Usage>() || cause.is::<TooShort>()) {
        2
    } else if error.chain().any(|cause| cause.is::<Unmet>()) {
        3
    } else {
        1
    }
}

/// What printing came to, where a reader who has read enough is no reason to stop: what comes after it still counts.
///
/// # Errors
/// Those that are no broken pipe.
pub fn unless_broken_pipe(printed: anyhow::Result<()>) -> anyhow::Result<()> {
    printed.or_else(|error| if is_broken_pipe(&error) { Ok(()) } else { Err(error) })
}

/// Whether the reader of stdout has gone away, as `head` does: not an error of ours.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
