//! Sandbox for chat templates: a separate process with limits set by the operating system.
//!
//! A template is an untrusted program: it may loop, double a string, sort a list or print a recursive value. So the
//! binary starts itself again for each template, in a process with limited time, memory and output. If it is killed, the
//! result is an error.

use super::jinja::{render, TemplateError, TemplateJob};
use anyhow::{bail, Context, Result};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;

/// The only argument of a rendering process.
const ARGUMENT: &str = "render-chat-template-from-stdin";

/// Processor time limit of a template, in seconds; usual templates take a millisecond.
pub const TIME_S: u64 = 5;

/// Memory limit of a template, in bytes.
pub const MEMORY_BYTES: u64 = 512 << 20;

/// Size limit of the result as JSON, in bytes; usual ones have a few hundred.
const ANSWER_BYTES: u64 = 8 << 20;

/// Stack size of the rendering thread, in bytes, where no process is started.
const STACK_BYTES: usize = 256 << 20;

/// The program to start; unset in other programs that use this library, which render in a thread.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Renders a template and returns its exit code if this process was started for that. Otherwise registers this program
/// as the one to start. Must be called first in `main`.
pub fn serve() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_none_or(|first| first != ARGUMENT) || args.next().is_some() {
        if let Ok(program) = std::env::current_exe() {
            let _ = PROGRAM.set(program);
        }
        return None;
    }
    apply_limits();
    let mut job = Vec::new();
    let answered = std::io::stdin().read_to_end(&mut job).is_ok_and(|_| {
        serde_json::from_slice::<TemplateJob>(&job)
            .is_ok_and(|job| serde_json::to_writer(std::io::stdout().lock(), &render(&job)).is_ok())
    });
    Some(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Renders a template within the limits.
///
/// # Errors
/// The outer result is an error if a limit was exceeded, the inner one if the template was refused.
pub(super) fn render_bounded(job: &TemplateJob) -> Result<Result<String, TemplateError>> {
    match PROGRAM.get() {
        Some(program) => render_in_process(program, job),
        None => render_in_thread(job.clone()),
    }
}

fn render_in_process(program: &PathBuf, job: &TemplateJob) -> Result<Result<String, TemplateError>> {
    let mut child = Command::new(program)
        .arg(ARGUMENT)
        // mimalloc would reserve a gigabyte at once, which counts against the limit.
        .env("MIMALLOC_ARENA_RESERVE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the process that renders chat templates")?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    if let Some(mut stdin) = stdin {
        // If the process ended before reading everything, its exit status tells why.
        let _ = stdin.write_all(&serde_json::to_vec(job)?);
    }
    let mut answer = Vec::new();
    if let Some(stdout) = stdout {
        let _ = stdout.take(ANSWER_BYTES).read_to_end(&mut answer);
    }
    let status = child.wait().context("cannot wait for the process that renders chat templates")?;
    if answer.len() as u64 == ANSWER_BYTES {
        bail!("the template writes more than {} MiB", ANSWER_BYTES >> 20);
    }
    if !status.success() {
        bail!("the template {}", failure_reason(status));
    }
    serde_json::from_slice(&answer).context("the process that renders chat templates returned nothing")
}

/// Reason for a failure of rendering, from the exit status of the process.
#[cfg(unix)]
fn failure_reason(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status.signal() {
        Some(libc::SIGXCPU | libc::SIGKILL) => format!("takes longer than {TIME_S} s"),
        Some(libc::SIGABRT | libc::SIGSEGV | libc::SIGBUS) => {
            format!("takes more than {} MiB of memory, or nests too deeply", MEMORY_BYTES >> 20)
        }
        _ => "makes the Jinja library fail".to_owned(),
    }
}

#[cfg(not(unix))]
fn failure_reason(_status: ExitStatus) -> String {
    "exceeds its limits".to_owned()
}

/// Applies the limits of a template to this process.
#[cfg(unix)]
#[expect(unsafe_code, reason = "limits of a process are set by the system")]
fn apply_limits() {
    let memory = base::memory::virtual_bytes().unwrap_or(0) + MEMORY_BYTES;
    for (resource, rlim_cur, rlim_max) in
        [(libc::RLIMIT_CPU, TIME_S, TIME_S + 1), (libc::RLIMIT_CORE, 0, 0), (libc::RLIMIT_AS, memory, memory)]
    {
        // SAFETY: reads a struct that lives on this stack.
        unsafe { libc::setrlimit(resource, &libc::rlimit { rlim_cur, rlim_max }) };
    }
}

#[cfg(not(unix))]
fn apply_limits() {}

/// Renders in a thread with a stack for deeply nested templates. Panics are caught.
fn render_in_thread(job: TemplateJob) -> Result<Result<String, TemplateError>> {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || render(&job));
    let thread = thread.context("cannot start the thread that renders chat templates")?;
    thread.join().map_err(|_| anyhow::anyhow!("the template makes the Jinja library fail"))
}
