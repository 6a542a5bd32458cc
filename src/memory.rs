//! Memory of this process and this machine, read from Linux's `/proc` and control groups; `None` on other systems.

use crate::bail_usage;
use anyhow::Result;
use mimalloc::MiMalloc;
use rayon::prelude::*;
use std::alloc::{GlobalAlloc, Layout};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Peak resident memory of this process, in bytes (`VmHWM`).
pub fn peak_rss_bytes() -> Option<u64> {
    field_bytes("/proc/self/status", "VmHWM:")
}

/// Address space of this process, in bytes (`VmSize`).
pub fn virtual_bytes() -> Option<u64> {
    field_bytes("/proc/self/status", "VmSize:")
}

/// Resident memory of this process, in bytes (`VmRSS`).
pub fn rss_bytes() -> Option<u64> {
    field_bytes("/proc/self/status", "VmRSS:")
}

/// Memory that is available without swapping, in bytes: `MemAvailable`, or what a control group (of a container, a
/// SLURM or a Kubernetes job) or a limit of this process (`ulimit -v`, `ulimit -d`) leaves, if that is less.
pub fn available_bytes() -> Option<u64> {
    let machine = field_bytes("/proc/meminfo", "MemAvailable:");
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let unused = || unused_bytes(&std::fs::read_to_string("/proc/self/smaps").unwrap_or_default());
    machine.into_iter().chain(groups_bytes()).chain(limits_bytes(&limits, &status, unused)).min()
}

/// Returns a usage error if `needed` bytes are more than are available: `takes` names what needs them and how many,
/// `change` what to do about it.
pub(crate) fn check_fits(needed: u64, takes: impl FnOnce() -> String, change: &str) -> Result<()> {
    match available_bytes().filter(|&available| needed > available) {
        Some(available) => bail_usage!("{}, {} are free; {change}", takes(), size_name(available)),
        None => Ok(()),
    }
}

/// Formats bytes as `1.5 GiB`, or `300 MiB` below 1 GiB.
pub(crate) fn size_name(bytes: u64) -> String {
    match bytes >> 20 {
        mib @ 0..1024 => format!("{mib} MiB"),
        _ => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}

/// Bytes that the limits of this process leave, from the texts of `/proc/self/limits` and `/proc/self/status`. Addresses
/// that the allocator has reserved and not used count as left (`unused`). Of what is left, a fifth is kept for addresses
/// that it loses between its blocks.
fn limits_bytes(limits: &str, status: &str, unused: impl Fn() -> u64) -> Option<u64> {
    let left = |(limit, used): (&str, &str)| {
        let used = line_bytes(status, used)?.saturating_sub(unused());
        Some(limit_bytes(limits, limit)?.saturating_sub(used) / 5 * 4)
    };
    [(ADDRESSES, "VmSize:"), (DATA, "VmData:")].into_iter().filter_map(left).min()
}

/// Names of limits in `/proc/self/limits`.
const ADDRESSES: &str = "Max address space";
const DATA: &str = "Max data size";

/// A limit of this process in bytes, from the text of `/proc/self/limits`; `None` if it is unlimited.
fn limit_bytes(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Least size of the regions that the allocator reserves, in bytes. Stacks are smaller.
const RESERVED_BYTES: u64 = 16 << 20;

/// Bytes in regions reserved by the allocator that hold no page, from the text of `/proc/self/smaps`: the size less the
/// resident size of large writable mappings of no file.
fn unused_bytes(smaps: &str) -> u64 {
    let (mut is_reserved, mut size, mut unused) = (false, 0, 0);
    for line in smaps.lines() {
        if let Some(bytes) = line_bytes(line, "Size:") {
            size = bytes;
        } else if let Some(resident) = line_bytes(line, "Rss:") {
            let counts = is_reserved && size >= RESERVED_BYTES;
            unused += if counts { size.saturating_sub(resident) } else { 0 };
        } else if let [_, permissions, _, _, _, file @ ..] = &line.split_whitespace().collect::<Vec<_>>()[..] {
            is_reserved = permissions.starts_with("rw") && file.is_empty();
        }
    }
    unused
}

/// Bytes that the control groups of this process and their ancestors leave, of either version of control groups.
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

/// Bytes that the limit of one control group leaves; `None` if it has no limit. Inactive pages of files count as
/// available.
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

/// mimalloc's option for the milliseconds after which freed memory goes back to the system. The bindings have no name
/// for it.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Milliseconds, longer than any run. With -1, which stands for never, [`release_free`] would do nothing.
const NEVER: std::ffi::c_long = 1 << 30;

/// Size of the blocks that [`prefault`] allocates, in bytes.
const BLOCK_BYTES: usize = 8 << 20;

/// mimalloc's option for the size of the regions that it reserves, in KiB: 1 GiB by default.
const ARENA_RESERVE: libmimalloc_sys::mi_option_t = 23;

/// Its value where addresses are limited, the least that there is: with what it adds, 64 MiB. Where no region can be
/// reserved, mimalloc asks the system for each of its pages, and loses the addresses between them.
const SMALL_ARENA: std::ffi::c_long = 32 << 10;

/// Limit of addresses, in bytes, below which nothing is reserved: a region would leave no room for the stacks of threads.
const LEAST_WITH_ARENA: u64 = 160 << 20;

/// Prepares the allocator for a command: it [keeps freed memory](keep_freed), and ends the process with a message where
/// there is no memory.
pub fn set_up() {
    keep_freed();
    ENDS.store(true, Ordering::Relaxed);
}

/// Set by the first allocation.
static ALLOCATES: AtomicBool = AtomicBool::new(false);

/// Before the first allocation, which reserves a region, makes allocators reserve little where addresses are limited.
/// The runtime allocates before `main`.
fn reserve_little() {
    if !ALLOCATES.load(Ordering::Relaxed) {
        ALLOCATES.store(true, Ordering::Relaxed);
        #[cfg(unix)]
        if let Some(limit) = least_limit() {
            set_reserve(limit);
        }
    }
}

/// The limit of addresses or data of this process, in bytes; `None` if both are unlimited. Allocates nothing.
#[cfg(unix)]
#[expect(unsafe_code, reason = "limits of the process")]
fn least_limit() -> Option<u64> {
    let limit = |resource| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: writes into `limit`.
        unsafe { libc::getrlimit(resource, &raw mut limit) };
        (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    };
    [limit(libc::RLIMIT_AS), limit(libc::RLIMIT_DATA)].into_iter().flatten().min()
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "options of allocators")]
fn set_reserve(limit: u64) {
    let reserve = if limit < LEAST_WITH_ARENA { 0 } else { SMALL_ARENA };
    // SAFETY: a number goes into an integer that mimalloc reads atomically.
    unsafe { libmimalloc_sys::mi_option_set(ARENA_RESERVE, reserve) };
    // The C library, which only foreign code allocates with, would reserve 64 MiB for each thread.
    #[cfg(target_env = "gnu")]
    // SAFETY: no other thread runs.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Whether the process ends with a message where there is no memory. Otherwise it is aborted.
static ENDS: AtomicBool = AtomicBool::new(false);

/// The allocator of the program. mimalloc keeps large buffers mapped between uses, which makes element-wise work 4 to 5
/// times faster than with glibc.
pub struct Allocator;

#[expect(unsafe_code, reason = "an allocator")]
// SAFETY: all calls go to mimalloc.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        reserve_little();
        // SAFETY: the caller keeps to the contract of the trait, here and below.
        allocated(unsafe { MiMalloc.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        reserve_little();
        // SAFETY: as above.
        allocated(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        allocated(unsafe { MiMalloc.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(memory, layout) };
    }
}

/// Returns `memory`, or ends the process if it is null.
fn allocated(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && ENDS.load(Ordering::Relaxed) {
        // Nothing is allocated here: stderr has no buffer.
        let _ = writeln!(
            std::io::stderr(),
            "difftool: there is no memory for {bytes} bytes more; a control group or `ulimit` may limit it"
        );
        std::process::exit(1);
    }
    memory
}

/// Makes the allocator keep freed memory for later allocations until [`release_free`]; by default it goes back to the
/// system after a second. Passes and training steps free and allocate the same buffers again and again, and the system
/// clears every page that it hands out: with a delay of 10 ms, `needle --ctx 4k` takes a tenth longer. Peak memory also
/// becomes independent of the speed of a run, so that it can be estimated.
#[expect(unsafe_code, reason = "an option of the allocator")]
pub fn keep_freed() {
    // SAFETY: a number goes into an integer that mimalloc reads atomically.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, NEVER) };
}

/// Allocates, touches and frees `bytes` bytes, so that later allocations find memory of the process: see
/// [`keep_freed`]. The system of a virtual machine may take a second for each GiB, which would distort what is timed
/// next.
pub fn prefault(bytes: u64) {
    let blocks = (bytes / BLOCK_BYTES as u64) as usize;
    // All blocks exist at once. Zeros would not be written: the system hands out cleared pages.
    let held: Vec<Vec<u8>> = (0..blocks).into_par_iter().map(|_| vec![1; BLOCK_BYTES]).collect();
    drop(std::hint::black_box(held));
}

/// Returns freed memory to the system, that of the calling thread and of rayon's threads.
pub fn release_free() {
    collect();
    rayon::broadcast(|_| collect());
}

#[expect(unsafe_code, reason = "a call of the allocator")]
fn collect() {
    // SAFETY: frees pages that hold no allocation.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// The bytes of a line such as `VmHWM:   1234 kB`.
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
        // SAFETY: reads an integer.
        assert_eq!(unsafe { libmimalloc_sys::mi_option_get(ARENA_RESERVE) }, 1 << 20);
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
    fn limits_of_the_process_leave_four_fifths_of_what_it_has_not_taken() {
        let limits = "Max data size             unlimited            unlimited            bytes\n\
                      Max address space         4000000              unlimited            bytes\n";
        let status = "VmSize:\t    1000 kB\nVmData:\t     500 kB\n";
        let left = |limits: &str, unused: u64| limits_bytes(limits, status, || unused);
        assert_eq!(left(limits, 0), Some((4_000_000 - 1_024_000) / 5 * 4));
        assert_eq!(left(limits, 24_000), Some(2_400_000));
        let of_data = limits.replace("unlimited            unlimited", "600000 600000");
        assert_eq!(left(&of_data, 0), Some(88_000 / 5 * 4));
        assert_eq!(left("Max address space unlimited unlimited bytes", 0), None);
    }

    #[test]
    fn reserved_regions_without_pages_are_not_used() {
        let smaps = "\
10000000-50000000 rw-p 00000000 00:00 0 \nSize:  1048576 kB\nKernelPageSize: 4 kB\nRss:  1024 kB\nAnonymous: 0 kB\n\
7f000000-7f800000 rw-p 00000000 00:00 0 [stack]\nSize:  1048576 kB\nRss:  0 kB\n\
7f900000-7fa00000 rw-p 00000000 00:00 0 \nSize:  8192 kB\nRss:  0 kB\n\
7fb00000-7fc00000 r--p 00000000 08:01 77 /usr/lib/x.so\nSize:  1048576 kB\nRss:  0 kB\n\
VmFlags: rd\n";
        assert_eq!(unused_bytes(smaps), (1_048_576 - 1_024) << 10);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_peak_of_memory_grows_with_what_is_held() {
        let before = peak_rss_bytes().unwrap();
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(peak_rss_bytes().unwrap() > before, "{}", held.len());
    }
}
