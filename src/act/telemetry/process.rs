//! The metrics of the guard's process, under the names that every exporter uses: `process_*`.
//!
//! Must not know: the guard. The four numbers are read from /proc by hand, because a crate for them adds more than it saves.
//! Without /proc, as on macOS, these metrics are missing.

use std::{fmt, fs};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The unit of CPU times in /proc, on every architecture that the guard is built for.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub(super) struct ProcessMetrics;

/// The resource usage of a process, from /proc.
#[derive(Debug, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    resident_bytes: f64,
    open_files: f64,
    started: f64,
}

impl Usage {
    fn now() -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{name}")).ok();
        let open_files = fs::read_dir("/proc/self/fd").ok()?.count();
        Self::of(&read("self/stat")?, &read("self/status")?, &read("stat")?, open_files)
    }

    fn of(stat: &str, status: &str, system_stat: &str, open_files: usize) -> Option<Self> {
        // The second field is the program's name, which may contain spaces and brackets, so `fields` begins with the third.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        let number = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        Some(Self {
            cpu_seconds: (ticks(14)? + ticks(15)?) / TICKS_PER_SECOND,
            resident_bytes: number(status, "VmRSS:")? * 1024.0,
            open_files: f64::from(u32::try_from(open_files).ok()?),
            started: number(system_stat, "btime")? + ticks(22)? / TICKS_PER_SECOND,
        })
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(usage) = Usage::now() else { return Ok(()) };
        let mut encode = |name: &str, help: &str, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        encode("process_cpu_seconds", "CPU time of this process.", &ConstCounter::new(usage.cpu_seconds))?;
        encode(
            "process_resident_memory_bytes",
            "Memory of this process.",
            &ConstGauge::new(usage.resident_bytes),
        )?;
        encode("process_open_fds", "Open files of this process.", &ConstGauge::new(usage.open_files))?;
        encode(
            "process_start_time_seconds",
            "Start time of this process, in seconds since the Unix epoch.",
            &ConstGauge::new(usage.started),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read_by_position_and_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 99 0 0 0 150 50 0 0 20 0 5 0 12345 8192 300 1";
        let status = "Name:\ta\nVmPeak:\t  90 kB\nVmRSS:\t   64 kB\n";
        let usage = Usage::of(stat, status, "cpu 1 2 3\nbtime 1000\n", 9);
        let expected = Usage { cpu_seconds: 2.0, resident_bytes: 65536.0, open_files: 9.0, started: 1123.45 };
        assert_eq!(usage, Some(expected));
        assert_eq!(Usage::of("7 (a) S", status, "btime 1", 9), None);
    }
}
