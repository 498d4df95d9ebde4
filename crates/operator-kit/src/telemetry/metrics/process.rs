//! Metrics of the process, as in Prometheus' own clients, read from `/proc` for each scrape. One that cannot be read is left out.

use std::fmt;

use procfs::process::LimitValue;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Ok(process) = procfs::process::Process::myself() else { return Ok(()) };
        let open = process.fd_count().ok().and_then(|files| u64::try_from(files).ok());
        gauge(&mut encoder, "process_open_fds", "Number of open file descriptors.", open)?;
        let max = process.limits().ok().and_then(|limits| match limits.max_open_files.soft_limit {
            LimitValue::Value(files) => Some(files),
            LimitValue::Unlimited => None,
        });
        gauge(&mut encoder, "process_max_fds", "Maximum number of open file descriptors.", max)?;
        let Ok(stat) = process.stat() else { return Ok(()) };
        let resident = stat.rss * procfs::page_size();
        gauge(&mut encoder, "process_resident_memory_bytes", "Resident memory size in bytes.", Some(resident))?;
        gauge(&mut encoder, "process_virtual_memory_bytes", "Virtual memory size in bytes.", Some(stat.vsize))?;
        #[expect(clippy::cast_precision_loss, reason = "these counts stay far below 2^52")]
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let started = |boot| seconds(boot * procfs::ticks_per_second() + stat.starttime);
        let started = procfs::boot_time_secs().ok().map(started);
        let help = "Start time of the process since unix epoch in seconds.";
        gauge(&mut encoder, "process_start_time_seconds", help, started)?;
        let cpu = ConstCounter::new(seconds(stat.utime + stat.stime));
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

#[cfg(test)]
mod tests {
    use crate::telemetry::metrics::{Format, Metrics};

    #[test]
    fn process_metrics_can_be_read() {
        let text = Metrics::new(leadership::env::testing::virtual_env()).text(Format::OpenMetrics).unwrap();
        let value = |name: &str| -> f64 {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
        };
        let (resident, all) = (value("process_resident_memory_bytes"), value("process_virtual_memory_bytes"));
        assert!(resident > 100_000.0 && all > resident, "{text}");
        let (open, max) = (value("process_open_fds"), value("process_max_fds"));
        assert!(open > 3.0 && max > open, "{text}");
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "{text}");
        assert!((0.0..3600.0).contains(&value("process_cpu_seconds_total")), "{text}");
    }
}
