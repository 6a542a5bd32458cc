//! Memory of this process and this machine, as Linux tells it; nothing on other systems.

use crate::bail_usage;
use anyhow::Result;
use rayon::prelude::*;
use std::path::Path;

/// The most memory this process has held so far, in bytes (`VmHWM`).
pub fn peak_rss_bytes() -> Option<u64> {
    field_bytes("/proc/self/status", "VmHWM:")
}

/// The addresses this process has taken, in bytes (`VmSize`).
pub fn virtual_bytes() -> Option<u64> {
    field_bytes("/proc/self/status", "VmSize:")
}

/// The memory this process holds now, in bytes (`VmRSS`).
pub fn rss_bytes() -> Option<u64> {
    field_bytes("/proc/self/status", "VmRSS:")
}

/// Memory that can be had without swapping, in bytes: `MemAvailable`, or what a control group (of a container, a SLURM or a
/// Kubernetes job) or a limit of this process (`ulimit -v`, `ulimit -d`) leaves, if that is less.
pub fn available_bytes() -> Option<u64> {
    let machine = field_bytes("/proc/meminfo", "MemAvailable:");
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    machine.into_iter().chain(groups_bytes()).chain(limits_bytes(&limits, &status)).min()
}

/// Refuses what takes more bytes than are free: `takes` says what takes how much, `change` what to do about it.
///
/// # Errors
/// A usage error with the numbers.
pub(crate) fn check_fits(needed: u64, takes: impl FnOnce() -> String, change: &str) -> Result<()> {
    match available_bytes().filter(|&available| needed > available) {
        Some(available) => bail_usage!("{}, {} are free; {change}", takes(), gib(available)),
        None => Ok(()),
    }
}

/// `1.5 GiB`.
pub(crate) fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// What the limits of this process leave of addresses and of data.
fn limits_bytes(limits: &str, status: &str) -> Option<u64> {
    let left = |(limit, used): (&str, &str)| {
        let limit = limits.lines().find_map(|line| line.strip_prefix(limit))?;
        let limit: u64 = limit.split_whitespace().next()?.parse().ok()?; // `unlimited` is no number
        Some(limit.saturating_sub(line_bytes(status, used)?))
    };
    [("Max address space", "VmSize:"), ("Max data size", "VmData:")].into_iter().filter_map(left).min()
}

/// What this process's control groups leave: the least of its own and of those around it, in either version.
fn groups_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let of_line = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, own) = rest.split_once(':')?;
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            _ if controllers.split(',').any(|name| name == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => return None,
        };
        let own = root.join(own.trim_start_matches('/'));
        own.ancestors().take_while(|group| group.starts_with(root)).filter_map(group_bytes).min()
    };
    groups.lines().filter_map(of_line).min()
}

/// What the limit of one control group leaves; nothing if it has none. Pages of files it no longer uses can be had too.
fn group_bytes(group: &Path) -> Option<u64> {
    let number = |file: &str| std::fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    let of = |limit: &str, used: &str, idle: &str| {
        let (limit, used) = (number(limit)?, number(used)?);
        let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let idle = stat.lines().find_map(|line| line.strip_prefix(idle)?.trim().parse().ok()).unwrap_or(0);
        Some(limit.saturating_sub(used).saturating_add(idle).min(limit))
    };
    let second = of("memory.max", "memory.current", "inactive_file ");
    second.or_else(|| of("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "))
}

/// The option of mimalloc, which its bindings do not name, that says after how many milliseconds freed memory goes back to the
/// system.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Milliseconds: longer than any run, as `never` would make [`give_back`] do nothing.
const NEVER: std::ffi::c_long = 1 << 30;

/// Bytes of a block of [`claim`].
const CLAIMED_AT_ONCE: usize = 8 << 20;

/// Keeps memory that is freed for the next allocation until [`give_back`], where by default it goes back to the system after
/// a second. Passes and training steps free and take the same buffers again and again, and the system clears every page that it
/// gives: if it went back after 10 ms, `needle --ctx 4k` would take a tenth longer. Nor does what a run holds depend on how fast
/// it is, so that it can be said beforehand.
#[expect(unsafe_code, reason = "an option of the allocator")]
pub fn keep_freed() {
    // SAFETY: a number goes into an integer that mimalloc reads atomically.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, NEVER) };
}

/// Takes so many bytes from the system and frees them, for whoever allocates next while freed memory is kept. It is the system that
/// takes its time here, of a virtual machine up to a second for each GiB: what is to be timed had better find it done.
pub fn claim(bytes: u64) {
    let blocks = (bytes / CLAIMED_AT_ONCE as u64) as usize;
    // Held until all are there. A byte other than zero: zeros would be promised, not written.
    let held: Vec<Vec<u8>> = (0..blocks).into_par_iter().map(|_| vec![1; CLAIMED_AT_ONCE]).collect();
    drop(std::hint::black_box(held));
}

/// [`give_back`] of every thread that computes.
pub fn give_back_everywhere() {
    give_back();
    rayon::broadcast(|_| give_back());
}

/// Gives memory that was freed back to the system at once: what the process holds then is what it uses.
#[expect(unsafe_code, reason = "an option of the allocator")]
pub fn give_back() {
    // SAFETY: frees pages that nobody uses.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// A line such as `VmHWM:   1234 kB`.
fn field_bytes(file: &str, field: &str) -> Option<u64> {
    line_bytes(&std::fs::read_to_string(file).ok()?, field)
}

fn line_bytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(1024 * kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "an option of the allocator")]
    fn mimalloc_frees_after_a_delay_unless_told_to_keep() {
        // SAFETY: reads an integer.
        let delay = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "if this is not its default, options are numbered anew");
        keep_freed();
        assert_eq!(delay(), NEVER);
    }

    #[test]
    fn a_control_group_leaves_its_limit_less_what_is_in_use_but_for_idle_pages_of_files() {
        let group = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| std::fs::write(group.path().join(file), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        assert_eq!(group_bytes(group.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(group_bytes(group.path()), Some(300));
        write("memory.stat", "anon 500\ninactive_file 200\nactive_file 0\n");
        assert_eq!(group_bytes(group.path()), Some(500));
    }

    #[test]
    fn control_groups_of_the_first_version_count_too() {
        let group = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| std::fs::write(group.path().join(file), text).unwrap();
        write("memory.limit_in_bytes", "1000\n");
        write("memory.usage_in_bytes", "700\n");
        write("memory.stat", "cache 300\ntotal_inactive_file 100\n");
        assert_eq!(group_bytes(group.path()), Some(400));
    }

    #[test]
    fn limits_of_the_process_leave_what_it_has_not_taken() {
        let limits = "Max data size             unlimited            unlimited            bytes\n\
                      Max address space         4000000              unlimited            bytes\n";
        let status = "VmSize:\t    1000 kB\nVmData:\t     500 kB\n";
        assert_eq!(limits_bytes(limits, status), Some(4_000_000 - 1_024_000));
        assert_eq!(
            limits_bytes(&limits.replace("unlimited            unlimited", "600000 600000"), status),
            Some(88_000)
        );
        assert_eq!(limits_bytes("Max address space unlimited unlimited bytes", status), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_peak_of_memory_grows_with_what_is_held() {
        let before = peak_rss_bytes().unwrap();
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(peak_rss_bytes().unwrap() > before, "{}", held.len());
    }
}
