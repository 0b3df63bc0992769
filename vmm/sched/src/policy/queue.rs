//! A queue of waiting vCPUs with a fixed capacity.

use std::collections::VecDeque;

use crate::event::VcpuIndex;

/// A FIFO that also inserts vCPUs at the front or before another vCPU.
#[derive(Debug)]
pub(super) struct Queue(VecDeque<VcpuIndex>);

impl Queue {
    /// Creates a queue for `vcpus` entries. Each vCPU may be queued once.
    pub(super) fn with_room(vcpus: usize) -> Self {
        Self(VecDeque::with_capacity(vcpus))
    }

    pub(super) fn push(&mut self, vcpu: VcpuIndex) {
        debug_assert!(!self.0.contains(&vcpu), "{vcpu:?} waits twice");
        self.0.push_back(vcpu);
    }

    pub(super) fn push_front(&mut self, vcpu: VcpuIndex) {
        self.0.push_front(vcpu);
    }

    /// Inserts `vcpu` before the first entry that it goes before, or at the end.
    pub(super) fn insert(&mut self, vcpu: VcpuIndex, goes_before: impl Fn(VcpuIndex) -> bool) {
        let at = self.0.iter().position(|entry| goes_before(*entry)).unwrap_or(self.0.len());
        self.0.insert(at, vcpu);
    }

    pub(super) fn first(&self) -> Option<VcpuIndex> {
        self.0.front().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = VcpuIndex> {
        self.0.iter().copied()
    }

    pub(super) fn pop(&mut self) -> Option<VcpuIndex> {
        self.0.pop_front()
    }

    /// Removes and returns the first vCPU that satisfies `fits`.
    pub(super) fn take(&mut self, fits: impl Fn(VcpuIndex) -> bool) -> Option<VcpuIndex> {
        let at = self.0.iter().position(|vcpu| fits(*vcpu))?;
        self.0.remove(at)
    }

    pub(super) fn take_at(&mut self, at: usize) -> Option<VcpuIndex> {
        self.0.remove(at)
    }

    pub(super) fn remove(&mut self, vcpu: VcpuIndex) {
        self.0.retain(|entry| *entry != vcpu);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
