//! A failed lock as a response.

use ::axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ::axum::http::{HeaderValue, StatusCode};
use ::axum::response::{IntoResponse, Response};

use crate::error::LockError;
use crate::outcome::FromLockError;
use crate::web::problem::{self, Problem};

/// `application/problem+json` with the status of [`LockError::http_status`]; `Busy` also has
/// `Retry-After`. The key is not in it.
impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        let Problem { retry_after, body } = Problem::answer(&self);
        let mut response = (StatusCode::from(self), body).into_response();
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

impl FromLockError for Response {
    fn from_lock_error(error: LockError) -> Self {
        error.into_response()
    }
}
