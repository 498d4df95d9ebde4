//! CPU time and memory of a process, from /proc.

use std::fs;

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// CPU time of all its threads since its start, in ms, in steps of 10.
    pub cpu: f64,
    /// Peak memory (VmHWM) since its start or since [`forget_peak`], in MiB.
    pub peak: f64,
    /// Current memory (VmRSS), in MiB.
    pub resident: f64,
}

impl Usage {
    /// Of the process with this number.
    pub fn of(process: u32) -> Result<Self> {
        let read = |file: &str| {
            let file = format!("/proc/{process}/{file}");
            fs::read_to_string(&file).with_context(|| format!("reading {file}: the process may have ended"))
        };
        let ticks = ticks(&read("stat")?).context("/proc/PID/stat without times")?;
        let status = read("status")?;
        let memory =
            |field: &str| mebibytes(&status, field).with_context(|| format!("/proc/PID/status without {field}"));
        let cpu = ticks as f64 * 1_000.0 / clock_ticks_per_second() as f64;
        Ok(Self { cpu, peak: memory("VmHWM")?, resident: memory("VmRSS")? })
    }
}

/// Resets the peak memory to the current memory.
pub fn forget_peak(process: u32) -> Result<()> {
    let file = format!("/proc/{process}/clear_refs");
    fs::write(&file, "5").with_context(|| format!("writing {file}"))
}

/// The time in user and in kernel mode, in ticks.
fn ticks(stat: &str) -> Option<u64> {
    // The name, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut time = || fields.next()?.parse::<u64>().ok();
    Some(time()? + time()?)
}

fn mebibytes(status: &str, field: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kibibytes: f64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes / 1_024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        forget_peak(std::process::id()).unwrap();
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident > 0.5 && usage.peak >= usage.resident, "{usage:?}");
    }
}
