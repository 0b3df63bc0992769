//! What prepares a host for the points of an experiment, and refuses what the host does not have: the drivers of a
//! schedule, the features of the host's scheduler, control groups. A file each.

pub mod cgroups;
pub mod driver;
pub mod features;
