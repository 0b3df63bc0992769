//! The lock sources with a table of 128 vCPUs.

mod bind {
    use simulated_locks as locks;

    include!("bind.rs");
}

pub(super) use bind::subject;
