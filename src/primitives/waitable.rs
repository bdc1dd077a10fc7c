use super::{Home, Ticket, Time, Wakes};

/// What somebody can wait at: what whoever embeds it calls for those who wait,
/// whatever they wait for.
///
/// Every method that can free something returns [`Wakes`], to be delivered after
/// the lock is released. `now` may stand still or jump back: the latest moment
/// seen counts.
pub trait Waitable<W> {
    /// Gives a ticket up. If it was granted meanwhile, the next one gets it.
    fn cancel(&mut self, now: Time, ticket: Ticket) -> Wakes<W>;

    /// Notes that the wake of a ticket could not be delivered although its home is
    /// there. Others go first; after [`CLAIM_PATIENCE`](super::CLAIM_PATIENCE) it
    /// is tried again.
    fn unreached(&mut self, now: Time, ticket: Ticket, waiter: W) -> Wakes<W>;

    /// Rejects those who have waited for as long as they may, takes back grants
    /// that nobody claims, and serves who can be served. `home` is where this
    /// runs, which shows that it is not blocked.
    fn expire(&mut self, now: Time, home: Option<Home>) -> Wakes<W>;

    /// When [`expire`](Self::expire) next has something to do.
    fn next_expiry(&self) -> Option<Time>;

    /// Whether answers depend on the time. If not, any earlier `now` does as well,
    /// and the reading of a clock can be saved. To join a line and to change a
    /// configuration take the true time always.
    fn needs_time(&self) -> bool;

    /// The latest moment seen.
    fn latest(&self) -> Time;

    /// Gives a ticket that goes on waiting something to be woken with, and returns
    /// what it had before.
    ///
    /// # Errors
    /// Hands it back if the ticket no longer waits: claim it again.
    fn renew(&mut self, ticket: Ticket, waiter: W) -> Result<Option<W>, W>;

    /// Whether an expiry may concern somebody at `home`.
    fn waits(&self, home: Home) -> bool;

    /// Whether somebody at `home`, or anywhere, was granted or refused and has not come to hear
    /// it.
    fn has_unclaimed(&self, home: Option<Home>) -> bool;

    /// What the waiters are woken with.
    fn waiters<'a>(&'a self) -> impl Iterator<Item = &'a W>
    where
        W: 'a;

    /// Takes out what the waiters are woken with. They stay in line and are not
    /// woken any more.
    fn take_waiters(&mut self) -> Vec<W>;

    /// Begins anew: nobody waits, nothing is in flight, and what was given so far
    /// is worth nothing. For the child after a fork.
    #[must_use = "the waiters are to be dropped outside the lock"]
    fn reset(&mut self) -> Vec<W>;
}
