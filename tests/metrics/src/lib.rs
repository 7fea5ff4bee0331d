//! What the guide shows of OpenTelemetry, compiled.

#[allow(missing_docs)] // The guide shows it as it is.
pub mod opentelemetry;
