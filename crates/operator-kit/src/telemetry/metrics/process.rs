//! Metrics of the process, as in Prometheus' own clients, read from `/proc` for each scrape. One that cannot be read is left out.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

#[derive(Debug)]
pub(super) struct Process;

#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    /// Since the machine's start.
    started_seconds: f64,
    virtual_bytes: i64,
    resident_bytes: i64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let open = fs::read_dir("/proc/self/fd").ok().and_then(|files| i64::try_from(files.count()).ok());
        gauge(&mut encoder, "process_open_fds", "Number of open file descriptors.", open)?;
        gauge(&mut encoder, "process_max_fds", "Maximum number of open file descriptors.", max_files())?;
        let Some(Stat { cpu_seconds, started_seconds, virtual_bytes, resident_bytes }) = stat() else {
            return Ok(());
        };
        gauge(&mut encoder, "process_resident_memory_bytes", "Resident memory size in bytes.", Some(resident_bytes))?;
        gauge(&mut encoder, "process_virtual_memory_bytes", "Virtual memory size in bytes.", Some(virtual_bytes))?;
        let started = boot_time().map(|boot| boot + started_seconds);
        let help = "Start time of the process since unix epoch in seconds.";
        gauge(&mut encoder, "process_start_time_seconds", help, started)?;
        let cpu = ConstCounter::new(cpu_seconds);
        let help = "Total user and system CPU time spent in seconds.";
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)
    }
}

fn gauge<N>(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: Option<N>) -> fmt::Result
where
    ConstGauge<N>: EncodeMetric,
{
    let Some(value) = value else { return Ok(()) };
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

fn stat() -> Option<Stat> {
    let page = i64::try_from(rustix::param::page_size()).ok()?;
    parse(&fs::read_to_string("/proc/self/stat").ok()?, rustix::param::clock_ticks_per_second(), page)
}

/// Parses `/proc/self/stat`, see proc_pid_stat(5). The third field follows the program's name in brackets, which may contain brackets.
fn parse(text: &str, ticks_per_second: u64, page: i64) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    #[expect(clippy::cast_precision_loss, reason = "these counts stay far below 2^52")]
    let time = |ticks: i64| ticks as f64 / ticks_per_second as f64;
    Some(Stat {
        cpu_seconds: time(number(14)? + number(15)?),
        started_seconds: time(number(22)?),
        virtual_bytes: number(23)?,
        resident_bytes: number(24)? * page,
    })
}

/// When the machine started, in seconds since 1970.
fn boot_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn max_files() -> Option<i64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_may_hold_brackets() {
        let text = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 12300 7000000 3000 184467";
        let expected =
            Stat { cpu_seconds: 3.0, started_seconds: 123.0, virtual_bytes: 7_000_000, resident_bytes: 3000 * 4096 };
        assert_eq!(parse(text, 100, 4096), Some(expected));
        assert_eq!(parse("42 (a) S 1", 100, 4096), None);
    }

    #[test]
    fn process_metrics_can_be_read() {
        assert!(stat().is_some_and(|stat| stat.resident_bytes > 100_000 && stat.virtual_bytes > stat.resident_bytes));
        assert!(boot_time().is_some_and(|seconds| seconds > 1e9));
        assert!(max_files().is_some_and(|files| files > 10));
    }
}
