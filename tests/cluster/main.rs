//! Redis Cluster, apart from the other deployments: its tests share one cluster, whose nodes must have the time to
//! talk to each other.

mod cluster;
