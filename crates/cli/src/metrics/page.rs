//! The page: status and profile in Prometheus' text format.

use super::mounted::MOUNT;
use super::stages::{STAGES, Stage};
use super::table::{Kind, Metric, SERVER};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value};
use std::fmt;

/// The page of a process that is so.
pub(super) fn of(status: &Value, profile: &Value) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Seen {
        status: status.clone(),
        profile: profile.clone(),
    }));
    let mut page = String::new();
    prometheus_text::encode(&mut page, &registry)?;
    Ok(page)
}

/// Status and profile of the process at one moment.
#[derive(Debug)]
struct Seen {
    status: Value,
    profile: Value,
}

impl Collector for Seen {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let metrics: &[Metric] = match self.status["kind"].as_str() {
            Some("server") => &SERVER,
            _ => &MOUNT,
        };
        for metric in metrics {
            if let Some(value) = self.status.pointer(metric.at) {
                encode(&mut encoder, metric, value)?;
            }
        }
        for stage in &STAGES {
            if let Some(kinds) = self.profile[stage.at].as_object() {
                encode_stage(&mut encoder, stage, kinds)?;
            }
        }
        Ok(())
    }
}

/// A number, or a yes or no as 1 or 0; `None`: it is none.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_bool().map(f64::from))
}

fn metric_type(kind: Kind) -> MetricType {
    match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
    }
}

fn encode(encoder: &mut DescriptorEncoder, metric: &Metric, value: &Value) -> fmt::Result {
    let mut all =
        encoder.encode_descriptor(metric.name, metric.help, None, metric_type(metric.kind))?;
    let put = |encoder: prometheus_client::encoding::MetricEncoder, number: f64| match metric.kind {
        Kind::Counter => ConstCounter::new(number).encode(encoder),
        Kind::Gauge => ConstGauge::new(number).encode(encoder),
    };
    if let Some(number) = number(value) {
        return put(all, number);
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        if let Some(number) = number(value) {
            let labels = [(metric.label, name.as_str())];
            put(all.encode_family(&labels)?, number)?;
        }
    }
    Ok(())
}

fn encode_stage(
    encoder: &mut DescriptorEncoder,
    stage: &Stage,
    kinds: &Map<String, Value>,
) -> fmt::Result {
    let parts = [
        (stage.count, "Requests", "count", 1.0),
        (stage.seconds, "Seconds in all", "total_ns", 1e9),
    ];
    for (name, what, field, unit) in parts {
        let help = format!("{what}, by kind: {}", stage.help);
        let mut all = encoder.encode_descriptor(name, &help, None, MetricType::Counter)?;
        for (kind, values) in kinds {
            let number = values[field].as_f64().unwrap_or(0.0) / unit;
            let labels = [("kind", kind.as_str())];
            ConstCounter::new(number).encode(all.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_answers_and_families_are_told() {
        let status = json!({
            "kind": "server", "clients": 2, "grace": true, "failure": null,
            "received": { "Open": 7, "Read": 9 },
        });
        let profile =
            json!({ "clients": { "Open": { "count": 7, "total_ns": 1_500_000_000u64 } } });
        let page = of(&status, &profile).unwrap();
        for line in [
            "# TYPE ariel_server_clients gauge",
            "ariel_server_grace 1.0",
            "ariel_server_received_messages_total{kind=\"Read\"} 9.0",
            "ariel_server_answer_seconds_total{kind=\"Open\"} 1.5",
        ] {
            assert!(page.lines().any(|one| one == line), "{line} in:\n{page}");
        }
        assert!(!page.contains("ariel_mount"), "{page}");
    }
}
