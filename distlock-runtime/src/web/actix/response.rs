//! A failed lock as a response.

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};

use crate::error::LockError;
use crate::outcome::FromLockError;
use crate::web::problem::{self, Problem};

/// `application/problem+json` with the status of [`LockError::http_status`]; `Busy` also has
/// `Retry-After`. The key is not in it.
impl ResponseError for LockError {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let Problem { retry_after, body } = Problem::answer(self);
        let mut response = HttpResponse::build(self.status_code());
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
