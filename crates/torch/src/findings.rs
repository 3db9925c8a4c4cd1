//! A report as findings: the shape `stormlog analyze` gives to everything that is wrong.
//!
//! Nothing is judged here; each finding is a verdict of the report with its evidence, its numbers and what to do about it.

use stormlog_model::{Evidence, Finding, Record, Severity, format_bytes as size};

use crate::analysis::verdict::{Verdict, VerdictKind};
use crate::report::{DeviceReport, SnapshotReport};

/// The snapshot, and where its report is.
#[derive(Clone, Copy)]
struct ReportPath<'a> {
    path: &'a str,
    pointer: &'a str,
}

impl SnapshotReport {
    /// What is wrong, the worst first. The evidence is the snapshot at `path`, and what the report says of it, which others
    /// find at `pointer`.
    pub fn findings(&self, path: &str, pointer: &str) -> Vec<Finding> {
        let report_path = ReportPath { path, pointer };
        let advice: Vec<String> = self
            .hints
            .iter()
            .cloned()
            .chain(self.advice.iter().map(|advice| advice.sentence.clone()))
            .collect();
        let mut findings: Vec<Finding> = std::iter::once(&self.verdict)
            .chain(&self.also)
            .filter_map(|verdict| self.of_verdict(verdict, report_path))
            .collect();
        // Reported once, with the worst finding: it applies to all of them.
        if let Some(worst) = findings.first_mut() {
            worst.advice = advice;
        }
        for caution in &self.cautions {
            let mut finding =
                self.finding("snapshot.settings", "settings", Severity::Warning, 1.0, report_path);
            finding.title = (*caution).to_owned();
            findings.push(finding);
        }
        findings.extend(self.devices.iter().filter_map(|device| self.lost_events(device, report_path)));
        findings
    }

    fn of_verdict(&self, verdict: &Verdict, report_path: ReportPath<'_>) -> Option<Finding> {
        let (id, kind, severity, confidence) = match verdict.kind {
            VerdictKind::OomFragmentation => ("snapshot.oom_fragmentation", "oom", Severity::Critical, 0.95),
            VerdictKind::OomFull => ("snapshot.oom_full", "oom", Severity::Critical, 0.95),
            VerdictKind::OomOther => ("snapshot.oom_other", "oom", Severity::Critical, 0.9),
            VerdictKind::Leak => ("snapshot.leak", "leak", Severity::Warning, 0.9),
            VerdictKind::EmptyCacheChurn => {
                ("snapshot.empty_cache", "empty_cache_churn", Severity::Warning, 0.95)
            }
            VerdictKind::Fragmentation => ("snapshot.fragmentation", "fragmentation", Severity::Warning, 0.9),
            VerdictKind::Growth => ("snapshot.growth", "growth", Severity::Warning, 0.6),
            VerdictKind::NoTrace => ("snapshot.no_trace", "no_trace", Severity::Info, 1.0),
            VerdictKind::Healthy => return None,
        };
        let mut finding = self.finding(id, kind, severity, confidence, report_path);
        finding.title = verdict.sentence.clone();
        if let (Some(oom), "oom") = (&self.oom, kind) {
            finding.metrics.insert("request_bytes".to_owned(), oom.request_bytes.into());
            finding.metrics.insert("usable_free_bytes".to_owned(), oom.usable_free_bytes.into());
            finding
                .metrics
                .insert("largest_usable_free_bytes".to_owned(), oom.largest_usable_free_bytes.into());
            finding.message = oom.site.as_ref().map(|site| format!("requested at {site}"));
            point(&mut finding, "/oom", oom.time_us);
        } else if kind == "leak" || kind == "growth" {
            let bytes = self.growth.iter().filter(|growth| kind == "growth" || growth.never_freed);
            let bytes = bytes.fold(0, |sum: u64, growth| sum.saturating_add(growth.bytes));
            finding.metrics.insert("kept_bytes".to_owned(), bytes.into());
            point(&mut finding, "/growth/0", None);
        } else {
            let peak = self.main().and_then(|device| device.peak_time_us);
            point(&mut finding, "/devices", peak);
        }
        Some(finding)
    }

    fn lost_events(&self, device: &DeviceReport, report_path: ReportPath<'_>) -> Option<Finding> {
        if device.overflowed != Some(true) {
            return None;
        }
        let mut finding =
            self.finding("snapshot.lost_events", "lost_events", Severity::Info, 1.0, report_path);
        finding.title = format!(
            "the oldest events of device {} are gone: {} were live before the first one that is left",
            device.device,
            size(device.live_before_recording_bytes)
        );
        finding.advice = vec!["Record with a larger max_entries, or dump earlier.".to_owned()];
        Some(finding)
    }

    fn main(&self) -> Option<&DeviceReport> {
        self.devices.iter().find(|device| device.device == self.device)
    }

    fn finding(
        &self,
        id: &str,
        kind: &str,
        severity: Severity,
        confidence: f64,
        report_path: ReportPath<'_>,
    ) -> Finding {
        let mut metrics = Record::new();
        metrics.insert("device_id".to_owned(), self.device.into());
        if let Some(device) = self.main() {
            metrics.insert("peak_allocated_bytes".to_owned(), device.peak_allocated_bytes.into());
            metrics.insert("peak_active_bytes".to_owned(), device.peak_active_bytes.into());
            metrics.insert("peak_reserved_bytes".to_owned(), device.peak_reserved_bytes.into());
        }
        Finding {
            id: id.to_owned(),
            kind: kind.to_owned(),
            severity,
            confidence,
            title: String::new(),
            message: None,
            metrics,
            evidence: vec![Evidence {
                kind: "allocator_snapshot".to_owned(),
                path: Some(report_path.path.to_owned()),
                pointer: Some(report_path.pointer.to_owned()),
                ..Evidence::default()
            }],
            advice: Vec::new(),
            undecided: false,
            process: None,
            memory: format!("cuda:{}", self.device).parse().ok(),
            holder: None,
        }
    }
}

/// Where in the report, and when.
fn point(finding: &mut Finding, part: &str, time_us: Option<i64>) {
    if let Some(evidence) = finding.evidence.first_mut() {
        evidence.pointer = evidence.pointer.take().map(|pointer| pointer + part);
        let ns = time_us.and_then(|us| u64::try_from(us).ok()?.checked_mul(1000));
        (evidence.start_ns, evidence.end_ns) = (ns, ns);
    }
}
