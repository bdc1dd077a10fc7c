//! The hand-over between threads, in every order in which they may run: what the
//! waiting layer does with a lock, a limiter or a channel under it, and wakes that are
//! delivered after the lock is released.

#![allow(clippy::expect_used, clippy::panic)]

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::{Config, FailurePersistence, Runner, thread};
use sluicegate::primitives::{
    Admission, Ask, CLAIM_PATIENCE, Channel, Claim, Home, Offer, Outcome, Permit, Put, QueueConfig,
    SemaphoreLimiter, Take, Ticket, Time, Wait, Waitable, Wakes,
};

/// Runs `program` in so many orders; more of them with full counts.
fn explore(orders: usize, program: impl Fn() + Clone + Send + Sync + 'static) {
    let full = std::env::var_os("SLUICEGATE_TEST_FULL").is_some();
    let orders = if full { 5 * orders } else { orders };
    run(DfsScheduler::new(Some(orders), false), program.clone());
    run(RandomScheduler::new(orders), program.clone());
    run(PctScheduler::new(3, orders), program);
}

/// Runs a small program in all orders.
fn exhaust(program: impl Fn() + Send + Sync + 'static) {
    run(DfsScheduler::new(None, false), program);
}

fn run(scheduler: impl Scheduler + 'static, program: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::None;
    Runner::new(scheduler, config).run(program);
}

/// What a parked thread waits for.
#[derive(Debug, Default)]
struct Flag {
    is_up: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    fn wait(&self) {
        let mut is_up = self.is_up.lock().expect("nobody panics");
        while !*is_up {
            is_up = self.changed.wait(is_up).expect("nobody panics");
        }
        *is_up = false;
    }

    fn set(&self) {
        *self.is_up.lock().expect("nobody panics") = true;
        self.changed.notify_one();
    }
}

type Waiter = Arc<Flag>;

/// Something to wait at, its lock, and a clock.
struct Site<P> {
    state: Mutex<P>,
    now: AtomicU64,
}

impl<P: Waitable<Waiter>> Site<P> {
    fn new(state: P) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), now: AtomicU64::new(0) })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Calls under the lock, and wakes after it.
    fn call<R>(&self, action: impl FnOnce(&mut P, Time) -> (R, Wakes<Waiter>)) -> R {
        let (answer, wakes) = action(&mut self.state.lock().expect("nobody panics"), self.now());
        for wake in wakes {
            wake.waiter.set();
        }
        answer
    }

    fn cancel(&self, ticket: Ticket) {
        self.call(|state, now| ((), state.cancel(now, ticket)));
    }

    /// Whoever was called and has not come loses its turn.
    fn sweep(&self) {
        let patience = u64::try_from(CLAIM_PATIENCE.as_nanos()).expect("it is short");
        self.now.fetch_add(patience, Ordering::Relaxed);
        self.call(|state, now| ((), state.expire(now, None)));
    }

    /// Waits until `claim` has an answer.
    fn wait<R>(
        &self,
        ticket: Ticket,
        flag: &Waiter,
        mut claim: impl FnMut(&mut P, Time) -> (Option<R>, Wakes<Waiter>),
    ) -> R {
        loop {
            flag.wait();
            loop {
                if let Some(answer) = self.call(&mut claim) {
                    return answer;
                }
                let mut state = self.state.lock().expect("nobody panics");
                if state.renew(ticket, flag.clone()).is_ok() {
                    break;
                }
            }
        }
    }

    fn check_that_nothing_is_left(&self) {
        let state = self.state.lock().expect("nobody panics");
        assert!(!state.has_unclaimed(None));
        assert_eq!(state.waiters().count(), 0);
        assert_eq!(state.next_expiry(), None);
    }
}

type Limiter = Site<SemaphoreLimiter<Waiter>>;

fn limiter(limit: f64) -> Arc<Limiter> {
    Site::new(SemaphoreLimiter::new(limit).expect("a limit in its range"))
}

fn ask(home: u64) -> Ask {
    let mut ask = Ask::one();
    ask.home = Some(Home(home));
    ask
}

impl Limiter {
    fn join(&self, home: u64) -> (Admission, Waiter) {
        let flag = Waiter::default();
        let admission = self.call(|limiter, now| {
            (limiter.acquire(now, &ask(home), &mut Some(flag.clone())), Wakes::none())
        });
        (admission, flag)
    }

    fn acquire(&self, home: u64) -> Permit {
        let (admission, flag) = self.join(home);
        self.admitted(admission, &flag)
    }

    fn admitted(&self, admission: Admission, flag: &Waiter) -> Permit {
        match admission {
            Admission::Admitted(permit) => permit,
            Admission::Waiting(ticket) => self.wait(ticket, flag, |limiter, now| {
                let (claim, wakes) = limiter.claim(now, ticket);
                match claim {
                    Claim::Admitted(permit) => (Some(permit), wakes),
                    Claim::Waiting => (None, wakes),
                    Claim::Rejected(rejection) => panic!("{rejection:?}"),
                }
            }),
            Admission::Rejected(rejection) => panic!("{rejection:?}"),
        }
    }

    fn release(&self, permit: Permit) {
        self.call(|limiter, now| ((), limiter.release(now, permit, Outcome::Success)));
    }

    /// Asks, and gives up while it waits.
    fn acquire_and_give_up(&self, home: u64) {
        match self.join(home).0 {
            Admission::Admitted(permit) => self.release(permit),
            Admission::Waiting(ticket) => self.cancel(ticket),
            Admission::Rejected(rejection) => panic!("{rejection:?}"),
        }
    }

    fn check_that_all_is_given_back(&self) {
        self.check_that_nothing_is_left();
        let limiter = self.state.lock().expect("nobody panics");
        assert_eq!((limiter.in_flight(), limiter.waiting()), (0, 0));
    }
}

/// How many work at once.
#[derive(Clone, Default)]
struct Gauge(StdArc<AtomicU64>);

impl Gauge {
    fn work(&self, limit: u64) {
        let inside = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(inside <= limit, "{inside} at once, {limit} may");
        thread::yield_now();
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn in_parallel<const N: usize>(programs: [Box<dyn FnOnce() + Send>; N]) {
    for thread in programs.map(thread::spawn) {
        thread.join().expect("it does not panic");
    }
}

#[test]
fn a_release_reaches_who_waits_whoever_gives_up() {
    explore(2000, || {
        let (site, gauge) = (limiter(1.0), Gauge::default());
        let held = site.acquire(0);
        in_parallel([
            Box::new({
                let (site, gauge) = (site.clone(), gauge.clone());
                move || {
                    gauge.work(1);
                    site.release(held);
                }
            }),
            Box::new({
                let site = site.clone();
                move || site.acquire_and_give_up(1)
            }),
            Box::new({
                let (site, gauge) = (site.clone(), gauge.clone());
                move || {
                    let permit = site.acquire(2);
                    gauge.work(1);
                    site.release(permit);
                }
            }),
        ]);
        site.check_that_all_is_given_back();
    });
}

#[test]
fn a_permit_is_handed_over_in_every_order() {
    exhaust(|| {
        let site = limiter(1.0);
        let held = site.acquire(0);
        let (admission, flag) = site.join(1);
        let releaser = thread::spawn({
            let site = site.clone();
            move || site.release(held)
        });
        // It may be called before it gives up, and then another one is.
        site.acquire_and_give_up(2);
        let permit = site.admitted(admission, &flag);
        releaser.join().expect("it does not panic");
        site.release(permit);
        site.check_that_all_is_given_back();
    });
}

#[test]
fn a_turn_is_lost_in_every_order() {
    exhaust(|| {
        let site = limiter(1.0);
        let held = site.acquire(0);
        let (late, flag) = site.join(1);
        let (other, other_flag) = site.join(2);
        site.release(held);
        let sweeper = thread::spawn({
            let site = site.clone();
            move || site.sweep()
        });
        // It was called, and comes before or after it lost its turn.
        let permit = site.admitted(late, &flag);
        site.release(permit);
        let permit = site.admitted(other, &other_flag);
        sweeper.join().expect("it does not panic");
        site.release(permit);
        site.check_that_all_is_given_back();
    });
}

#[test]
fn no_more_than_the_limit_work_at_once() {
    explore(750, || {
        let (site, gauge) = (limiter(2.0), Gauge::default());
        let worker = |home: u64| -> Box<dyn FnOnce() + Send> {
            let (site, gauge) = (site.clone(), gauge.clone());
            Box::new(move || {
                for _ in 0..2 {
                    let permit = site.acquire(home);
                    gauge.work(2);
                    site.release(permit);
                }
            })
        };
        in_parallel([worker(0), worker(1), worker(2)]);
        site.check_that_all_is_given_back();
    });
}

#[test]
fn a_limit_that_moves_loses_nobody() {
    explore(750, || {
        let site = limiter(1.0);
        let worker = |home: u64| -> Box<dyn FnOnce() + Send> {
            let site = site.clone();
            Box::new(move || {
                let permit = site.acquire(home);
                site.release(permit);
            })
        };
        let mover = Box::new({
            let site = site.clone();
            move || {
                for limit in [0.0, 2.0] {
                    site.call(|limiter, now| {
                        ((), limiter.update(now, limit).expect("a limit in its range"))
                    });
                }
            }
        });
        in_parallel([worker(0), worker(1), mover]);
        site.check_that_all_is_given_back();
    });
}

#[test]
fn who_comes_late_loses_its_turn_and_not_its_place() {
    explore(750, || {
        let (site, gauge) = (limiter(1.0), Gauge::default());
        let held = site.acquire(0);
        let worker = |home: u64| -> Box<dyn FnOnce() + Send> {
            let (site, gauge) = (site.clone(), gauge.clone());
            Box::new(move || {
                let permit = site.acquire(home);
                gauge.work(1);
                site.release(permit);
            })
        };
        let sweeper = Box::new({
            let site = site.clone();
            move || {
                site.release(held);
                site.sweep();
                site.sweep();
            }
        });
        in_parallel([worker(1), worker(2), sweeper]);
        site.check_that_all_is_given_back();
    });
}

type Queue = Site<Channel<u32, Waiter>>;

fn queue(capacity: usize) -> Arc<Queue> {
    Site::new(Channel::new(QueueConfig::new(capacity)).expect("a sound configuration"))
}

impl Queue {
    /// Whether it is inside.
    fn put(&self, home: u64, item: u32) -> bool {
        let (flag, offer) = (Waiter::default(), Offer::default());
        let wait = Wait { home: Some(Home(home)), until: None };
        let put = self.call(|channel, now| {
            channel.put_or_wait(now, item, &offer, wait, &mut Some(flag.clone()))
        });
        let ticket = match put {
            Put::Waiting(ticket, _) => ticket,
            Put::Accepted(_) => return true,
            Put::Rejected(..) | Put::NoRoom(_) | Put::Unknown(_) => return false,
        };
        self.wait(ticket, &flag, |channel, now| {
            let (put, wakes) = channel.claim_room(now, ticket, item, &offer);
            match put {
                Put::Waiting(..) => (None, wakes),
                Put::Accepted(_) => (Some(true), wakes),
                Put::Rejected(..) | Put::NoRoom(_) | Put::Unknown(_) => (Some(false), wakes),
            }
        })
    }

    fn join(&self, home: u64) -> (Take<u32>, Waiter) {
        let flag = Waiter::default();
        let wait = Wait { home: Some(Home(home)), until: None };
        let take =
            self.call(|channel, now| channel.take_or_wait(now, wait, &mut Some(flag.clone())));
        (take, flag)
    }

    /// The item; `None` once it is closed.
    fn take(&self, home: u64) -> Option<u32> {
        let (take, flag) = self.join(home);
        self.come_for(take, &flag)
    }

    fn come_for(&self, take: Take<u32>, flag: &Waiter) -> Option<u32> {
        let ticket = match take {
            Take::Waiting(ticket) => ticket,
            take => return self.taken(take),
        };
        let take = self.wait(ticket, flag, |channel, now| match channel.claim_item(now, ticket) {
            (Take::Waiting(_), wakes) => (None, wakes),
            (take, wakes) => (Some(take), wakes),
        });
        self.taken(take)
    }

    fn taken(&self, take: Take<u32>) -> Option<u32> {
        match take {
            Take::Taken(taken) => {
                self.call(|channel, now| {
                    let work = channel.begin(&taken);
                    ((), channel.finish(now, work, true))
                });
                Some(taken.item)
            }
            Take::Closed => None,
            other => panic!("{other:?}"),
        }
    }

    fn close(&self) {
        self.call(|channel, now| ((), channel.close(now, false)));
    }

    fn check_that_it_is_empty(&self) {
        self.check_that_nothing_is_left();
        let channel = self.state.lock().expect("nobody panics");
        assert_eq!((channel.takers(), channel.putters(), channel.queue().len()), (0, 0, 0));
    }
}

/// What was taken, by whomever.
#[derive(Clone, Default)]
struct Basket(StdArc<std::sync::Mutex<Vec<u32>>>);

impl Basket {
    fn add(&self, item: Option<u32>) {
        self.0.lock().expect("nobody panics").extend(item);
    }

    fn sorted(&self) -> Vec<u32> {
        let mut items = self.0.lock().expect("nobody panics").clone();
        items.sort_unstable();
        items
    }
}

#[test]
fn each_item_is_taken_once() {
    explore(750, || {
        let (site, basket) = (queue(10), Basket::default());
        let taker = |home: u64| -> Box<dyn FnOnce() + Send> {
            let (site, basket) = (site.clone(), basket.clone());
            Box::new(move || basket.add(site.take(home)))
        };
        let putter = Box::new({
            let site = site.clone();
            move || assert!([1, 2].map(|item| site.put(0, item)) == [true; 2])
        });
        in_parallel([taker(1), taker(2), putter]);
        assert_eq!(basket.sorted(), [1, 2]);
        site.check_that_it_is_empty();
    });
}

#[test]
fn an_item_is_handed_over_in_every_order() {
    exhaust(|| {
        let site = queue(0);
        let (take, flag) = site.join(1);
        let putter = thread::spawn({
            let site = site.clone();
            move || site.put(0, 1)
        });
        let quick = match site.join(2).0 {
            Take::Waiting(ticket) => {
                site.cancel(ticket);
                None
            }
            take => site.taken(take),
        };
        assert_eq!(quick, None, "it was overtaken");
        assert_eq!(site.come_for(take, &flag), Some(1));
        assert!(putter.join().expect("it does not panic"));
        site.check_that_it_is_empty();
    });
}

#[test]
fn room_is_handed_over_in_every_order() {
    exhaust(|| {
        let site = queue(1);
        assert!(site.put(0, 1));
        let taker = thread::spawn({
            let site = site.clone();
            move || site.take(1)
        });
        assert!(site.put(0, 2));
        assert_eq!(taker.join().expect("it does not panic"), Some(1));
        assert_eq!(site.take(0), Some(2));
        site.check_that_it_is_empty();
    });
}

#[test]
fn room_reaches_who_waits_for_it() {
    for capacity in [0, 1] {
        explore(500, move || {
            let (site, basket) = (queue(capacity), Basket::default());
            let putter = |home: u64, item: u32| -> Box<dyn FnOnce() + Send> {
                let site = site.clone();
                Box::new(move || assert!(site.put(home, item)))
            };
            let taker = Box::new({
                let (site, basket) = (site.clone(), basket.clone());
                move || {
                    basket.add(site.take(0));
                    basket.add(site.take(0));
                }
            });
            in_parallel([putter(1, 1), putter(2, 2), taker]);
            assert_eq!(basket.sorted(), [1, 2]);
            site.check_that_it_is_empty();
        });
    }
}

#[test]
fn an_item_reaches_who_waits_whoever_gives_up() {
    explore(1000, || {
        let (site, quick) = (queue(0), Basket::default());
        let taker = thread::spawn({
            let site = site.clone();
            move || site.take(2)
        });
        let putter = Box::new({
            let site = site.clone();
            move || assert!(site.put(0, 1))
        });
        let quitter = Box::new({
            let (site, quick) = (site.clone(), quick.clone());
            move || match site.join(1).0 {
                Take::Waiting(ticket) => site.cancel(ticket),
                take => quick.add(site.taken(take)),
            }
        });
        in_parallel([putter as Box<dyn FnOnce() + Send>, quitter]);
        // Then there is nothing for the other one.
        let is_taken = quick.sorted() == [1];
        if is_taken {
            site.close();
        }
        let item = taker.join().expect("it does not panic");
        assert_eq!(item, (!is_taken).then_some(1));
        site.check_that_it_is_empty();
    });
}

#[test]
fn the_end_reaches_all_who_wait() {
    explore(750, || {
        let (site, basket) = (queue(1), Basket::default());
        let taker = Box::new({
            let (site, basket) = (site.clone(), basket.clone());
            move || {
                while let Some(item) = site.take(1) {
                    basket.add(Some(item));
                }
            }
        });
        let accepted = Basket::default();
        let putter = Box::new({
            let (site, accepted) = (site.clone(), accepted.clone());
            move || {
                for item in [1, 2] {
                    accepted.add(site.put(2, item).then_some(item));
                }
            }
        });
        let closer = Box::new({
            let site = site.clone();
            move || site.close()
        });
        in_parallel([taker, putter, closer]);
        assert_eq!(basket.sorted(), accepted.sorted());
        site.check_that_it_is_empty();
    });
}

/// Looks whether there is room, and then takes it.
struct Careless(Mutex<u64>);

impl Careless {
    fn enter(&self) -> bool {
        let has_room = *self.0.lock().expect("nobody panics") < 1;
        if has_room {
            *self.0.lock().expect("nobody panics") += 1;
        }
        has_room
    }

    fn leave(&self) {
        *self.0.lock().expect("nobody panics") -= 1;
    }
}

fn go_through_a_careless_door() {
    let door = Arc::new(Careless(Mutex::new(0)));
    let gauge = Gauge::default();
    let visitor = || -> Box<dyn FnOnce() + Send> {
        let (door, gauge) = (door.clone(), gauge.clone());
        Box::new(move || {
            if door.enter() {
                gauge.work(1);
                door.leave();
            }
        })
    };
    in_parallel([visitor(), visitor(), visitor()]);
}

#[test]
#[should_panic(expected = "at once, 1 may")]
fn one_who_is_admitted_too_many_is_found() {
    explore(500, go_through_a_careless_door);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_that_is_lost_is_found() {
    explore(500, || {
        let site = limiter(1.0);
        let held = site.acquire(0);
        let waiter = Box::new({
            let site = site.clone();
            move || {
                let permit = site.acquire(1);
                site.release(permit);
            }
        });
        let forgetful = Box::new({
            let site = site.clone();
            move || {
                let mut limiter = site.state.lock().expect("nobody panics");
                drop(limiter.release(Time::ZERO, held, Outcome::Success));
            }
        });
        in_parallel([waiter as Box<dyn FnOnce() + Send>, forgetful]);
    });
}
