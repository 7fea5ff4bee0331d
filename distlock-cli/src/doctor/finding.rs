//! The result of a check.

use serde_json::{Value, json};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Ok,
    /// The server does not tell.
    Unknown,
    /// Somebody should look at it.
    Warn,
    /// Locks do not work, or are not safe.
    Fail,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    text: String,
    hint: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, text: text.into(), hint: None }
    }

    pub(super) fn unknown(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, severity: Severity::Unknown, text: text.into(), hint: None }
    }

    pub(super) fn warn(
        check: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { check, severity: Severity::Warn, text: text.into(), hint: Some(hint.into()) }
    }

    pub(super) fn fail(
        check: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { check, severity: Severity::Fail, text: text.into(), hint: Some(hint.into()) }
    }

    pub(super) fn lines(&self) -> String {
        let mut lines = format!("{:<8} {:<12} {}\n", self.severity.word(), self.check, self.text);
        if let Some(hint) = &self.hint {
            lines += &format!("{:<8} {:<12} -> {hint}\n", "", "");
        }
        lines
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "check": self.check,
            "level": self.severity.word(),
            "text": self.text,
            "hint": self.hint,
        })
    }
}

/// Merges the findings of several servers. A finding of all servers appears once, any other with the addresses of its
/// servers.
pub(super) fn merged(of_servers: Vec<(Option<String>, Vec<Finding>)>) -> Vec<Finding> {
    let servers = of_servers.len();
    let mut merged: Vec<(Finding, Vec<String>)> = Vec::new();
    for (node, findings) in of_servers {
        for finding in findings {
            let node = node.clone().unwrap_or_default();
            match merged.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, nodes)) => nodes.push(node),
                None => merged.push((finding, vec![node])),
            }
        }
    }
    let named = |(finding, nodes): (Finding, Vec<String>)| match nodes.len() == servers {
        true => finding,
        false => Finding { text: format!("{}: {}", nodes.join(", "), finding.text), ..finding },
    };
    merged.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_of_all_servers_appears_once() {
        let of = |node: &str, text: &str| {
            let findings = vec![Finding::ok("version", "7"), Finding::ok("clock", text)];
            (Some(node.to_owned()), findings)
        };
        let merged = merged(vec![of("a", "well"), of("b", "well"), of("c", "ahead")]);
        let expected = [
            Finding::ok("version", "7"),
            Finding::ok("clock", "a, b: well"),
            Finding::ok("clock", "c: ahead"),
        ];
        assert_eq!(merged, expected);
    }
}
