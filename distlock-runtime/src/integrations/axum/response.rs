//! A failed lock as a response.

use ::axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ::axum::http::{HeaderValue, StatusCode};
use ::axum::response::{IntoResponse, Response};

use crate::error::LockError;
use crate::integrations::http::problem::{self, Problem};
use crate::return_type::FromLockError;

/// `application/problem+json` with the status of [`LockError::http_status`] and `Retry-After` of
/// [`LockError::http_retry_after`]. The key is not in it. The error itself is in the response's
/// extensions, for layers outside.
impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        let mut response = Problem::answer(&self, None).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, retry_after, body } = self;
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// [`LockError::http_status`]. What else a response to `LockError` says is lost on the way.
impl From<LockError> for StatusCode {
    fn from(error: LockError) -> Self {
        Self::from_u16(error.http_status()).unwrap_or(Self::INTERNAL_SERVER_ERROR)
    }
}

/// The status, and what a response says about the error.
impl From<LockError> for (StatusCode, String) {
    fn from(error: LockError) -> Self {
        let detail = error.for_clients().to_owned();
        (error.into(), detail)
    }
}

impl FromLockError for Response {
    fn from_lock_error(error: LockError) -> Self {
        error.into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_with_a_text_says_what_a_response_would() {
        let (status, text) = <(StatusCode, String)>::from(LockError::Closed);
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "The service is shutting down.")
        );
        assert!(Problem::answer(&LockError::Closed, None).body.contains(&text));
    }
}
