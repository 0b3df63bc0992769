//! The lock sources with a table of 1024 vCPUs.

mod bind {
    use simulated_locks_1024 as locks;

    include!("bind.rs");
}

pub(super) use bind::subject;
