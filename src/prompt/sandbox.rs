//! Where chat templates are rendered: in a process of their own, under limits of the system.
//!
//! A template is a program from a stranger. Jinja's own limit counts instructions, and one instruction may double a string,
//! sort a list or print a value that holds itself. So the binary starts itself once more for every template: that process
//! has bounded time, memory and output, and whatever kills it is an error here.

use super::jinja::{render, Job, Refused, OUTPUT_BYTES};
use anyhow::{bail, Context, Result};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;

/// The one argument of a process that renders.
const ARGUMENT: &str = "render-chat-template-from-stdin";

/// Processor time that a template may take, in seconds; ours take a millisecond.
pub const TIME_S: u64 = 5;

/// Memory that a template may take, in bytes.
pub const MEMORY_BYTES: u64 = 512 << 20;

/// Bytes of an answer: every byte of the output may become an escape of six.
const ANSWER_BYTES: u64 = 8 * OUTPUT_BYTES as u64;

/// The stack that a template gets where there is no process for it, in bytes.
const STACK_BYTES: usize = 256 << 20;

/// The program that renders; nothing in programs that use the library, which render in a thread.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// To be called first in `main` of the binary: renders, if that is what this process was started for, and otherwise makes
/// this program the one that renders.
pub fn serve() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_none_or(|first| first != ARGUMENT) || args.next().is_some() {
        if let Ok(program) = std::env::current_exe() {
            let _ = PROGRAM.set(program);
        }
        return None;
    }
    limit();
    let mut job = Vec::new();
    let answered = std::io::stdin().read_to_end(&mut job).is_ok_and(|_| {
        serde_json::from_slice::<Job>(&job)
            .is_ok_and(|job| serde_json::to_writer(std::io::stdout().lock(), &render(&job)).is_ok())
    });
    Some(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Renders a template, whatever it does.
///
/// # Errors
/// What the template is refused for, or which limit it went beyond.
pub(super) fn render_bounded(job: &Job) -> Result<Result<String, Refused>> {
    match PROGRAM.get() {
        Some(program) => render_in_process(program, job),
        None => render_in_thread(job.clone()),
    }
}

fn render_in_process(program: &PathBuf, job: &Job) -> Result<Result<String, Refused>> {
    let mut child = Command::new(program)
        .arg(ARGUMENT)
        // mimalloc would reserve a gigabyte at once, which counts.
        .env("MIMALLOC_ARENA_RESERVE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the process that renders chat templates")?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    if let Some(mut stdin) = stdin {
        // If it ended before it has read everything, its status says why.
        let _ = stdin.write_all(&serde_json::to_vec(job)?);
    }
    let mut answer = Vec::new();
    if let Some(stdout) = stdout {
        let _ = stdout.take(ANSWER_BYTES).read_to_end(&mut answer);
    }
    let status = child.wait().context("cannot wait for the process that renders chat templates")?;
    if !status.success() {
        bail!("the template {}", why(status));
    }
    serde_json::from_slice(&answer).context("the process that renders chat templates gave no answer")
}

/// What a template did if rendering it ended like this.
#[cfg(unix)]
fn why(status: ExitStatus) -> String {
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
fn why(_status: ExitStatus) -> String {
    "goes beyond what it may take".to_owned()
}

/// Gives this process as much as a template may have.
#[cfg(unix)]
#[expect(unsafe_code, reason = "limits of a process are set by the system")]
fn limit() {
    let set = |resource, soft: u64, hard: u64| {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: reads a struct that lives on this stack.
        unsafe { libc::setrlimit(resource, &limit) };
    };
    set(libc::RLIMIT_CPU, TIME_S, TIME_S + 1);
    set(libc::RLIMIT_CORE, 0, 0);
    let memory = crate::memory::virtual_bytes().unwrap_or(0) + MEMORY_BYTES;
    set(libc::RLIMIT_AS, memory, memory);
}

#[cfg(not(unix))]
fn limit() {}

/// In a thread with a stack for deep templates; steps and output are bounded, and panics are caught.
fn render_in_thread(job: Job) -> Result<Result<String, Refused>> {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || render(&job));
    let thread = thread.context("cannot start the thread that renders chat templates")?;
    thread.join().map_err(|_| anyhow::anyhow!("the template makes the Jinja library fail"))
}
