//! Memory of this process and this machine, read from Linux's `/proc` and control groups; `None` on other systems.

use super::error::NoRoom;
use anyhow::Result;
use std::path::Path;

/// Peak resident memory of this process, in bytes (`VmHWM`).
pub fn peak_rss_bytes() -> Option<u64> {
    field_bytes("/proc/self/status", "VmHWM:")
}

/// Address space of this process, in bytes (`VmSize`).
pub fn virtual_bytes() -> Option<u64> {
    field_bytes("/proc/self/status", "VmSize:")
}

/// Memory that is available without swapping, in bytes: `MemAvailable`, or what a control group (of a container, a
/// SLURM or a Kubernetes job) or the limit of addresses of this process (`ulimit -v`) leaves, if that is less.
pub fn available_bytes() -> Option<u64> {
    let machine = field_bytes("/proc/meminfo", "MemAvailable:");
    machine.into_iter().chain(groups_bytes()).chain(limit_bytes()).min()
}

/// A usage error if `needed` bytes are more than are available: `takes` names what needs them and how many,
/// `change` what to do about it.
pub fn check_fits(needed: u64, takes: impl FnOnce() -> String, change: &str) -> Result<()> {
    match available_bytes().filter(|&available| needed > available) {
        Some(available) => Err(NoRoom(format!("{}, {} are free; {change}", takes(), size_name(available))).into()),
        None => Ok(()),
    }
}

/// Formats bytes as `1.5 GiB`, or `300 MiB` below 1 GiB.
pub fn size_name(bytes: u64) -> String {
    match bytes >> 20 {
        mib @ 0..1024 => format!("{mib} MiB"),
        _ => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}

/// Bytes that the limit of addresses of this process leaves; `None` if it has no limit.
fn limit_bytes() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(virtual_bytes()?))
}

/// Bytes that the control groups of this process and their ancestors leave, of either version of control groups.
fn groups_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(line_bytes).min()
}

/// Bytes that the group of a line of `/proc/self/cgroup` and its ancestors leave; `None` if the line is not about memory.
fn line_bytes(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, own) = rest.split_once(':')?;
    let root = match controllers {
        "" => Path::new("/sys/fs/cgroup"),
        _ if controllers.split(',').any(|name| name == "memory") => Path::new("/sys/fs/cgroup/memory"),
        _ => return None,
    };
    let own = root.join(own.trim_start_matches('/'));
    own.ancestors().take_while(|group| group.starts_with(root)).filter_map(group_bytes).min()
}

/// Bytes that the limit of one control group leaves; `None` if it has no limit.
fn group_bytes(group: &Path) -> Option<u64> {
    let second = left_bytes(group, "memory.max", "memory.current", "inactive_file ");
    second.or_else(|| left_bytes(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "))
}

/// Bytes that the limit in one file of a control group leaves, with the bytes used in another. Inactive pages of files
/// count as available.
fn left_bytes(group: &Path, limit: &str, used: &str, inactive: &str) -> Option<u64> {
    let limit: u64 = std::fs::read_to_string(group.join(limit)).ok()?.trim().parse().ok()?;
    let used: u64 = std::fs::read_to_string(group.join(used)).ok()?.trim().parse().ok()?;
    let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let inactive = stat.lines().find_map(|line| line.strip_prefix(inactive)?.trim().parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used).saturating_add(inactive).min(limit))
}

/// The bytes of a line such as `VmHWM:   1234 kB`.
fn field_bytes(file: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(1024 * kib)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    #[cfg(target_os = "linux")]
    fn the_peak_of_memory_grows_with_what_is_held() {
        let before = peak_rss_bytes().unwrap();
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(peak_rss_bytes().unwrap() > before, "{}", held.len());
    }
}
