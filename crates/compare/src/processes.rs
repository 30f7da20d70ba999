//! What `/proc` tells about processes: CPU of the whole machine, peak memory of a tree of
//! processes.

use std::fs;

/// Processes below a child that are looked at; a tool with more is counted by its first ones.
const DESCENDANTS_MAX: usize = 256;

/// CPU seconds that all processors spent on anything but idling, since the machine started.
pub(super) fn machine_busy_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks = busy_ticks(text.lines().next()?)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// `cpu user nice system idle iowait irq softirq steal guest ...`; guests are within user.
fn busy_ticks(line: &str) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    if fields.next() != Some("cpu") {
        return None;
    }
    let ticks: Option<Vec<u64>> = fields.take(8).map(|field| field.parse().ok()).collect();
    let ticks = ticks.filter(|ticks| ticks.len() >= 7)?;
    let idle = ticks[3] + ticks[4];
    Some(ticks.iter().sum::<u64>() - idle)
}

/// Largest resident size that a process had, bytes. Unlike rusage it begins anew with each program
/// that is executed.
pub(super) fn peak_memory_bytes(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    high_water_bytes(&text)
}

fn high_water_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The largest of a process and all that it started.
pub(super) fn largest_peak_memory_bytes(process: u32) -> u64 {
    let mut waiting = vec![process];
    let (mut peak, mut seen) = (0, 0);
    while let Some(process) = waiting.pop() {
        seen += 1;
        if seen > DESCENDANTS_MAX {
            break;
        }
        peak = peak.max(peak_memory_bytes(process).unwrap_or(0));
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        let children = children.unwrap_or_default();
        waiting.extend(
            children
                .split_ascii_whitespace()
                .filter_map(|id| id.parse::<u32>().ok()),
        );
    }
    peak
}

/// When a process started, in ticks since the machine did: with its number, a name that is never
/// used again.
pub(super) fn start_ticks(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field may hold anything, but ends with the last bracket.
    text.rsplit_once(") ")?
        .1
        .split_ascii_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_processors_are_not_busy() {
        assert_eq!(busy_ticks("cpu  10 2 30 1000 500 4 5 6 7 0"), Some(57));
        assert_eq!(busy_ticks("cpu0 10 2 30 1000 500 4 5 6 7 0"), None);
        assert_eq!(busy_ticks("cpu 10 2"), None);
    }

    #[test]
    fn peak_memory_is_read_from_status() {
        assert_eq!(
            high_water_bytes("Name:\tx\nVmHWM:\t    2048 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(high_water_bytes("Name:\tkthreadd\n"), None);
        assert!(largest_peak_memory_bytes(std::process::id()) > 100_000);
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let mine = start_ticks(std::process::id());
        assert!(mine.is_some_and(|ticks| ticks > 0));
        assert_eq!(start_ticks(u32::MAX), None);
    }
}
