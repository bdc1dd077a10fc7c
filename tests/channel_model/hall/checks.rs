use std::collections::BTreeSet;

use sluicegate::primitives::{Put, Time, Waitable};

use super::{DEAD, Hall, Waiter, Want};

impl Hall {
    pub(super) fn uncalled(&self, is: impl Fn(&Waiter) -> bool) -> bool {
        self.waiters.values().any(|waiter| !waiter.is_called && is(waiter))
    }

    pub(super) fn has_overtaken_a_putter(&self, of: usize) -> bool {
        let is_behind = self.uncalled(|waiter| match waiter.want {
            Want::Room { criticality, .. } => criticality >= of,
            Want::Item => false,
        });
        self.is_prompt && is_behind
    }

    pub(super) fn has_overtaken_a_taker(&self) -> bool {
        self.is_prompt && self.uncalled(|waiter| matches!(waiter.want, Want::Item))
    }

    /// An item that is accepted never makes the queue deeper than it may be.
    pub(super) fn check_depth(&self, put: &Put<usize>, before: usize) {
        let (depth, capacity) = (self.channel.queue().depth(), self.channel.queue().capacity());
        if matches!(put, Put::Accepted(_)) {
            assert!(depth <= capacity.max(before), "{depth} of {capacity}, {before} before");
        }
    }

    /// Somebody who comes before it and waits uncalled, since earlier than now.
    pub(super) fn overtaken_by(&self, name: usize) -> Option<usize> {
        let is_before =
            |other: usize, waiter: &Waiter| match (waiter.want, self.waiters[&name].want) {
                (Want::Item, Want::Item) => other < name,
                (Want::Room { criticality: other_is, .. }, Want::Room { criticality: is, .. }) => {
                    other_is > is || (other_is == is && other < name)
                }
                _ => false,
            };
        { self.waiters.iter() }
            .filter(|&(&other, waiter)| is_before(other, waiter) && other != self.newcomer)
            .find_map(|(&other, waiter)| (!waiter.is_called).then_some(other))
    }

    pub(super) fn check_order(&self, name: usize) {
        if self.is_prompt {
            assert_eq!(self.waiters[&name].overtook, None, "{name} overtook somebody");
        }
    }

    pub(super) fn check_that_nobody_waits_in_vain(&self) {
        let queue = self.channel.queue();
        let waits =
            |is: fn(&Waiter) -> bool| self.uncalled(|waiter| waiter.home != DEAD && is(waiter));
        let takers = waits(|waiter| matches!(waiter.want, Want::Item));
        let putters = waits(|waiter| matches!(waiter.want, Want::Room { .. }));
        assert!(!takers || queue.is_empty(), "an item waits, and somebody for it");
        assert!(!putters || (queue.depth() >= queue.capacity() && !takers), "room is there");
        assert!(!self.channel.is_closed() || !putters, "it is closed");
        assert!(!self.channel.is_closed() || !queue.is_empty() || !takers, "it is closed");
    }

    pub(super) fn check(&mut self) {
        self.hear();
        let Self { channel, waiters, .. } = self;
        let queue = channel.queue();
        assert_eq!(queue.items().copied().collect::<BTreeSet<_>>(), self.inside);
        assert_eq!(queue.len(), self.inside.len());
        assert!(!self.is_ended || queue.is_empty());
        let snapshot = channel.snapshot(Time::from_nanos(self.now));
        assert_eq!(snapshot.accepted, self.accepted);
        assert_eq!((snapshot.taken, snapshot.cancelled), (self.taken, self.cancelled));
        assert_eq!(snapshot.working, self.works.len());
        assert_eq!(snapshot.rejected.iter().sum::<u64>(), self.rejected);
        let uncalled = |is: fn(&Waiter) -> bool| {
            waiters.values().filter(|waiter| !waiter.is_called && is(waiter)).count()
        };
        let is_taker = |waiter: &Waiter| matches!(waiter.want, Want::Item);
        let is_putter = |waiter: &Waiter| matches!(waiter.want, Want::Room { .. });
        // Those that were called may have to wait again.
        assert!(channel.takers() >= uncalled(is_taker) || self.has_unreached);
        assert!(channel.putters() >= uncalled(is_putter) || self.has_unreached);
        assert!(channel.takers() + channel.putters() <= waiters.len());
        let bound =
            waiters.values().filter(|waiter| !waiter.is_called).filter_map(|w| w.bound).min();
        if let Some(bound) = bound
            && !self.has_unreached
        {
            assert!(channel.next_expiry().is_some_and(|next| next <= bound));
        }
    }
}
