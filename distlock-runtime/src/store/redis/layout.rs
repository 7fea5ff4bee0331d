//! Which node a lock lives on.

use std::sync::Arc;

use super::node::Node;
use crate::name::StoredName;

/// The nodes of one manager.
pub(super) enum Layout {
    /// All locks are on one.
    One(Arc<Node>),
}

impl Layout {
    /// The node of this lock.
    pub(super) fn node(&self, _lock: &StoredName) -> &Arc<Node> {
        match self {
            Self::One(node) => node,
        }
    }

    /// A number for it: renewals of locks with different ones are sent to different servers.
    pub(super) fn part(&self, _lock: &StoredName) -> usize {
        match self {
            Self::One(_) => 0,
        }
    }

    /// A node for what concerns no lock.
    pub(super) fn any(&self) -> &Arc<Node> {
        match self {
            Self::One(node) => node,
        }
    }
}
