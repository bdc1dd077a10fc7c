/// Makes a limiter [`Waitable`](crate::primitives::Waitable) that admits by its `semaphore` and learns
/// from what is given back: whoever waits, waits at the semaphore, and what was learned outlives a
/// reset. `$restart` is the rest of that.
///
/// A trait with an implementation for all of them would collide with those of whoever has no
/// semaphore: other crates may have a `W` of their own.
macro_rules! waits_at_semaphore {
    ($limiter:ident, |$this:ident| $restart:expr) => {
        impl<W> $crate::primitives::Waitable<W> for $limiter<W> {
            fn cancel(&mut self, now: Time, ticket: Ticket) -> Wakes<W> {
                self.semaphore.cancel(now, ticket)
            }

            fn unreached(&mut self, now: Time, ticket: Ticket, waiter: W) -> Wakes<W> {
                self.semaphore.unreached(now, ticket, waiter)
            }

            fn expire(&mut self, now: Time, home: Option<Home>) -> Wakes<W> {
                self.semaphore.expire(now, home)
            }

            fn next_expiry(&self) -> Option<Time> {
                self.semaphore.next_expiry()
            }

            /// Always: what is admitted and given back is timed.
            #[inline]
            fn needs_time(&self) -> bool {
                true
            }

            fn latest(&self) -> Time {
                self.semaphore.latest()
            }

            fn renew(&mut self, ticket: Ticket, waiter: W) -> Result<Option<W>, W> {
                self.semaphore.renew(ticket, waiter)
            }

            fn waits(&self, home: Home) -> bool {
                self.semaphore.waits(home)
            }

            fn has_unclaimed(&self, home: Option<Home>) -> bool {
                self.semaphore.has_unclaimed(home)
            }

            fn waiters<'a>(&'a self) -> impl Iterator<Item = &'a W>
            where
                W: 'a,
            {
                self.semaphore.waiters()
            }

            fn take_waiters(&mut self) -> Vec<W> {
                self.semaphore.take_waiters()
            }

            fn reset(&mut self) -> Vec<W> {
                let $this = self;
                let waiters = $this.semaphore.reset();
                $restart;
                waiters
            }
        }
    };
}

pub(crate) use waits_at_semaphore;
