//! What tools ask a database that no lock needs.

use std::sync::Arc;

use super::{PostgresStore, fault_of};
use crate::clock::Moment;
use crate::store::Op;
use crate::store::admin::{Console, Walked};

/// How many names one step of a walk brings.
const STEP: u32 = 1000;

impl Console for PostgresStore {
    /// The cursor is the last name of the step before.
    fn walk(self: Arc<Self>, prefix: String, cursor: String, answer_by: Moment) -> Op<Walked> {
        Box::pin(async move {
            let step = async {
                let begin = format!("{prefix}lock:");
                self.table.lane(0).await?.walk(&begin, &cursor, STEP).await
            };
            let names = self.by(answer_by, None, step).await.map_err(|fault| fault_of(&fault))?;
            let is_full = names.len() >= STEP as usize;
            let next = names.last().filter(|_| is_full).cloned();
            Ok(Walked { names, next, missed: None })
        })
    }
}
