//! A failed lock as a response.

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};

use crate::error::LockError;
use crate::integrations::http::problem::{self, Problem};
use crate::return_type::FromLockError;

/// `application/problem+json` with the status of [`LockError::http_status`] and `Retry-After` of
/// [`LockError::http_retry_after`]. The key is not in it. The error itself is in the response's
/// extensions, for middleware outside.
impl ResponseError for LockError {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::from(Problem::answer(self, None));
        response.extensions_mut().insert(self.clone());
        response
    }
}

impl From<Problem> for HttpResponse {
    fn from(problem: Problem) -> Self {
        let Problem { status, retry_after, body } = problem;
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Self::build(status);
        response.insert_header((CONTENT_TYPE, problem::CONTENT_TYPE));
        if let Some(seconds) = retry_after {
            response.insert_header((RETRY_AFTER, seconds));
        }
        response.body(body)
    }
}

impl FromLockError for HttpResponse {
    fn from_lock_error(error: LockError) -> Self {
        Self::from_error(error)
    }
}
