use std::iter::Chain;
use std::{option, vec};

use super::Ticket;

/// A signal for one waiter: come and [claim](super::SemaphoreLimiter::claim)
/// your ticket.
///
/// It carries no permit. If it cannot be delivered, cancel the ticket, and
/// what it was granted goes to the next in line.
#[derive(Debug)]
pub struct Wake<W> {
    /// Whose turn it is.
    pub ticket: Ticket,
    /// What to wake it with.
    pub waiter: W,
}

/// The signals that an operation asks its caller to deliver after the lock is
/// released.
///
/// What waiters it has no more use for travels with it, to be dropped there too.
#[derive(Debug)]
#[must_use = "a waiter that is not woken waits for ever"]
pub struct Wakes<W> {
    /// Mostly there is nobody, or one.
    first: Option<Wake<W>>,
    more: Option<Box<More<W>>>,
}

#[derive(Debug)]
struct More<W> {
    wakes: Vec<Wake<W>>,
    discarded: Vec<W>,
}

impl<W> Wakes<W> {
    /// Nobody to wake; allocates nothing.
    #[inline]
    pub const fn none() -> Self {
        Self { first: None, more: None }
    }

    /// How many there are to wake.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.as_ref().map_or(0, |more| more.wakes.len())
    }

    /// Whether there is nobody to wake.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<W> Wakes<W> {
    pub(crate) fn discard(&mut self, waiter: Option<W>) {
        if let Some(waiter) = waiter {
            self.more().discarded.push(waiter);
        }
    }

    /// Adds those of another operation.
    pub fn extend_with(&mut self, mut others: Self) {
        if let Some(more) = &mut others.more {
            let discarded = std::mem::take(&mut more.discarded);
            if !discarded.is_empty() {
                self.more().discarded.extend(discarded);
            }
        }
        self.extend(others);
    }

    fn more(&mut self) -> &mut More<W> {
        let nothing = || Box::new(More { wakes: Vec::new(), discarded: Vec::new() });
        self.more.get_or_insert_with(nothing)
    }
}

impl<W> Extend<Wake<W>> for Wakes<W> {
    fn extend<I: IntoIterator<Item = Wake<W>>>(&mut self, wakes: I) {
        for wake in wakes {
            if self.first.is_none() {
                self.first = Some(wake);
            } else {
                self.more().wakes.push(wake);
            }
        }
    }
}

impl<W> IntoIterator for Wakes<W> {
    type Item = Wake<W>;
    type IntoIter = Chain<option::IntoIter<Wake<W>>, vec::IntoIter<Wake<W>>>;

    fn into_iter(self) -> Self::IntoIter {
        // The discarded are dropped here, where the caller delivers.
        let others = self.more.map_or_else(Vec::new, |more| more.wakes);
        self.first.into_iter().chain(others)
    }
}
