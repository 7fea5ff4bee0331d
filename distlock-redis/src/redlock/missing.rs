//! The reasons why there is no majority: the servers that have not answered, and how many are
//! needed.

use std::fmt::Write as _;

use distlock_core::store::{BackendKind, Fault, Store as _};

use super::QuorumStore;

/// Servers that have not answered a question as they should.
#[derive(Default)]
pub(super) struct Missing(Vec<(usize, Fault)>);

impl Missing {
    pub(super) fn add(&mut self, place: usize, fault: Fault) {
        self.0.push((place, fault));
    }
}

impl QuorumStore {
    /// Too few servers have answered a question, or too few of those that answered count.
    pub(super) fn no_majority(&self, Missing(failed): Missing) -> Fault {
        // This error does not go away by itself.
        if let Some((place, fault)) = failed.iter().find(|(_, fault)| !fault.passing) {
            return fault.clone().and(&format!(" (that was {})", self.nodes[*place].addr));
        }
        let why = |place: usize| {
            let failed = failed.iter().find(|(failed, _)| *failed == place);
            let fault = failed.map(|(_, fault)| fault.clone());
            fault.or_else(|| self.nodes[place].store.outage().map(|outage| outage.fault))
        };
        let missing: Vec<_> = (0..self.nodes.len()).filter_map(|at| Some((at, why(at)?))).collect();
        let answered = self.nodes.len() - missing.len();
        if answered >= self.majority() {
            return self.starting().map_or_else(Fault::timed_out, super::queries::too_new);
        }
        let (all, needed) = (self.nodes.len(), self.majority());
        let mut text = format!("{answered} of {all} servers answered, {needed} are needed;");
        for (number, (at, fault)) in missing.iter().enumerate() {
            let and = if number == 0 { " missing:" } else { "," };
            let _ = write!(text, "{and} {} ({})", self.nodes[*at].addr, fault.reason());
        }
        let kind = missing.first().map_or(BackendKind::TimedOut, |(_, fault)| fault.kind);
        Fault::passing(kind, text)
    }
}
