//! What can go wrong in the shop.

use distlock::LockError;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ShopError {
    /// Its lock: the frameworks know how to answer with it.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The orders cannot be reached.
    #[error("the shop's store cannot be used at the moment")]
    Store(#[from] redis::RedisError),
    /// Its metrics cannot be recorded.
    #[error("metrics cannot be recorded: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// No such order or account.
    #[error("there is no {0}")]
    NotFound(String),
    /// The order is not open any more.
    #[error("the order is {0}")]
    NotOpen(&'static str),
    /// Too little money.
    #[error("{0} has too little money")]
    TooLittle(String),
    /// A request that makes no sense.
    #[error("{0}")]
    Nonsense(&'static str),
}

impl ShopError {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Lock(error) => error.http_status(),
            Self::Store(_) | Self::Metrics(_) => 503,
            Self::NotFound(_) => 404,
            Self::NotOpen(_) => 409,
            Self::TooLittle(_) => 402,
            Self::Nonsense(_) => 422,
        }
    }

    /// The body of the answer, as `application/problem+json`.
    pub fn problem(&self) -> String {
        serde_json::json!({ "status": self.status(), "detail": self.to_string() }).to_string()
    }
}
