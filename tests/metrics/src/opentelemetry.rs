//! Locks as metrics of OpenTelemetry: the guide's page on observability shows this file.

use distlock::LockName;
use distlock::observe::{Acquired, Lost, Observer, Refused, Released, Via};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

pub struct OpenTelemetry {
    calls: Counter<u64>,
    wait: Histogram<f64>,
    hold: Histogram<f64>,
    held: UpDownCounter<i64>,
    lost: Counter<u64>,
}

impl OpenTelemetry {
    pub fn new(meter: &Meter) -> Self {
        Self {
            calls: meter.u64_counter("distlock.acquisitions").build(),
            wait: meter.f64_histogram("distlock.wait.duration").with_unit("s").build(),
            hold: meter.f64_histogram("distlock.hold.duration").with_unit("s").build(),
            held: meter.i64_up_down_counter("distlock.held").build(),
            lost: meter.u64_counter("distlock.lost").build(),
        }
    }
}

fn with(lock: &LockName, name: &'static str, value: &'static str) -> [KeyValue; 2] {
    [KeyValue::new("distlock.lock", lock.name().to_owned()), KeyValue::new(name, value)]
}

impl Observer for OpenTelemetry {
    fn acquired(&self, lock: &LockName, event: &Acquired) {
        let labels = with(lock, "distlock.outcome", "acquired");
        if event.index == 0 {
            self.calls.add(1, &labels);
            self.wait.record(event.waited.as_secs_f64(), &labels);
        }
        self.held.add(i64::from(event.via != Via::Outer), &labels[..1]);
    }

    fn refused(&self, lock: &LockName, event: &Refused<'_>) {
        let labels = with(lock, "distlock.outcome", event.outcome());
        self.calls.add(1, &labels);
        self.wait.record(event.waited.as_secs_f64(), &labels);
    }

    fn released(&self, lock: &LockName, event: &Released) {
        let labels = with(lock, "distlock.lost", if event.lost { "yes" } else { "no" });
        self.hold.record(event.held.as_secs_f64(), &labels);
        self.held.add(-1, &labels[..1]);
    }

    fn lost(&self, lock: &LockName, event: &Lost) {
        self.lost.add(1, &with(lock, "distlock.reason", event.reason.as_str()));
    }
}
