//! A queue of nodes, whose head gets the lock next.

use crate::node::{NodeId, Nodes};
use crate::sync::{AtomicU16, Ordering};

/// The waiter methods of [`RawLock`](crate::RawLock), for a lock with a [`Queue`] and a word in the
/// field `$word`.
macro_rules! waiters_of_queue {
    ($word:ident) => {
        fn is_contended(&self) -> bool {
            !self.queue.is_empty()
        }

        fn wait_until_released<P: $crate::Pv, W: $crate::Watch>(
            &self,
            cpu: &$crate::Cpu<'_, P, W>,
        ) {
            self.$word.wait_until_released(|| cpu.pv.spin_hint());
        }

        fn releases_before(
            &self,
            waiters: &$crate::WaitTable,
            position: $crate::Position,
        ) -> Option<u16> {
            waiters.nodes.releases_before(position, self.$word.is_held())
        }
    };
}
pub(crate) use waiters_of_queue;

/// The waiters for a lock, each linked to the waiter behind it. Stores the last.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tail: AtomicU16,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Self { tail: AtomicU16::new(0) }
    }

    /// Whether the queue is empty. Relaxed: a hint, which publishes nothing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == 0
    }

    /// Adds `me`, which is the head at once if the queue was empty.
    pub(crate) fn join(&self, nodes: &Nodes, me: NodeId) {
        self.join_behind(nodes, me);
    }

    /// Like [`Queue::join`]; returns the node ahead of `me`.
    pub(crate) fn join_behind(&self, nodes: &Nodes, me: NodeId) -> Option<NodeId> {
        let before = self.append(nodes, me)?;
        nodes.link(before, me);
        Some(before)
    }

    /// Like [`Queue::join`], for a lock whose waiters may leave the queue anywhere. Returns whether
    /// another waiter is the head.
    pub(crate) fn join_linked(&self, nodes: &Nodes, me: NodeId) -> bool {
        let before = self.append(nodes, me);
        if let Some(before) = before {
            nodes.set_previous(before, me);
            nodes.set_distance(me, nodes.distance_behind(before));
            nodes.link(before, me);
        }
        before.is_some()
    }

    /// Makes `me` the last. Returns the node ahead of it, to be linked, unless `me` is the head.
    ///
    /// Release publishes `me`, to which the next CPU writes; acquire is for the node ahead.
    fn append(&self, nodes: &Nodes, me: NodeId) -> Option<NodeId> {
        let before = NodeId::parse(self.tail.swap(me.name(), Ordering::AcqRel));
        if before.is_none() {
            nodes.begin_as_head(me);
        }
        before
    }

    /// Removes `me`, which is not the head. Only the holder of the lock may call it, so that no two
    /// nodes leave at once; nodes that left earlier have updated `me`'s link to the node ahead.
    ///
    /// Release, for `me`'s link in the node ahead: the next CPU to join writes the same word.
    pub(crate) fn unlink(&self, nodes: &Nodes, me: NodeId, pause: impl FnMut()) {
        let Some(before) = nodes.previous(me) else { return };
        let result = self.tail.compare_exchange(
            me.name(),
            before.name(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if result.is_ok() {
            return nodes.unlink_last(before, me);
        }
        let next = nodes.next(me, pause);
        nodes.set_previous(before, next);
        nodes.link(before, next);
    }

    /// Removes the head; returns the next head, if any. `pause` is called while a CPU has
    /// joined and not yet linked its node.
    ///
    /// Relaxed: the lock itself orders the accesses under it.
    pub(crate) fn leave(&self, nodes: &Nodes, me: NodeId, pause: impl FnMut()) -> Option<NodeId> {
        let result = self.tail.compare_exchange(me.name(), 0, Ordering::Relaxed, Ordering::Relaxed);
        if result.is_ok() {
            return None;
        }
        Some(nodes.next(me, pause))
    }

    /// Ends the wait of `me`, the head: removes it, makes the next waiter the head, and frees the
    /// node.
    pub(crate) fn pass_head(&self, nodes: &Nodes, me: NodeId, pause: impl FnMut()) {
        if let Some(next) = self.leave(nodes, me, pause) {
            nodes.make_head(next);
        }
        nodes.free(me);
    }

    /// Like [`Queue::pass_head`], in a queue whose waiters may abandon their nodes.
    pub(crate) fn pass_head_over(&self, nodes: &Nodes, me: NodeId, mut pause: impl FnMut()) {
        let mut head = me;
        loop {
            let next = self.leave(nodes, head, &mut pause);
            if head != me {
                // From here on its CPU may use the node.
                nodes.end_abandonment(head);
            }
            match next {
                Some(next) if nodes.make_head(next) => head = next,
                _ => break,
            }
        }
        nodes.free(me);
    }

    /// Like [`Queue::pass_head`], for a waiter that has taken the lock anywhere in the queue: only
    /// holders make a waiter the head, so no waiter becomes the head during the call.
    pub(crate) fn remove(&self, nodes: &Nodes, me: NodeId, pause: impl FnMut()) {
        if nodes.is_head(me) {
            return self.pass_head(nodes, me, pause);
        }
        self.unlink(nodes, me, pause);
        nodes.free(me);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_stays_linked_if_the_last_waiter_leaves() {
        let (nodes, queue) = (Nodes::new(), Queue::new());
        let [head, last, late] = [0, 1, 2].map(|cpu| nodes.alloc(cpu).expect("none in use"));
        for id in [head, last] {
            queue.join_linked(&nodes, id);
        }
        // The first half of `Queue::unlink`, then the other CPU, then the second half.
        queue.tail.store(head.name(), Ordering::Relaxed);
        queue.join_linked(&nodes, late);
        nodes.unlink_last(head, last);
        assert_eq!(queue.leave(&nodes, head, || panic!("it is linked")), Some(late));
    }
}
