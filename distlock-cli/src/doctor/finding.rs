//! What a check came to.

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    /// The server does not say.
    Unknown,
    /// Should be looked at.
    Warn,
    /// Locks do not work, or are not safe.
    Fail,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One check.
#[derive(Debug)]
pub(super) struct Finding {
    check: &'static str,
    pub(super) level: Level,
    text: String,
    mend: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), mend: None }
    }

    pub(super) fn unknown(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Unknown, text: text.into(), mend: None }
    }

    pub(super) fn warn(
        check: &'static str,
        text: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { check, level: Level::Warn, text: text.into(), mend: Some(mend.into()) }
    }

    pub(super) fn fail(
        check: &'static str,
        text: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { check, level: Level::Fail, text: text.into(), mend: Some(mend.into()) }
    }

    pub(super) fn lines(&self) -> String {
        let mut lines = format!("{:<8} {:<12} {}\n", self.level.word(), self.check, self.text);
        if let Some(mend) = &self.mend {
            lines += &format!("{:<8} {:<12} -> {mend}\n", "", "");
        }
        lines
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "check": self.check,
            "level": self.level.word(),
            "text": self.text,
            "mend": self.mend,
        })
    }
}
